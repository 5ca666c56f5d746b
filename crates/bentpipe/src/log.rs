//! The log: to standard error, at the level that the configuration or BENTPIPE_LOG says.
//!
//! - `error`: something does not work until a person changes it;
//! - `warn`: something went wrong, or will; look before trusting the result;
//! - `info`: what a person who runs the daemon wants to know: sessions, refused and failed
//!   flows with their cause, reloads;
//! - `debug`: every flow;
//! - `trace`: every packet.
//!
//! One place in the program logs at most [`BURST`] lines in [`EVERY`] at `info` and above:
//! what others send does not fill the disk.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Context, Filter, Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Registry, reload};

use crate::output;

const VARIABLE: &str = "BENTPIPE_LOG";
/// Lines of one place.
const BURST: u32 = 60;
const EVERY: Duration = Duration::from_secs(60);

static LEVEL: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Starts logging; `info` until a configuration says otherwise.
pub fn start() {
    let (level, handle) = reload::Layer::new(filter("info"));
    let _ = LEVEL.set(handle);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(output::errors)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_target(false)
        // A closed standard error ends no daemon.
        .log_internal_errors(false)
        .with_filter(Bounded::default());
    tracing_subscriber::registry()
        .with(level)
        .with(lines)
        .init();
}

/// Logs what `level` says from now on, unless the environment says otherwise.
pub fn set_level(level: &str) {
    if let Some(handle) = LEVEL.get() {
        // It lives as long as the process.
        let _ = handle.reload(filter(level));
    }
}

/// Whether `level` is one.
pub fn check(level: &str) -> Result<(), String> {
    match level {
        "error" | "warn" | "info" | "debug" | "trace" => Ok(()),
        _ => Err(format!(
            "log = {level:?}: give one of \"error\", \"warn\", \"info\", \"debug\" and \"trace\""
        )),
    }
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::builder()
        .with_default_directive(level.parse().unwrap_or(Level::INFO.into()))
        .parse_lossy(std::env::var(VARIABLE).unwrap_or_default())
}

/// Bounds how much each place in the program logs.
#[derive(Debug, Default)]
struct Bounded(Mutex<BTreeMap<(&'static str, u32), Window>>);

#[derive(Debug)]
struct Window {
    since: Instant,
    lines: u32,
}

impl<S: Subscriber> Filter<S> for Bounded {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return true;
        }
        let place = (
            metadata.file().unwrap_or_default(),
            metadata.line().unwrap_or_default(),
        );
        let now = Instant::now();
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = places.entry(place).or_insert(Window {
            since: now,
            lines: 0,
        });
        if now.duration_since(window.since) >= EVERY {
            let left_out = window.lines.saturating_sub(BURST);
            *window = Window {
                since: now,
                lines: 0,
            };
            if left_out > 0 {
                eprint_line(place, left_out);
            }
        }
        window.lines = window.lines.saturating_add(1);
        window.lines <= BURST
    }
}

/// Not an event: this is inside one.
fn eprint_line((file, line): (&str, u32), left_out: u32) {
    use std::io::Write as _;
    let told = format!("{left_out} lines like the next have been left out ({file}:{line})\n");
    let _ = output::errors().write_all(told.as_bytes());
}

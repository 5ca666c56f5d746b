//! `bentpipe sim record-host`: this machine, as plans have hosts.

use std::thread;
use std::time::{Duration, Instant};

use bentpipe_campaign::host::{HostSpec, WakeUp, fit};
use bentpipe_units::{Span, Time};

use crate::failure::Failure;

/// How long the recorded program sleeps at a time.
const SLEEP: Duration = Duration::from_millis(1);
/// What it works between two sleeps, so that the scheduler does not take it for one that
/// never does anything: a terminal at some 20 Mbit/s.
const WORK: Duration = Duration::from_micros(50);

#[derive(Debug, clap::Args)]
pub struct Command {
    /// How long is recorded
    #[arg(long = "for", default_value = "30 s")]
    length: Span,
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let seconds = command.length.as_secs_f64();
    if !(1.0..=3600.0).contains(&seconds) {
        return Err(Failure::Configuration(format!(
            "--for {}: give 1 s to 1 h",
            command.length
        )));
    }
    let wake_ups = record(command.length.as_duration());
    let Some(found) = fit(&wake_ups, HostSpec::QUIET) else {
        return Err(Failure::Configuration(
            "not one wake-up was seen: give a longer --for".into(),
        ));
    };
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "# {} wake-ups in {}, {} stalls of 3 ms and more, the longest {}; load {}",
        wake_ups.len(),
        command.length,
        found.stalls,
        milliseconds(found.longest),
        load.split(' ').next().unwrap_or("not known"),
    );
    println!(
        "host = {{ like = \"quiet\", lateness = \"{}\", stall_every = \"{}\", shortest_stall = \"{}\", longest_stall = \"{}\" }}",
        milliseconds(found.host.lateness),
        milliseconds(found.host.stall_every),
        milliseconds(found.host.stall.0),
        milliseconds(found.host.stall.1),
    );
    Ok(())
}

/// Sleeps, works and looks at the clock for `length`.
fn record(length: Duration) -> Vec<WakeUp> {
    let begun = Instant::now();
    let at = |moment: Instant| Time::ZERO + span(moment.duration_since(begun));
    let mut wake_ups = Vec::new();
    while begun.elapsed() < length {
        let wanted = Instant::now() + SLEEP;
        thread::sleep(SLEEP);
        let ran = Instant::now();
        wake_ups.push(WakeUp {
            wanted: at(wanted),
            ran: at(ran),
        });
        while ran.elapsed() < WORK {
            std::hint::spin_loop();
        }
    }
    wake_ups
}

fn span(duration: Duration) -> Span {
    Span::from_secs_f64(duration.as_secs_f64())
}

fn milliseconds(span: Span) -> String {
    format!("{:.3} ms", 1e3 * span.as_secs_f64())
}

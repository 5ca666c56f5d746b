//! What terminal and gateway share as processes.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_os::{limits, listener};
use sd_notify::NotifyState;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::config::Metrics;
use crate::failure::Failure;
use crate::files::Files;
use crate::output;
use crate::status::{Ask, StatusSocket, serve_metrics};

/// A peer that does not confirm our goodbye is not waited for.
const GOODBYE: Duration = Duration::from_secs(2);
/// Tasks that end with the runtime take back what they had changed of the machine, such as routes; what
/// a disk that stands still holds up is not waited for any longer.
const LAST_TASKS: Duration = Duration::from_secs(1);
/// While draining, it is looked this often whether all flows have ended.
const DRAIN_LOOK: Duration = Duration::from_millis(100);

/// Files that a daemon without flows may have open at most, with some to spare.
pub const LEAST_FILES: u64 = 64;

/// Runs a daemon on the async runtime; `main` hears how many files may be open. Neither a log that
/// nobody reads nor a disk that stands still keeps it from its work or from its end.
pub fn run<F: Future<Output = Result<(), Failure>>>(
    main: impl FnOnce(u64) -> F,
) -> Result<(), Failure> {
    let open_files = limits::raise_open_files();
    if open_files < LEAST_FILES {
        return Err(anyhow::anyhow!(
            "{open_files} files may be open, and a daemon without flows needs up to {LEAST_FILES}; raise the hard limit (`ulimit -Hn`, LimitNOFILE= in a systemd unit)"
        )
        .into());
    }
    output::never_wait().map_err(anyhow::Error::from)?;
    let runtime = runtime()?;
    let ended = runtime.block_on(main(open_files));
    runtime.shutdown_timeout(LAST_TASKS);
    output::finish();
    ended
}

/// Runs `main` on the async runtime.
pub fn block_on(main: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    runtime()?.block_on(main)
}

/// The async runtime.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?)
}

/// Prints a line for whoever started the daemon. Nobody may be listening any more: that
/// ends no daemon.
pub fn say(line: std::fmt::Arguments<'_>) {
    let mut out = output::output();
    let _ = out
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| out.flush());
}

/// Tells whoever started the daemon, systemd included, that it works; and then systemd,
/// as often as it wants, that it still does.
pub fn ready(line: std::fmt::Arguments<'_>) {
    say(line);
    notify(NotifyState::Ready);
    if let Some(period) = sd_notify::watchdog_enabled() {
        tokio::spawn(async move {
            loop {
                notify(NotifyState::Watchdog);
                tokio::time::sleep(period / 3).await;
            }
        });
    }
}

/// Tells systemd that the end is near.
pub fn stopping() {
    notify(NotifyState::Stopping);
}

fn notify(state: NotifyState<'_>) {
    // Without systemd there is nobody to tell.
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!("systemd was not told: {error}");
    }
}

/// The signals that end a daemon: SIGTERM in order, SIGINT (Ctrl-C) and SIGQUIT at once.
/// SIGUSR1 and SIGUSR2 mean nothing here and end nothing.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    others: [Signal; 2],
}

impl StopSignals {
    /// Handles them from now on.
    pub fn new() -> Self {
        let stream = |kind| signal(kind).expect("handlers for signals can be set");
        Self {
            terminate: stream(SignalKind::terminate()),
            interrupt: stream(SignalKind::interrupt()),
            quit: stream(SignalKind::quit()),
            others: [
                stream(SignalKind::user_defined1()),
                stream(SignalKind::user_defined2()),
            ],
        }
    }

    /// Resolves when the daemon is to end; true: in order, with time for open flows.
    pub async fn stop(&mut self) -> bool {
        let [first, second] = &mut self.others;
        loop {
            let (name, orderly) = tokio::select! {
                _ = self.terminate.recv() => ("SIGTERM", true),
                _ = self.interrupt.recv() => ("SIGINT", false),
                _ = self.quit.recv() => ("SIGQUIT", false),
                _ = first.recv() => continue,
                _ = second.recv() => continue,
            };
            tracing::info!("stopping: {name}");
            return orderly;
        }
    }

    /// Waits until `drained`, until `most` is over, or for another signal to end.
    pub async fn drain(&mut self, most: Duration, drained: impl Fn() -> bool) {
        let waiting = async {
            while !drained() {
                tokio::time::sleep(DRAIN_LOOK).await;
            }
        };
        tokio::select! {
            () = waiting => {}
            () = tokio::time::sleep(most) => tracing::warn!("open flows are reset: the time to drain is over"),
            _ = self.stop() => {}
        }
    }
}

/// Opens what tells how this end stands: the status socket, and figures for Prometheus.
pub async fn tell_status(
    tasks: &mut JoinSet<()>,
    files: &Files,
    metrics: Option<&Metrics>,
    ask: Ask,
) -> Result<(), Failure> {
    if let Some(metrics) = metrics {
        let listener = listen("metrics.listen", metrics.listen).await?;
        tasks.spawn(serve_metrics(listener, ask.clone()));
    }
    if let Some(socket) = StatusSocket::open(files.status_socket()) {
        tasks.spawn(socket.serve(ask));
    }
    Ok(())
}

/// A configuration that was read again; `None` if it is wrong, which is told.
pub fn read_again<T>(read: Result<T, Failure>) -> Option<T> {
    match read {
        Ok(new) => Some(new),
        Err(failure) => {
            tracing::error!("not reloaded, all stays as it was: {failure}");
            None
        }
    }
}

/// Tells which changes of a configuration wait for the next start: those beside what
/// `blank` blanks out.
pub fn tell_what_waits<T: Serialize + DeserializeOwned>(
    before: &T,
    new: &T,
    blank: impl Fn(&mut T),
) {
    let comparable = |config: &T| -> Option<toml::Table> {
        let mut copy: T = toml::Table::try_from(config).ok()?.try_into().ok()?;
        blank(&mut copy);
        toml::Table::try_from(&copy).ok()
    };
    let (before, new) = (comparable(before), comparable(new));
    let names = |table: &Option<toml::Table>| -> Vec<String> {
        table
            .iter()
            .flat_map(|table| table.keys().cloned())
            .collect()
    };
    let mut waiting = names(&before);
    waiting.extend(names(&new));
    waiting.sort();
    waiting.dedup();
    waiting.retain(|name| {
        before.as_ref().and_then(|t| t.get(name)) != new.as_ref().and_then(|t| t.get(name))
    });
    if waiting.is_empty() {
        tracing::info!("reloaded");
    } else {
        tracing::warn!(
            "reloaded; changes in {} take effect at the next start",
            waiting.join(", ")
        );
    }
}

/// Calls for SIGHUP, from now on.
pub fn reload_signal() -> Signal {
    signal(SignalKind::hangup()).expect("a handler for SIGHUP can be set")
}

/// How a daemon has ended: by itself is a failure, and systemd starts it again.
pub fn ended(asked: bool) -> Result<(), Failure> {
    match asked {
        true => Ok(()),
        false => Err(anyhow::anyhow!("ended by itself; the log says why").into()),
    }
}

/// Waits for a goodbye, but not for ever.
pub async fn patiently(goodbye: impl Future<Output = ()>) {
    // Running out of patience is the expected end when the link is down.
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
}

/// Listens for TCP at `address`, which the configuration calls `field`.
pub async fn listen(field: &str, address: SocketAddr) -> Result<TcpListener, Failure> {
    (listener::bind(address).await).map_err(|error| cannot_listen(field, "TCP", address, &error))
}

/// Why `address` of configuration field `field` cannot be listened on.
pub fn cannot_listen(
    field: &str,
    protocol: &str,
    address: SocketAddr,
    error: &io::Error,
) -> Failure {
    let port = address.port();
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "{protocol} port {port} is in use by another program; `ss -{}lpn 'sport = :{port}'` shows which",
            if protocol == "UDP" { 'u' } else { 't' }
        ),
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address; `ip addr` lists those that it has".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            format!("port {port} needs root or the capability CAP_NET_BIND_SERVICE")
        }
        _ => error.to_string(),
    };
    Failure::Runtime(anyhow::anyhow!("{field} = \"{address}\": {remedy}"))
}

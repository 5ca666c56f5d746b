//! What terminal and gateway share as processes.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// A peer that does not confirm our goodbye is not waited for.
const GOODBYE: Duration = Duration::from_secs(2);

/// Runs `main` on the async runtime.
pub fn block_on(main: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)?
        .block_on(main)
}

/// Prints a line for whoever started the daemon. Nobody may be listening any more: that
/// ends no daemon.
pub fn say(line: std::fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Resolves when the process is asked to stop, and says how: Ctrl-C, SIGTERM or SIGQUIT.
///
/// SIGUSR1 and SIGUSR2 mean nothing here and end nothing.
pub async fn stop_signal() -> &'static str {
    let stream = |kind| signal(kind).expect("handlers for signals can be set");
    let mut interrupt = stream(SignalKind::interrupt());
    let mut terminate = stream(SignalKind::terminate());
    let mut quit = stream(SignalKind::quit());
    let mut others = [
        stream(SignalKind::user_defined1()),
        stream(SignalKind::user_defined2()),
    ];
    loop {
        let [first, second] = &mut others;
        tokio::select! {
            _ = interrupt.recv() => return "SIGINT",
            _ = terminate.recv() => return "SIGTERM",
            _ = quit.recv() => return "SIGQUIT",
            _ = first.recv() => tracing::info!("SIGUSR1 means nothing here"),
            _ = second.recv() => tracing::info!("SIGUSR2 means nothing here"),
        }
    }
}

/// Calls for SIGHUP, from now on.
pub fn reload_signal() -> tokio::signal::unix::Signal {
    signal(SignalKind::hangup()).expect("a handler for SIGHUP can be set")
}

/// Waits for a goodbye, but not for ever.
pub async fn patiently(goodbye: impl Future<Output = ()>) {
    // Running out of patience is the expected end when the link is down.
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
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

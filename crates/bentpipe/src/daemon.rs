//! What terminal and gateway share as processes.

use std::io;
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

/// Resolves when the process is asked to stop: Ctrl-C or SIGTERM.
pub async fn stop_signal() {
    let stream = |kind| signal(kind).expect("a handler for SIGINT and SIGTERM can be set");
    let (mut interrupt, mut terminate) = (
        stream(SignalKind::interrupt()),
        stream(SignalKind::terminate()),
    );
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
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

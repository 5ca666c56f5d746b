//! Listening TCP sockets: whom they serve, for ever.

use std::io;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};

/// Wait after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Whether `stream` comes from this machine itself or one of `clients`.
pub(crate) fn is_welcome(stream: &TcpStream, clients: &[IpNet]) -> bool {
    stream.peer_addr().is_ok_and(|from| {
        let from = from.ip().to_canonical();
        from.is_loopback() || clients.iter().any(|network| network.contains(&from))
    })
}

/// Serves every connection that comes, for ever.
pub(crate) async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let flow = serve(stream);
                tokio::spawn(async move {
                    if let Err(error) = flow.await {
                        tracing::debug!(%from, "connection not taken: {error}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("no connection can be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

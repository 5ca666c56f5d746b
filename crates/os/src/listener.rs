//! Listening TCP sockets: how they come by their port, and whom they serve, for ever.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

/// How long a port may stay in use that a process which has just ended listened at. A program that it was
/// starting has its sockets until the program runs.
const PORT_PATIENCE: Duration = Duration::from_secs(1);
/// Wait between two attempts.
const BIND_PAUSE: Duration = Duration::from_millis(20);

/// Wait after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Listens at `address`; of an earlier process there it awaits the end for a second.
///
/// # Errors
/// What the system says; AddrInUse when somebody else has the port.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    once_free(async || TcpListener::bind(address).await).await
}

/// What `open` returns, which is tried again for a second where its port is in use.
pub(crate) async fn once_free<T>(open: impl AsyncFn() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + PORT_PATIENCE;
    loop {
        match open().await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                sleep(BIND_PAUSE).await;
            }
            opened => return opened,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn a_port_that_is_given_up_soon_is_awaited_and_no_other() {
        let theirs = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = theirs.local_addr().unwrap();
        let refused = bind(address).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        tokio::join!(
            async {
                sleep(PORT_PATIENCE / 5).await;
                drop(theirs);
            },
            async { bind(address).await.unwrap() },
        );
    }
}

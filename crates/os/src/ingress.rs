//! How applications' connections come to the terminal.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_tunnel::target::{Host, Target};
use bentpipe_tunnel::terminal::Terminal;
use fast_socks5::server::Socks5ServerProtocol;
use fast_socks5::util::target_addr::TargetAddr;
use fast_socks5::{ReplyError, Socks5Command};
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream};

use crate::tcp::TcpFlow;

/// A SOCKS client that has not said where to by then is let go.
const SOCKS_PATIENCE: Duration = Duration::from_secs(10);
/// Wait after a failed accept: out of descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Gives redirected connections (see [`crate::tproxy`]) to `terminal`, for ever.
pub async fn transparent(listener: TcpListener, terminal: Terminal) {
    accept(listener, move |stream| {
        let terminal = terminal.clone();
        async move {
            // TPROXY leaves the destination in place: it is this socket's own address.
            let target = Target::from(stream.local_addr()?);
            let client = stream.peer_addr()?.ip();
            let socket = TcpFlow::new(stream)?;
            terminal.carry_for(client, socket, target).await;
            Ok(())
        }
    })
    .await;
}

/// Serves SOCKS5 (RFC 1928), CONNECT only and without authentication, to `clients` and
/// this machine itself, for ever.
pub async fn socks5(listener: TcpListener, clients: Vec<IpNet>, terminal: Terminal) {
    accept(listener, move |stream| {
        let terminal = terminal.clone();
        let welcome = is_welcome(&stream, &clients);
        async move {
            if !welcome {
                return Err(io::Error::other("not among ingress.socks5.clients"));
            }
            let handshake = tokio::time::timeout(SOCKS_PATIENCE, negotiate(stream));
            let asked = handshake
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
            if let Some((stream, target)) = asked? {
                let client = stream.peer_addr()?.ip();
                let socket = TcpFlow::new(stream)?;
                terminal.carry_for(client, socket, target).await;
            }
            Ok(())
        }
    })
    .await;
}

/// Learns where a SOCKS client wants to go, and tells it to go ahead: the answer of
/// the origin is a satellite away, and its refusal will arrive as RST.
async fn negotiate(stream: TcpStream) -> io::Result<Option<(TcpStream, Target)>> {
    let bound = stream.local_addr()?;
    let protocol = Socks5ServerProtocol::accept_no_auth(stream)
        .await
        .map_err(io::Error::other)?;
    let (protocol, command, address) = protocol.read_command().await.map_err(io::Error::other)?;
    let target = match address {
        TargetAddr::Ip(address) if address.port() != 0 => Some(Target::from(address)),
        TargetAddr::Domain(name, port) if port != 0 => {
            Host::name(&name).map(|host| Target { host, port })
        }
        _ => None,
    };
    let refusal = match (&command, &target) {
        (Socks5Command::TCPConnect, Some(_)) => None,
        (Socks5Command::TCPConnect, None) => Some(ReplyError::AddressTypeNotSupported),
        _ => Some(ReplyError::CommandNotSupported),
    };
    if let Some(refusal) = refusal {
        protocol
            .reply_error(&refusal)
            .await
            .map_err(io::Error::other)?;
        return Ok(None);
    }
    let stream = protocol
        .reply_success(bound)
        .await
        .map_err(io::Error::other)?;
    Ok(target.map(|target| (stream, target)))
}

/// Opens a listener for [`socks5`].
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
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

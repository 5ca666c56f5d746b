//! SOCKS5 (RFC 1928): CONNECT, and UDP ASSOCIATE by [`super::socks5_udp`].

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_tunnel::wire::proxy_status::{ErrorKind, Refusal};
use fast_socks5::server::{Socks5ServerProtocol, states};
use fast_socks5::{ReplyError, Socks5Command};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::oneshot;

use super::users::Users;
use super::{Proxy, serve_clients, socks5_udp};
use crate::kernel_memory::KernelMemory;
use crate::tcp::TcpFlow;

/// A client that has not said where to by then is let go.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves `listener`'s clients, for ever.
pub async fn serve(listener: TcpListener, proxy: Proxy, memory: KernelMemory, terminal: Terminal) {
    serve_clients(listener, "ingress.socks5", proxy, move |stream, proxy| {
        let (memory, terminal) = (memory.clone(), terminal.clone());
        async move {
            let (client, bound) = (stream.peer_addr()?.ip(), stream.local_addr()?);
            let handshake = tokio::time::timeout(PATIENCE, negotiate(stream, proxy.users.as_ref()));
            let asked = handshake
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
            match asked? {
                Some(Asked::Connect(protocol, target)) if proxy.after_origin => {
                    let (told, heard) = oneshot::channel();
                    let (give, socket) = oneshot::channel();
                    let socket = async { socket.await.map_err(io::Error::other) };
                    let carried = terminal.carry_accepted(client, target, told, socket);
                    let answered = async {
                        // Nothing is heard when there is no place for another flow.
                        let heard = heard.await.unwrap_or_else(|_| Err(no_place()));
                        if let Some(stream) = answer(protocol, bound, heard).await? {
                            let _ = give.send(TcpFlow::new(stream)?.bounded(&memory)?);
                        }
                        io::Result::Ok(())
                    };
                    tokio::join!(carried, answered).1
                }
                Some(Asked::Connect(protocol, target)) => {
                    let stream = protocol.reply_success(bound).await;
                    let socket =
                        TcpFlow::new(stream.map_err(io::Error::other)?)?.bounded(&memory)?;
                    terminal.carry_for(client, socket, target).await;
                    Ok(())
                }
                Some(Asked::Associate(stream, relay)) => {
                    socks5_udp::serve(stream, relay, terminal).await
                }
                None => Ok(()),
            }
        }
    })
    .await;
}

type Commanded = Socks5ServerProtocol<TcpStream, states::CommandRead>;

/// What a SOCKS client has asked for.
enum Asked {
    /// A connection, which it has not been told of.
    Connect(Commanded, Target),
    /// Datagrams, by way of the socket, which it has been told.
    Associate(TcpStream, UdpSocket),
}

/// Learns what a SOCKS client wants.
async fn negotiate(stream: TcpStream, users: Option<&Users>) -> io::Result<Option<Asked>> {
    let bound = stream.local_addr()?;
    let protocol = match users {
        None => Socks5ServerProtocol::accept_no_auth(stream).await,
        Some(users) => {
            let admit = |name: String, password: String| users.admit(&name, &password);
            let accepted = Socks5ServerProtocol::accept_password_auth(stream, admit).await;
            accepted.map(|(protocol, _)| protocol)
        }
    }
    .map_err(io::Error::other)?;
    let (protocol, command, address) = protocol.read_command().await.map_err(io::Error::other)?;
    let relay = match command {
        Socks5Command::UDPAssociate => UdpSocket::bind((bound.ip(), 0)).await.map(Some),
        _ => Ok(None),
    };
    let refusal = match (command, socks5_udp::target(&address), relay) {
        (Socks5Command::TCPConnect, Some(target), _) => {
            return Ok(Some(Asked::Connect(protocol, target)));
        }
        // Where datagrams will come from may be said, and is learnt from the first.
        (Socks5Command::UDPAssociate, _, Ok(Some(relay))) => {
            let stream = protocol.reply_success(relay.local_addr()?).await;
            let stream = stream.map_err(io::Error::other)?;
            return Ok(Some(Asked::Associate(stream, relay)));
        }
        (Socks5Command::TCPConnect, None, _) => ReplyError::AddressTypeNotSupported,
        (Socks5Command::UDPAssociate, ..) => ReplyError::GeneralFailure,
        _ => ReplyError::CommandNotSupported,
    };
    let told = protocol.reply_error(&refusal).await;
    told.map_err(io::Error::other)?;
    Ok(None)
}

/// Tells a SOCKS client what the origin has answered; the connection, if that is to be used.
async fn answer(
    protocol: Commanded,
    bound: SocketAddr,
    heard: Result<(), Refusal>,
) -> io::Result<Option<TcpStream>> {
    let told = match heard {
        Ok(()) => protocol.reply_success(bound).await.map(Some),
        Err(refusal) => {
            let told = protocol.reply_error(&reply(refusal.kind)).await;
            told.map(|_| None)
        }
    };
    told.map_err(io::Error::other)
}

/// What SOCKS5 has for a refusal (RFC 1928, section 6). It has no reply for names that do not
/// resolve, nor for origins that do not answer: those are "host unreachable" and "TTL expired".
fn reply(kind: ErrorKind) -> ReplyError {
    match kind {
        ErrorKind::ConnectionRefused => ReplyError::ConnectionRefused,
        ErrorKind::DestinationIpProhibited => ReplyError::ConnectionNotAllowed,
        ErrorKind::DestinationIpUnroutable => ReplyError::NetworkUnreachable,
        ErrorKind::DnsError | ErrorKind::DestinationNotFound => ReplyError::HostUnreachable,
        ErrorKind::ConnectionTimeout | ErrorKind::DnsTimeout => ReplyError::TtlExpired,
        _ => ReplyError::GeneralFailure,
    }
}

fn no_place() -> Refusal {
    Refusal {
        kind: ErrorKind::ConnectionLimitReached,
        detail: "too many flows are open".into(),
    }
}

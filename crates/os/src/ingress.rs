//! How applications' connections come to the terminal.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::Terminal;
use bentpipe_tunnel::terminal::dns::Resolver;
use fast_socks5::server::Socks5ServerProtocol;
use fast_socks5::{ReplyError, Socks5Command};
use ipnet::IpNet;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::listener::{accept, is_welcome};
use crate::tcp::TcpFlow;
use crate::users::Users;
use crate::{dns, socks5_udp};

/// A SOCKS client that has not said where to by then is let go.
const SOCKS_PATIENCE: Duration = Duration::from_secs(10);
/// Gives redirected connections (see [`crate::tproxy`]) to `terminal`, for ever; `by_name` those whose
/// client has asked for the name. Questions of DNS go to `resolver`, if there is one.
pub async fn transparent(
    listener: TcpListener,
    by_name: bool,
    resolver: Option<Resolver>,
    terminal: Terminal,
) {
    accept(listener, move |stream| {
        let (terminal, resolver) = (terminal.clone(), resolver.clone());
        async move {
            // TPROXY leaves the destination in place: it is this socket's own address.
            let mut target = Target::from(stream.local_addr()?);
            let client = stream.peer_addr()?.ip();
            if let Some(resolver) = resolver
                && target.port == dns::PORT
            {
                return dns::serve_stream(stream, resolver).await;
            }
            if by_name {
                target = terminal.named(client, target);
            }
            let socket = TcpFlow::new(stream)?;
            terminal.carry_for(client, socket, target).await;
            Ok(())
        }
    })
    .await;
}

/// Serves SOCKS5 (RFC 1928), CONNECT and UDP ASSOCIATE, to `clients` and
/// this machine itself, for ever.
///
/// With `users`, only to those of them who say their name and password (RFC 1929).
pub async fn socks5(
    listener: TcpListener,
    clients: Vec<IpNet>,
    users: Option<Users>,
    terminal: Terminal,
) {
    accept(listener, move |stream| {
        let terminal = terminal.clone();
        let welcome = is_welcome(&stream, &clients);
        let users = users.clone();
        async move {
            if !welcome {
                return Err(io::Error::other("not among ingress.socks5.clients"));
            }
            let handshake = tokio::time::timeout(SOCKS_PATIENCE, negotiate(stream, users.as_ref()));
            let asked = handshake
                .await
                .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
            match asked? {
                Some(Asked::Connect(stream, target)) => {
                    let client = stream.peer_addr()?.ip();
                    let socket = TcpFlow::new(stream)?;
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

/// What a SOCKS client has asked for, and been told to go ahead with.
enum Asked {
    /// A connection.
    Connect(TcpStream, Target),
    /// Datagrams, by way of the socket.
    Associate(TcpStream, UdpSocket),
}

/// Learns where a SOCKS client wants to go, and tells it to go ahead: the answer of
/// the origin is a satellite away, and its refusal will arrive as RST.
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
            let stream = protocol.reply_success(bound).await;
            let stream = stream.map_err(io::Error::other)?;
            return Ok(Some(Asked::Connect(stream, target)));
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

/// Opens a listener for [`socks5`].
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

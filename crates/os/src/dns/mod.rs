//! DNS for applications: questions over UDP, TCP (RFC 1035, RFC 7766), TLS ([`tls`]) and HTTPS
//! ([`https`]) at addresses of this machine, replies from the terminal's resolver.

pub mod tls;
pub mod https;

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bentpipe_tunnel::marking::Marking;
use bentpipe_tunnel::sockets::DatagramSocket as _;
use bentpipe_tunnel::terminal::dns::{Over, Resolver};
use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, mpsc};

use crate::listener::{accept, bind, is_welcome};
use crate::udp::UdpFlow;

/// A socket of an application's own is given so long for the next question: most ask once.
const NEXT: Duration = Duration::from_secs(1);
/// Where questions are sent to.
pub const PORT: u16 = 53;
/// Datagrams whose replies are being found; more are dropped, and their senders ask again.
const MAX_DATAGRAMS: usize = 2048;
/// The longest question that is read, bytes: names are short, and options few.
const MAX_QUESTION: usize = 4096;
/// TCP connections at the same time.
const MAX_CONNECTIONS: usize = 256;
/// Questions of one connection whose replies are being found.
const MAX_OF_ONE_CONNECTION: usize = 32;
/// A connection on which nothing is asked for so long is closed (RFC 7766, section 6.2.3), and
/// so is one that does not take a reply.
const IDLE: Duration = Duration::from_secs(10);

/// The sockets of one address.
#[derive(Debug)]
pub struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

/// Opens the sockets of `address`.
pub async fn listen(address: SocketAddr) -> io::Result<Sockets> {
    let tcp = bind(address).await?;
    // Also where the address has port 0.
    let udp = UdpSocket::bind(tcp.local_addr()?).await?;
    Ok(Sockets { udp, tcp })
}

/// Answers `clients` and this machine itself, for ever.
pub async fn serve(sockets: Sockets, clients: Vec<IpNet>, resolver: Resolver) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let streams = accept(sockets.tcp, |stream| {
        let (resolver, places) = (resolver.clone(), places.clone());
        let welcome = is_welcome(&stream, &clients);
        async move {
            let _place = place(welcome, &places)?;
            serve_stream(stream, resolver).await
        }
    });
    tokio::join!(datagrams(sockets.udp, &clients, &resolver), streams);
}

/// A connection's place among those that ask, if its client may have one.
fn place(welcome: bool, places: &Semaphore) -> io::Result<SemaphorePermit<'_>> {
    if !welcome {
        return Err(io::Error::other("not among dns.clients"));
    }
    places
        .try_acquire()
        .map_err(|_| io::Error::other("too many connections ask already"))
}

async fn datagrams(socket: UdpSocket, clients: &[IpNet], resolver: &Resolver) {
    let socket = Arc::new(socket);
    let places = Arc::new(Semaphore::new(MAX_DATAGRAMS));
    let mut question = [0; MAX_QUESTION];
    loop {
        // An error is of a reply that did not arrive; the next question may be there.
        let Ok((length, from)) = socket.recv_from(&mut question).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let host = from.ip().to_canonical();
        if !host.is_loopback() && !clients.iter().any(|network| network.contains(&host)) {
            continue;
        }
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let question = question[..length].to_vec();
        let (socket, resolver) = (socket.clone(), resolver.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Some(reply) = resolver.reply(host, &question, Over::Udp).await
                && let Err(error) = socket.send_to(&reply, from).await
            {
                tracing::debug!(%from, "reply not sent: {error}");
            }
        });
    }
}

/// Answers the questions that come to `socket`, which is connected to `host`, until there are no more
/// for a while.
pub async fn serve_datagrams(socket: UdpFlow, host: IpAddr, resolver: Resolver) {
    let socket = Arc::new(socket);
    let places = Arc::new(Semaphore::new(MAX_OF_ONE_CONNECTION));
    // A socket wakes only the last of those who wait to send on it.
    let turn = Arc::new(Mutex::new(()));
    let mut room = [0; MAX_QUESTION];
    loop {
        let mut question = ReadBuf::new(&mut room);
        let received = poll_fn(|context| socket.poll_receive(context, &mut question));
        // An error is of a reply that did not arrive.
        let Ok(Ok(_)) = tokio::time::timeout(NEXT, received).await else {
            return;
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let question = question.filled().to_vec();
        let (socket, resolver, turn) = (socket.clone(), resolver.clone(), turn.clone());
        tokio::spawn(async move {
            let _place = place;
            let Some(reply) = resolver.reply(host, &question, Over::Udp).await else {
                return;
            };
            let _turn = turn.lock().await;
            let sent = poll_fn(|context| socket.poll_send(context, &reply, Marking::default()));
            if let Err(error) = sent.await {
                tracing::debug!(%host, "reply not sent: {error}");
            }
        });
    }
}

/// Answers the questions on `stream`, each as soon as its answer is there, until it is closed.
pub async fn serve_stream(stream: TcpStream, resolver: Resolver) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let host = stream.peer_addr()?.ip().to_canonical();
    let (reader, writer) = stream.into_split();
    reply(reader, writer, host, resolver).await
}

/// Answers `host`'s questions, each as soon as its answer is there, until there are no more.
async fn reply(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
    host: IpAddr,
    resolver: Resolver,
) -> io::Result<()> {
    let (replied, mut replies) = mpsc::channel::<Vec<u8>>(MAX_OF_ONE_CONNECTION);
    let places = Arc::new(Semaphore::new(MAX_OF_ONE_CONNECTION));
    let reading = async move {
        loop {
            let place = places.clone().acquire_owned().await;
            let mut question = Vec::new();
            let read = async {
                let length = reader.read_u16().await?;
                if usize::from(length) > MAX_QUESTION {
                    return Err(io::Error::other("a question that is too long"));
                }
                question.resize(length.into(), 0);
                reader.read_exact(&mut question).await
            };
            match tokio::time::timeout(IDLE, read).await {
                Ok(Ok(_)) => {}
                // Closed, or idle.
                Ok(Err(_)) | Err(_) => return,
            }
            let (resolver, replied) = (resolver.clone(), replied.clone());
            tokio::spawn(async move {
                let _place = place;
                if let Some(reply) = resolver.reply(host, &question, Over::Stream).await {
                    // Nobody may be there any more to take it.
                    let _ = replied.send(reply).await;
                }
            });
        }
    };
    let writing = async {
        while let Some(reply) = replies.recv().await {
            let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
            let framed = [&length.to_be_bytes()[..], &reply].concat();
            tokio::time::timeout(IDLE, writer.write_all(&framed)).await??;
        }
        writer.shutdown().await
    };
    // Replies still to come are written after the last question was read.
    let ((), written) = tokio::join!(reading, writing);
    written
}

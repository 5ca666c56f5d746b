//! The local side of a flow of datagrams on a UDP socket of the machine.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::task::{Context, Poll, ready};

use bentpipe_tunnel::marking::Marking;
use bentpipe_tunnel::sockets::DatagramSocket;
use futures_util::task::AtomicWaker;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{Interest, ReadBuf};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use crate::{datagram, icmp, socket_option};

/// What the kernel holds of a flow that is not read, bytes: 80 ms at 20 Mbit/s.
const RECEIVE_BUFFER: usize = 208 * 1024;

/// A payload as it was marked: one pointer, because every flow has a channel that begins with room for 32.
pub(crate) type Datagram = Box<(Vec<u8>, Marking)>;

/// A UDP socket that is connected to one peer.
#[derive(Debug)]
pub struct UdpFlow {
    socket: UdpSocket,
    ipv6: bool,
    /// What came before the socket was there.
    earlier: std::sync::Mutex<Option<mpsc::Receiver<Datagram>>>,
    /// The peer is an application that takes this end for whom it talks to, and can be told by ICMP.
    transparent: bool,
    whole: Whole,
}

/// What is known of datagrams that must not be cut.
#[derive(Debug, Default)]
struct Whole {
    /// The kernel cuts none now.
    only: AtomicBool,
    /// One was too long: what would have reached the peer, bytes; 0 when that was told.
    reaching: AtomicU16,
    waiting: AtomicWaker,
}

impl UdpFlow {
    /// A socket of any local address that is connected to `peer`.
    pub fn to(peer: SocketAddr) -> io::Result<Self> {
        let socket = open(peer)?;
        socket.connect(&peer.into())?;
        Self::new(socket, peer.is_ipv6(), None)
    }

    /// A socket that is connected to the application at `client` and answers from
    /// `destination`, which is another machine's address (ip(7), IP_TRANSPARENT). Datagrams
    /// that the kernel has delivered elsewhere before are in `earlier`.
    pub fn transparent(
        client: SocketAddr,
        destination: SocketAddr,
        earlier: mpsc::Receiver<Datagram>,
    ) -> io::Result<Self> {
        let socket = open(destination)?;
        match destination {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
            SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
        }
        datagram::want_dont_fragment(&socket, destination.is_ipv6());
        // Other clients have flows to the same destination.
        socket.set_reuse_address(true)?;
        socket.bind(&destination.into())?;
        socket.connect(&client.into())?;
        Self::new(socket, destination.is_ipv6(), Some(earlier))
    }

    fn new(
        socket: Socket,
        ipv6: bool,
        earlier: Option<mpsc::Receiver<Datagram>>,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
            ipv6,
            transparent: earlier.is_some(),
            earlier: earlier.into(),
            whole: Whole::default(),
        })
    }
}

fn open(towards: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(towards);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    if towards.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    datagram::want_markings(&socket, towards.is_ipv6());
    // The kernel grants what net.core.rmem_max allows; that is never an error.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    Ok(socket)
}

impl DatagramSocket for UdpFlow {
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<Marking>> {
        if let Some(earlier) = self.poll_earlier(context) {
            let (datagram, marking) = *earlier;
            let length = datagram.len().min(buffer.remaining());
            buffer.put_slice(&datagram[..length]);
            return Poll::Ready(Ok(marking));
        }
        loop {
            ready!(self.socket.poll_recv_ready(context))?;
            let room = buffer.initialize_unfilled();
            let received = self
                .socket
                .try_io(Interest::READABLE, || datagram::receive(&self.socket, room));
            match received {
                Ok(received) => {
                    buffer.advance(received.length);
                    return Poll::Ready(Ok(received.marking));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if is_of_one_datagram(&error) => self.note(&error),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        datagram: &[u8],
        marking: Marking,
    ) -> Poll<io::Result<()>> {
        self.let_fragment(!marking.dont_fragment)?;
        loop {
            ready!(self.socket.poll_send_ready(context))?;
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                datagram::send(&self.socket, datagram, None, (marking.ecn, self.ipv6))
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if is_of_one_datagram(&error) => {
                    tracing::debug!("datagram of {} bytes dropped: {error}", datagram.len());
                    self.note(&error);
                    return Poll::Ready(Ok(()));
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    async fn failure(&self) -> io::Error {
        loop {
            // An ICMP error makes a socket neither readable nor writable.
            if let Err(error) = self.socket.ready(Interest::ERROR).await {
                return error;
            }
            match self.socket.take_error() {
                Ok(Some(error)) if !is_of_one_datagram(&error) => return error,
                Err(error) => return error,
                // Somebody else has it, or it says nothing of the next datagram.
                Ok(error) => {
                    error.iter().for_each(|error| self.note(error));
                    let _ = self.socket.try_io(Interest::ERROR, || {
                        Err::<(), _>(io::ErrorKind::WouldBlock.into())
                    });
                }
            }
        }
    }

    fn poll_too_long(&self, context: &mut Context<'_>) -> Poll<u16> {
        self.whole.waiting.register(context.waker());
        match self.whole.reaching.swap(0, Ordering::AcqRel) {
            0 => Poll::Pending,
            mtu => Poll::Ready(mtu),
        }
    }

    fn tell_path_mtu(&self, mtu: u16) {
        let (Ok(client), Ok(destination)) = (self.socket.peer_addr(), self.socket.local_addr())
        else {
            return;
        };
        if !self.transparent {
            return;
        }
        match icmp::tell_too_big(client, destination, mtu) {
            Ok(()) => tracing::debug!(%client, %destination, mtu, "packet too big"),
            Err(error) => tracing::debug!(%client, %destination, "not told by ICMP: {error}"),
        }
    }
}

/// Whether an error says nothing of the datagrams that follow: too long for the path or for
/// the device, no room in its queue, or forbidden by a local rule. Any router would drop it.
fn is_of_one_datagram(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMSGSIZE | libc::ENOBUFS | libc::EPERM)
    )
}

impl UdpFlow {
    fn poll_earlier(&self, context: &mut Context<'_>) -> Option<Datagram> {
        let mut earlier = self.earlier.lock().unwrap_or_else(|e| e.into_inner());
        match earlier.as_mut()?.poll_recv(context) {
            Poll::Ready(Some(datagram)) => Some(datagram),
            Poll::Ready(None) => {
                *earlier = None;
                None
            }
            Poll::Pending => None,
        }
    }

    /// Whether the kernel may cut what is sent next: by default it does, and finds out how much
    /// the path carries.
    fn let_fragment(&self, may: bool) -> io::Result<()> {
        if self.whole.only.swap(!may, Ordering::AcqRel) != may {
            return Ok(());
        }
        let (level, name) = match self.ipv6 {
            true => (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER),
            false => (libc::SOL_IP, libc::IP_MTU_DISCOVER),
        };
        let how = match may {
            true => libc::IP_PMTUDISC_WANT,
            false => libc::IP_PMTUDISC_DO,
        };
        socket_option::set(&self.socket, level, name, how)
    }

    /// Notes that a datagram which must not be cut was too long, if `error` says so.
    fn note(&self, error: &io::Error) {
        if error.raw_os_error() != Some(libc::EMSGSIZE) || !self.whole.only.load(Ordering::Acquire)
        {
            return;
        }
        let (level, name) = match self.ipv6 {
            true => (libc::SOL_IPV6, libc::IPV6_MTU),
            false => (libc::SOL_IP, libc::IP_MTU),
        };
        let mtu = socket_option::get(&self.socket, level, name);
        if let Some(mtu) = mtu.ok().and_then(|mtu| u16::try_from(mtu).ok()) {
            self.whole.reaching.store(mtu, Ordering::Release);
            self.whole.waiting.wake();
        }
    }
}

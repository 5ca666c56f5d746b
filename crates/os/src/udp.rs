//! The local side of a flow of datagrams on a UDP socket of the machine.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::task::{Context, Poll, ready};

use bentpipe_tunnel::marking::{Marked, Marking};
use bentpipe_tunnel::sockets::DatagramSocket;
use futures_util::task::AtomicWaker;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{Interest, ReadBuf};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use crate::datagram::{self, Sent};
use crate::{icmp, socket_option};

/// What the kernel holds of a flow that is not read, bytes: 80 ms at 20 Mbit/s.
const RECEIVE_BUFFER: usize = 208 * 1024;

/// Datagrams that the kernel takes at a time, and their bytes (udp(7), UDP_SEGMENT).
const SEGMENTS: usize = 64;
const LONGEST: usize = 65_507;

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
    /// The kernel has refused to take several at a time.
    one_by_one: AtomicBool,
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
            one_by_one: AtomicBool::new(false),
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
        (self.poll_send_parts(context, &[IoSlice::new(datagram)], marking, None)).map_ok(|_| ())
    }

    fn poll_send_several(
        &self,
        context: &mut Context<'_>,
        datagrams: &[Marked],
    ) -> Poll<io::Result<usize>> {
        let Some((marking, first)) = datagrams.first() else {
            return Poll::Ready(Ok(0));
        };
        let together = alike(datagrams);
        if together.len() == 1 || self.one_by_one.load(Ordering::Relaxed) {
            return (self.poll_send(context, first, *marking)).map_ok(|()| 1);
        }
        let mut parts = [IoSlice::new(&[]); SEGMENTS];
        for (part, (_, payload)) in parts.iter_mut().zip(together) {
            *part = IoSlice::new(payload);
        }
        let segment = u16::try_from(first.len()).ok();
        self.poll_send_parts(context, &parts[..together.len()], *marking, segment)
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

/// Whether an error says that the kernel does not cut what is sent into these datagrams: each is too long for
/// the path, or the device is not one for it.
fn is_of_several(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP)
    )
}

/// Those at the beginning of `datagrams` that can leave in one step: marked alike, and of equal length but
/// for the last.
fn alike(datagrams: &[Marked]) -> &[Marked] {
    let Some((marking, first)) = datagrams.first() else {
        return &[];
    };
    let most = SEGMENTS.min(LONGEST / first.len().max(1));
    let mut count = 1;
    while count < most.min(datagrams.len()) {
        let (before, (other, payload)) = (&datagrams[count - 1].1, &datagrams[count]);
        let fits = (1..=first.len()).contains(&payload.len()) && before.len() == first.len();
        if other != marking || !fits {
            break;
        }
        count += 1;
    }
    &datagrams[..count]
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
    /// Sends one datagram, or several of the length `segment` but for the last; how many.
    fn poll_send_parts(
        &self,
        context: &mut Context<'_>,
        mut parts: &[IoSlice<'_>],
        marking: Marking,
        segment: Option<u16>,
    ) -> Poll<io::Result<usize>> {
        self.let_fragment(!marking.dont_fragment)?;
        let mut how = Sent {
            ecn: marking.ecn,
            ipv6: self.ipv6,
            segment,
        };
        loop {
            ready!(self.socket.poll_send_ready(context))?;
            let sent = self.socket.try_io(Interest::WRITABLE, || {
                datagram::send(&self.socket, parts, None, how)
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if how.segment.is_some() && is_of_several(&error) => {
                    self.one_by_one.store(true, Ordering::Relaxed);
                    (parts, how.segment) = (&parts[..1], None);
                }
                Err(error) if is_of_one_datagram(&error) => {
                    tracing::debug!("datagram of {} bytes dropped: {error}", parts[0].len());
                    self.note(&error);
                    return Poll::Ready(Ok(1));
                }
                sent => return Poll::Ready(sent.map(|()| parts.len())),
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::Bytes;

    use super::*;

    #[tokio::test]
    async fn datagrams_that_are_alike_leave_at_once_and_arrive_each_by_itself() {
        let peer = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let flow = UdpFlow::to(peer.local_addr().unwrap()).unwrap();
        let lengths = [1200, 1200, 1200, 50, 1200, 1400, 0, 0, 30, 30];
        let ecn = noq_proto::EcnCodepoint::from_bits(2);
        let marking = |number| Marking {
            ecn: ecn.filter(|_| number < 9),
            dont_fragment: false,
        };
        let datagrams: Vec<_> = (0..)
            .zip(lengths)
            .map(|(number, length)| (marking(number), Bytes::from(vec![number; length])))
            .collect();
        let mut left = &datagrams[..];
        let mut steps = Vec::new();
        while !left.is_empty() {
            let sent = poll_fn(|context| flow.poll_send_several(context, left));
            let sent = sent.await.unwrap();
            steps.push(sent);
            left = &left[sent..];
        }
        assert_eq!(steps, [4, 1, 1, 1, 1, 1, 1]);
        let mut buffer = [0; 2000];
        for (_, sent) in &datagrams {
            let length = peer.recv(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..length], &sent[..]);
        }
    }
}

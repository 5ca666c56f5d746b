//! The UDP socket below QUIC, with room for a satellite's flight and a count.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bentpipe_quic::batches::BatchingSocket;
use noq::{AsyncUdpSocket, Runtime as _, TokioRuntime, UdpSender};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// What the kernel may hold while this process does not run: 100 ms at 250 Mbit/s.
const SOCKET_BUFFER: usize = 4 << 20;

/// Counts the datagrams that have come in.
#[derive(Debug, Clone, Default)]
pub struct Received(Arc<AtomicU64>);

impl Received {
    /// Datagrams so far.
    pub fn datagrams(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Opens a UDP socket at `address` for QUIC. `serves`: many peers arrive at it, and each
/// must be answered from the address that it has sent to.
///
/// A socket that only goes out leaves its own address to the routing table and does not
/// say at which one datagrams arrived: the QUIC library takes one that it did not choose
/// for another path, and sends no CONNECTION_CLOSE there. A gateway with a wrong key
/// would never be told why the terminal went away.
pub fn bind(address: SocketAddr, serves: bool) -> io::Result<(Box<dyn AsyncUdpSocket>, Received)> {
    bind_marked(address, serves, None)
}

/// As [`bind`], with a mark for routing rules. Without CAP_NET_ADMIN it goes without.
pub fn bind_marked(
    address: SocketAddr,
    serves: bool,
    mark: Option<u32>,
) -> io::Result<(Box<dyn AsyncUdpSocket>, Received)> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::DGRAM,
        Some(Protocol::UDP),
    )?;
    if address.is_ipv6() {
        // IPv4 peers reach a wildcard IPv6 socket too, where the system has both.
        let _ = socket.set_only_v6(false);
    }
    if let Some(mark) = mark
        && let Err(error) = socket.set_mark(mark)
    {
        tracing::warn!("the socket of sessions cannot be marked: {error}");
    }
    socket.bind(&address.into())?;
    grow_buffers(&socket);
    let received = Received::default();
    let inner = TokioRuntime.wrap_udp_socket(socket.into())?;
    let inner = Box::new(BatchingSocket(inner));
    Ok((
        Box::new(Counting {
            inner,
            serves,
            received: received.clone(),
        }),
        received,
    ))
}

fn grow_buffers(socket: &Socket) {
    let socket = SockRef::from(socket);
    // The kernel grants what net.core.rmem_max allows; that is never an error.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
    match socket.recv_buffer_size() {
        // The kernel doubles what it grants (socket(7)).
        Ok(granted) if granted / 2 >= SOCKET_BUFFER => {}
        Ok(granted) => tracing::info!(
            "UDP receive buffer is {} KiB of {} KiB; bursts may be lost before they are read. To change: sysctl net.core.rmem_max={SOCKET_BUFFER}",
            granted / 2 / 1024,
            SOCKET_BUFFER / 1024,
        ),
        Err(_) => {}
    }
}

#[derive(Debug)]
struct Counting {
    inner: Box<dyn AsyncUdpSocket>,
    serves: bool,
    received: Received,
}

impl AsyncUdpSocket for Counting {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        self.inner.create_sender()
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [io::IoSliceMut<'_>],
        meta: &mut [noq::udp::RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(self.inner.poll_recv(context, buffers, meta))?;
        if !self.serves {
            for datagram in &mut meta[..count] {
                datagram.dst_ip = None;
            }
        }
        // One entry may hold several datagrams of one length (GRO).
        let datagrams = meta[..count]
            .iter()
            .map(|m| m.len.div_ceil(m.stride.max(1)))
            .sum::<usize>();
        self.received
            .0
            .fetch_add(datagrams as u64, Ordering::Relaxed);
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_receive_segments(&self) -> std::num::NonZeroUsize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

//! The UDP socket below QUIC, with room for a satellite's flight and a count.

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bentpipe_quic::batches::Batching;
use bentpipe_quic::layer::Layer;
use noq::udp::RecvMeta;
use noq::{AsyncUdpSocket, Runtime as _};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::quic_runtime::SystemRuntime;

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
    let socket = SystemRuntime.wrap_udp_socket(socket.into())?;
    let arrivals = Arrivals {
        serves,
        received: received.clone(),
    };
    Ok((arrivals.over(Batching.over(socket)), received))
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

/// Over a socket whose datagrams are counted as they arrive.
#[derive(Debug)]
struct Arrivals {
    serves: bool,
    received: Received,
}

impl Layer for Arrivals {
    fn on_received(&mut self, _buffers: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) {
        let mut datagrams = 0;
        for meta in meta {
            if !self.serves {
                meta.dst_ip = None;
            }
            // One entry may hold several datagrams of one length (GRO).
            datagrams += meta.len.div_ceil(meta.stride.max(1)) as u64;
        }
        self.received.0.fetch_add(datagrams, Ordering::Relaxed);
    }
}

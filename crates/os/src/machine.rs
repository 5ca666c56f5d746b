//! The machine as the tunnel's dialler and resolver.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_tunnel::sockets::{Dial, Resolve};
use bentpipe_units::Bytes;
use hickory_resolver::proto::op::Message;
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use crate::kernel_memory::KernelMemory;
use crate::own_addresses::OwnAddresses;
use crate::resolver::Resolver;
use crate::socket_option;
use crate::tcp::{self, TcpFlow};
use crate::udp::UdpFlow;

/// What an origin may send before the gateway has read any of it: 100 Mbit/s at 80 ms.
const ORIGIN_WINDOW: libc::c_int = 1 << 20;

/// Dials with the machine's TCP and asks the machine's name servers. Clones share memory.
#[derive(Debug, Clone)]
pub struct Machine {
    resolver: Resolver,
    memory: KernelMemory,
    own: OwnAddresses,
}

impl Machine {
    /// A dialler whose connections may hold half of `memory` in the kernel.
    pub fn new(memory: Bytes) -> Self {
        Self {
            resolver: Resolver::default(),
            memory: KernelMemory::beside(memory),
            own: OwnAddresses::default(),
        }
    }

    /// The same, whose questions of DNS carry `mark`, for routing rules.
    pub fn marked(memory: Bytes, mark: Option<u32>) -> Self {
        Self {
            resolver: Resolver::marked(mark),
            ..Self::new(memory)
        }
    }
}

impl Resolve for Machine {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.resolver.resolve(host).await
    }

    async fn query(&self, question: Message) -> io::Result<Message> {
        self.resolver.query(question).await
    }
}

impl Dial for Machine {
    type Socket = TcpFlow;
    type Datagrams = UdpFlow;

    async fn dial_udp(&self, address: SocketAddr) -> io::Result<UdpFlow> {
        UdpFlow::to(address)
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<TcpFlow> {
        self.connect(socket(address)?, address).await
    }

    async fn dial_from(&self, source: IpAddr, address: SocketAddr) -> io::Result<TcpFlow> {
        let socket = socket(address)?;
        // The port is chosen when the destination is known, so that each serves many.
        socket_option::set(&socket, libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        socket.bind(SocketAddr::new(source, 0))?;
        self.connect(socket, address).await
    }

    fn own_addresses(&self) -> io::Result<Arc<[IpAddr]>> {
        self.own.now()
    }
}

/// The addresses of the interface of that name; none if there is none.
pub fn addresses_of(interface: &str) -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let named = interfaces.iter().filter(|found| found.name == interface);
    named.map(if_addrs::Interface::ip).collect()
}

/// A socket for connections to `address`.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }
}

impl Machine {
    async fn connect(&self, socket: TcpSocket, address: SocketAddr) -> io::Result<TcpFlow> {
        let lent = self.memory.lend();
        tcp::prepare(SockRef::from(&socket))?;
        lent.bound(SockRef::from(&socket))?;
        let stream = socket.connect(address).await?;
        if lent.is_tuned() {
            open_window(&stream);
        }
        Ok(TcpFlow::prepared(stream).lent(lent))
    }
}

/// Starts the receive window at [`ORIGIN_WINDOW`] instead of 64 KiB.
///
/// Linux grows it while the reader keeps up, and judges that when the first packet of a
/// burst is read: the rest of the burst then counts as not kept up with. On a path of
/// tens of milliseconds, where packets come in bursts, the window can stay at 64 KiB for
/// a whole download. Raising the low-water mark makes the kernel raise the buffer
/// (tcp_set_rcvlowat in net/ipv4/tcp.c), without privileges, without the ceiling of
/// net.core.rmem_max, and without ending its own growth as SO_RCVBUF would.
fn open_window(stream: &TcpStream) {
    for mark in [ORIGIN_WINDOW, 1] {
        if let Err(error) = socket_option::set(stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, mark) {
            // It goes without, only slower.
            tracing::debug!("SO_RCVLOWAT: {error}");
        }
    }
}

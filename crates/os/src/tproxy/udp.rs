//! The UDP listeners of transparent ingress, and the flows that begin there.
//!
//! The first datagram of a pair of peers comes to a listener, which is told where it was
//! sent to (ip(7), IP_RECVORIGDSTADDR). The flow then has a socket of its own, bound to that
//! destination and connected to the application, and the kernel delivers what follows
//! there (nft_tproxy looks for connected sockets first): the listener sees no more of it.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::dns::Resolver;
use bentpipe_tunnel::terminal::quic_choice::HTTPS;
use bentpipe_tunnel::terminal::{Terminal, Unreachable};
use socket2::{Domain, Protocol, SockAddr, SockAddrStorage, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};

use super::TransparentError;
use crate::udp::UdpFlow;
use crate::{dns, icmp, socket_option};

/// What the kernel holds of first datagrams that have not been read, bytes.
const RECEIVE_BUFFER: usize = 1 << 20;
/// Applications' sockets that ask the resolver at the same time.
const MAX_ASKING: usize = 1024;
/// Datagrams that a flow is given which came to the listener before it had its socket.
const EARLIER: usize = 16;
/// The longest UDP payload over IPv6, bytes.
const LONGEST: usize = 65_527;

/// Opens a listener at `address` of loopback.
pub(super) fn listen(address: SocketAddr) -> Result<UdpSocket, TransparentError> {
    let open = || -> io::Result<UdpSocket> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
            socket.set_ip_transparent_v6(true)?;
            socket_option::set(&socket, libc::SOL_IPV6, libc::IPV6_RECVORIGDSTADDR, 1)?;
        } else {
            socket.set_ip_transparent_v4(true)?;
            socket_option::set(&socket, libc::SOL_IP, libc::IP_RECVORIGDSTADDR, 1)?;
        }
        // The kernel grants what net.core.rmem_max allows; that is never an error.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        socket.bind(&address.into())?;
        UdpSocket::from_std(socket.into())
    };
    open().map_err(|source| TransparentError::Listen { address, source })
}

/// What gives datagrams to a flow, by application and destination.
type Open = BTreeMap<(SocketAddr, SocketAddr), mpsc::Sender<Vec<u8>>>;

/// The flows whose first datagram came to a listener, by application and destination.
#[derive(Debug, Clone, Default)]
struct Flows(Arc<Mutex<Open>>);

impl Flows {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the flows that begin at `listener` to `terminal`, for ever; questions of DNS to
/// `resolver`, if there is one.
pub async fn carry(listener: UdpSocket, resolver: Option<Resolver>, terminal: Terminal) {
    let to = Carriers {
        terminal,
        resolver,
        asking: Arc::new(Semaphore::new(MAX_ASKING)),
    };
    let flows = Flows::default();
    let mut buffer = vec![0; LONGEST];
    loop {
        let received = listener
            .async_io(Interest::READABLE, || receive(&listener, &mut buffer))
            .await;
        match received {
            Ok((length, client, destination)) => {
                begin(&flows, &to, client, destination, &buffer[..length]);
            }
            // An ICMP error about one of the answers, or a moment without memory.
            Err(error) => tracing::debug!("no datagram can be received: {error}"),
        }
    }
}

/// Who takes flows.
struct Carriers {
    terminal: Terminal,
    resolver: Option<Resolver>,
    /// Bounds the applications' sockets that ask the resolver.
    asking: Arc<Semaphore>,
}

fn begin(
    flows: &Flows,
    to: &Carriers,
    client: SocketAddr,
    destination: SocketAddr,
    datagram: &[u8],
) {
    let key = (client, destination);
    let mut open = flows.lock();
    if let Some(flow) = open.get(&key) {
        // The flow's socket came a moment later than this; a full one has enough.
        let _ = flow.try_send(datagram.to_vec());
        return;
    }
    if destination.port() == HTTPS
        && !(to.terminal.quic_choice()).admits(client.ip(), destination.ip())
    {
        match icmp::tell(client, destination, Unreachable::Port) {
            Ok(()) => return,
            // An application that is not told would wait for its own timeouts.
            Err(error) => tracing::debug!(%client, %destination, "QUIC not refused: {error}"),
        }
    }
    let resolver = to.resolver.as_ref();
    let resolver = resolver.filter(|_| destination.port() == dns::PORT);
    // Who is one too many asks again.
    let Some(place) = resolver.map_or(Some(None), |_| {
        to.asking.clone().try_acquire_owned().ok().map(Some)
    }) else {
        return;
    };
    let (give, earlier) = mpsc::channel(EARLIER);
    let socket = match UdpFlow::transparent(client, destination, earlier) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::debug!(%client, %destination, "datagram dropped: no socket: {error}");
            return;
        }
    };
    let _ = give.try_send(datagram.to_vec());
    open.insert(key, give);
    drop(open);
    let flows = flows.clone();
    if let Some(resolver) = resolver {
        let host = client.ip().to_canonical();
        let answering = dns::serve_datagrams(socket, host, resolver.clone());
        tokio::spawn(async move {
            answering.await;
            flows.lock().remove(&key);
            drop(place);
        });
        return;
    }
    let terminal = to.terminal.clone();
    tokio::spawn(async move {
        let target = Target::from(destination);
        let told = terminal.carry_udp_for(client.ip(), &socket, target).await;
        flows.lock().remove(&key);
        if let Some(what) = told
            && let Err(error) = icmp::tell(client, destination, what)
        {
            tracing::debug!(%client, %destination, "not told by ICMP: {error}");
        }
    });
}

/// Receives one datagram: its length, where it came from, and where it was sent to.
fn receive(listener: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr, SocketAddr)> {
    /// Room for one original destination of either family, aligned as cmsghdr is.
    #[repr(align(8))]
    struct Control([u8; 128]);
    let mut control = Control([0; 128]);
    let mut part = IoSliceMut::new(buffer);
    let mut name = SockAddrStorage::zeroed();
    // SAFETY: zero is a valid value of every field.
    #[expect(unsafe_code, reason = "no library reads IP_ORIGDSTADDR")]
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = name.size_of();
    message.msg_iov = (&raw mut part).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: the message points to memory that is writable for the length of the call;
    // IoSliceMut has the layout of iovec.
    #[expect(unsafe_code, reason = "no library reads IP_ORIGDSTADDR")]
    let received = unsafe { libc::recvmsg(listener.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let mut destination = None;
    // SAFETY: the kernel has filled the message's control part, which these walk as
    // cmsg(3) says; the address behind each header is copied out unaligned.
    #[expect(unsafe_code, reason = "no library reads IP_ORIGDSTADDR")]
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(found) = header.as_ref() {
            match (found.cmsg_level, found.cmsg_type) {
                (libc::SOL_IP, libc::IP_ORIGDSTADDR) => {
                    let address: libc::sockaddr_in = libc::CMSG_DATA(header)
                        .cast::<libc::sockaddr_in>()
                        .read_unaligned();
                    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                    destination = Some(SocketAddr::from((ip, u16::from_be(address.sin_port))));
                }
                (libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR) => {
                    let address: libc::sockaddr_in6 = libc::CMSG_DATA(header)
                        .cast::<libc::sockaddr_in6>()
                        .read_unaligned();
                    let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                    destination = Some(SocketAddr::from((ip, u16::from_be(address.sin6_port))));
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    // SAFETY: the kernel has written an address of this length.
    #[expect(unsafe_code, reason = "no library reads IP_ORIGDSTADDR")]
    let client = unsafe { SockAddr::new(name, message.msg_namelen) };
    match (client.as_socket(), destination) {
        (Some(client), Some(destination)) if client.port() != 0 && destination.port() != 0 => {
            Ok((length, client, destination))
        }
        _ => Err(io::Error::other("a datagram without its destination")),
    }
}

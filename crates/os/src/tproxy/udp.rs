//! The UDP listeners of transparent ingress, and the flows that begin there.
//!
//! The first datagram of a pair of peers comes to a listener, which is told where it was
//! sent to (ip(7), IP_RECVORIGDSTADDR). The flow then has a socket of its own, bound to that
//! destination and connected to the application, and the kernel delivers what follows
//! there (nft_tproxy looks for connected sockets first): the listener sees no more of it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_tunnel::target::HTTPS;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::dns::Resolver;
use bentpipe_tunnel::terminal::{Terminal, Unreachable};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::{Semaphore, mpsc};

use super::TransparentError;
use crate::datagram::{self, Received};
use crate::udp::{Datagram, UdpFlow};
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
        datagram::want_markings(&socket, address.is_ipv6());
        datagram::want_dont_fragment(&socket, address.is_ipv6());
        // The kernel grants what net.core.rmem_max allows; that is never an error.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        socket.bind(&address.into())?;
        UdpSocket::from_std(socket.into())
    };
    open().map_err(|source| TransparentError::Listen { address, source })
}

/// What gives datagrams to a flow, by application and destination.
type Open = BTreeMap<(SocketAddr, SocketAddr), mpsc::Sender<Datagram>>;

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
            .async_io(Interest::READABLE, || {
                datagram::receive(&listener, &mut buffer)
            })
            .await;
        match received {
            Ok(Received {
                length,
                from: Some(client),
                destination: Some(destination),
                marking,
            }) if client.port() != 0 && destination.port() != 0 => {
                let datagram = Box::new((buffer[..length].to_vec(), marking));
                begin(&flows, &to, client, destination, datagram);
            }
            Ok(_) => tracing::debug!("a datagram without its destination"),
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
    datagram: Datagram,
) {
    let key = (client, destination);
    let mut open = flows.lock();
    if let Some(flow) = open.get(&key) {
        // The flow's socket came a moment later than this; a full one has enough.
        let _ = flow.try_send(datagram);
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
    let _ = give.try_send(datagram);
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

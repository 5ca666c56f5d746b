//! UDP sockets in memory, and the links between them.
//!
//! Terminals stand at the far end of a path of links, gateways at the near end. Many
//! terminals may share a link; a queue that is full for one is full for all.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use bentpipe_link::scenario::Change;
use bentpipe_link::{Counters, Direction, Packet, Seeds};
use bentpipe_units::Time;
use noq::udp::{EcnCodepoint, RecvMeta, Transmit};
use noq::{AsyncUdpSocket, UdpSender};

use crate::clock::{Alarm, Clock};
use crate::plan::{LinkPlan, What};

/// IPv4 header (RFC 791) and UDP header (RFC 768).
pub const IP_UDP: usize = 28;
/// The largest IP packet that comes through: Ethernet's.
const MTU: usize = 1500;
/// What a socket holds that is not read, payload bytes, as the daemons ask of the kernel.
const SOCKET_BUFFER: usize = 4 << 20;

/// A graph of links with sockets at its ends. Clones are the same network.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    clock: Clock,
    segments: NonZeroUsize,
    state: Mutex<State>,
}

struct State {
    /// Forward and return direction of each link.
    edges: Vec<Edge>,
    sockets: Vec<Socket>,
    /// Which socket has an address.
    addresses: BTreeMap<SocketAddr, usize>,
    /// Datagrams to nobody, or too long.
    undeliverable: u64,
}

struct Edge {
    direction: Direction<Datagram>,
    alarm: Alarm,
    dark_until: Time,
    blacked_out: u64,
}

#[derive(Debug)]
struct Socket {
    address: SocketAddr,
    side: Side,
    inbox: VecDeque<Datagram>,
    held: usize,
    reader: Option<Waker>,
}

/// Where in the graph a socket is.
#[derive(Debug)]
enum Side {
    Gateway,
    /// The edges from the gateways here, and from here to them.
    Terminal {
        down: Arc<[usize]>,
        up: Arc<[usize]>,
    },
}

/// A UDP datagram on its way.
#[derive(Debug, Clone)]
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    payload: Vec<u8>,
    ecn: Option<EcnCodepoint>,
    route: Arc<[usize]>,
    /// How many edges of the route it has entered.
    hops: usize,
}

impl Packet for Datagram {
    fn ip_len(&self) -> usize {
        self.payload.len() + IP_UDP
    }

    fn flow(&self) -> u64 {
        // Ports and the low halves of the addresses tell our sockets apart.
        let number = |address: SocketAddr| match address {
            SocketAddr::V4(v4) => u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port()),
            SocketAddr::V6(v6) => {
                let [.., c, d] = v6.ip().segments();
                u64::from(c) << 32 | u64::from(d) << 16 | u64::from(v6.port())
            }
        };
        let mixed = (number(self.from) ^ number(self.to).rotate_left(24))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }

    fn mark_ce(&mut self) -> bool {
        let capable = self.ecn.is_some();
        if capable {
            self.ecn = Some(EcnCodepoint::Ce);
        }
        capable
    }

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }

    // The UDP checksum sees what is corrupted, and the datagram never reaches a socket.
}

impl Network {
    /// A network of `links`, in which everything random derives from `seed`. Sockets
    /// hand over up to `segments` datagrams at once (generic segmentation offload); each
    /// is a packet of its own on the links.
    pub fn new(clock: &Clock, links: &[LinkPlan], seed: u64, segments: NonZeroUsize) -> Self {
        Self(Arc::new_cyclic(|network: &Weak<Inner>| {
            let mut edges = Vec::new();
            for (number, link) in (0..).zip(links) {
                let seeds = Seeds::of_link(seed, number);
                let directions = [
                    (&link.forward, seeds.forward),
                    (&link.r#return, seeds.r#return),
                ];
                for (spec, seed) in directions {
                    let network = network.clone();
                    let index = edges.len();
                    edges.push(Edge {
                        direction: Direction::new(spec, seed),
                        alarm: clock.alarm(move |now| {
                            if let Some(network) = network.upgrade() {
                                lock(&network).leave(index, now);
                            }
                        }),
                        dark_until: Time::ZERO,
                        blacked_out: 0,
                    });
                }
            }
            Inner {
                clock: clock.clone(),
                segments,
                state: Mutex::new(State {
                    edges,
                    sockets: Vec::new(),
                    addresses: BTreeMap::new(),
                    undeliverable: 0,
                }),
            }
        }))
    }

    /// A gateway's socket at `address`.
    pub fn gateway(&self, address: SocketAddr) -> MemorySocket {
        self.socket(address, Side::Gateway)
    }

    /// A terminal's socket at `address`, behind the links of `path`, from the gateways on.
    ///
    /// # Panics
    /// If `path` names a link that is not there.
    pub fn terminal(&self, address: SocketAddr, path: &[usize]) -> MemorySocket {
        self.socket(address, Side::behind(path))
    }

    fn socket(&self, address: SocketAddr, side: Side) -> MemorySocket {
        let mut state = self.lock();
        let number = state.sockets.len();
        state.sockets.push(Socket {
            address,
            side,
            inbox: VecDeque::new(),
            held: 0,
            reader: None,
        });
        state.addresses.insert(address, number);
        drop(state);
        MemorySocket {
            network: self.clone(),
            number,
        }
    }

    /// The terminal at `from` has the address `to` from now on, behind `path`. What is on
    /// its way to the old address finds nobody.
    pub fn r#move(&self, from: SocketAddr, to: SocketAddr, path: &[usize]) {
        let mut state = self.lock();
        if let Some(number) = state.addresses.remove(&from) {
            state.addresses.insert(to, number);
            let socket = &mut state.sockets[number];
            socket.address = to;
            socket.side = Side::behind(path);
        }
    }

    /// Changes link number `link` now.
    pub fn change(&self, link: usize, what: What) {
        let now = self.0.clock.now();
        let state = &mut *self.lock();
        let mut set = |edge: usize, rate| {
            let change = Change {
                rate: Some(rate),
                ..Change::default()
            };
            let edge = &mut state.edges[edge];
            edge.direction.apply(now, &change);
            edge.alarm.set(edge.direction.poll_timeout());
        };
        match what {
            What::ForwardRate(rate) => set(2 * link, rate),
            What::ReturnRate(rate) => set(2 * link + 1, rate),
            What::Blackout(span) => {
                for edge in &mut state.edges[2 * link..2 * link + 2] {
                    edge.dark_until = edge.dark_until.max(now + span);
                }
            }
        }
    }

    /// What became of the packets of each direction, forward and return of each link in
    /// turn, and how many entered during a blackout.
    pub fn counters(&self) -> Vec<(Counters, u64)> {
        let edges = &self.lock().edges;
        let look = |edge: &Edge| (*edge.direction.counters(), edge.blacked_out);
        edges.iter().map(look).collect()
    }

    /// Datagrams that were longer than the network takes or went to nobody.
    pub fn undeliverable(&self) -> u64 {
        self.lock().undeliverable
    }

    /// Puts a datagram on its way that claims to be from `from` and comes from where
    /// `socket` is.
    pub fn inject(&self, socket: SocketAddr, from: SocketAddr, to: SocketAddr, payload: Vec<u8>) {
        let mut state = self.lock();
        if let Some(&number) = state.addresses.get(&socket) {
            state.send(self.0.clock.now(), number, Some(from), to, None, payload);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

fn lock(inner: &Inner) -> MutexGuard<'_, State> {
    inner.state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Side {
    fn behind(path: &[usize]) -> Self {
        Self::Terminal {
            down: path.iter().map(|link| 2 * link).collect(),
            up: path.iter().rev().map(|link| 2 * link + 1).collect(),
        }
    }
}

impl State {
    fn send(
        &mut self,
        now: Time,
        socket: usize,
        from: Option<SocketAddr>,
        to: SocketAddr,
        ecn: Option<EcnCodepoint>,
        payload: Vec<u8>,
    ) {
        let sender = &self.sockets[socket];
        let receiver = self
            .addresses
            .get(&to)
            .map(|number| &self.sockets[*number].side);
        // There is no way between two terminals or two gateways.
        let route = match (&sender.side, receiver) {
            (Side::Terminal { up, .. }, Some(Side::Gateway)) => up.clone(),
            (Side::Gateway, Some(Side::Terminal { down, .. })) => down.clone(),
            _ => {
                self.undeliverable += 1;
                return;
            }
        };
        if payload.len() + IP_UDP > MTU {
            self.undeliverable += 1;
            return;
        }
        let from = from.unwrap_or(sender.address);
        self.enter(
            now,
            Datagram {
                from,
                to,
                payload,
                ecn,
                route,
                hops: 0,
            },
        );
    }

    /// A datagram enters the next edge of its route, or its socket after the last.
    fn enter(&mut self, now: Time, mut datagram: Datagram) {
        let Some(&number) = datagram.route.get(datagram.hops) else {
            self.arrive(datagram);
            return;
        };
        datagram.hops += 1;
        let edge = &mut self.edges[number];
        if now < edge.dark_until {
            edge.blacked_out += 1;
            return;
        }
        // A drop is counted by the direction.
        drop(edge.direction.handle_arrival(now, datagram));
        edge.alarm.set(edge.direction.poll_timeout());
    }

    /// What has come out of an edge goes on.
    fn leave(&mut self, edge: usize, now: Time) {
        while let Some(departure) = self.edges[edge].direction.poll_departure(now) {
            self.enter(now, departure.packet);
        }
        let edge = &self.edges[edge];
        edge.alarm.set(edge.direction.poll_timeout());
    }

    fn arrive(&mut self, datagram: Datagram) {
        let Some(&number) = self.addresses.get(&datagram.to) else {
            self.undeliverable += 1;
            return;
        };
        let socket = &mut self.sockets[number];
        if socket.held + datagram.payload.len() > SOCKET_BUFFER {
            self.undeliverable += 1;
            return;
        }
        socket.held += datagram.payload.len();
        socket.inbox.push_back(datagram);
        if let Some(reader) = socket.reader.take() {
            reader.wake();
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Network")
    }
}

/// A UDP socket of a [`Network`].
#[derive(Debug)]
pub struct MemorySocket {
    network: Network,
    number: usize,
}

#[derive(Debug)]
struct MemorySender {
    network: Network,
    number: usize,
}

impl AsyncUdpSocket for MemorySocket {
    fn create_sender(&self) -> Pin<Box<dyn UdpSender>> {
        Box::pin(MemorySender {
            network: self.network.clone(),
            number: self.number,
        })
    }

    fn poll_recv(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.network.lock();
        let socket = &mut state.sockets[self.number];
        let mut count = 0;
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            let Some(datagram) = socket.inbox.pop_front() else {
                break;
            };
            let len = datagram.payload.len();
            socket.held -= len;
            buffer[..len].copy_from_slice(&datagram.payload);
            *meta = RecvMeta::default();
            meta.addr = datagram.from;
            meta.len = len;
            meta.stride = len;
            meta.ecn = datagram.ecn;
            count += 1;
        }
        if count == 0 {
            socket.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Ok(count))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.network.lock().sockets[self.number].address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl UdpSender for MemorySender {
    fn poll_send(
        self: Pin<&mut Self>,
        transmit: &Transmit<'_>,
        _context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let now = self.network.0.clock.now();
        let mut state = self.network.lock();
        let segment = transmit.segment_size.unwrap_or(transmit.contents.len());
        // A datagram may be empty, a segment not.
        if transmit.contents.is_empty() {
            state.send(
                now,
                self.number,
                None,
                transmit.destination,
                transmit.ecn,
                Vec::new(),
            );
        }
        for payload in transmit.contents.chunks(segment.max(1)) {
            let (to, ecn) = (transmit.destination, transmit.ecn);
            state.send(now, self.number, None, to, ecn, payload.to_vec());
        }
        Poll::Ready(Ok(()))
    }

    fn max_transmit_segments(&self) -> NonZeroUsize {
        self.network.0.segments
    }
}

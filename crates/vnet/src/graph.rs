//! A graph of links with hosts at its ends, without a clock and without I/O.
//!
//! Terminals are behind a path of links, gateways in front of it. Many terminals may share
//! a link; a queue that is full for one is full for all.
//!
//! The calls sort into [`Graph::handle_send`] (a host sends a datagram),
//! [`Graph::poll_arrival`] (take what has come to a host, until `None`) and
//! [`Graph::poll_timeout`] (call again at that turn). Moments passed to them must not
//! decrease.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_link::spec::{DirectionSpec, ScheduledChange};
use bentpipe_link::{Counters, Direction, Packet, Seeds};
use bentpipe_units::{Bytes, Rate, Span, Time};
use bytes::BytesMut;
use noq::EcnCodepoint;

use crate::plan::{LinkPlan, Towards};
use crate::timer::{Turn, Turns};

/// IPv4 header (RFC 791) and UDP header (RFC 768).
pub const IP_UDP: usize = 28;
/// The largest IP packet that comes through: Ethernet's.
pub const MTU: usize = 1500;

/// Links and hosts.
#[derive(Debug)]
pub struct Graph {
    /// Forward and return direction of each link.
    edges: Vec<Edge>,
    /// Edges by the moment at which something happens on them, the earliest on top; an
    /// entry counts if its edge is set to its moment.
    due: BinaryHeap<Reverse<(Turn, usize)>>,
    turns: Turns,
    /// The edge from which arrivals are being taken.
    open: Option<usize>,
    hosts: Vec<Side>,
    /// Which host has an address.
    addresses: BTreeMap<SocketAddr, HostId>,
    undeliverable: u64,
}

/// A host's number in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(usize);

impl HostId {
    /// How many hosts were there before it.
    pub fn index(self) -> usize {
        self.0
    }
}

/// On which side of the links a host is.
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
pub struct Datagram {
    /// The address it claims to come from.
    pub from: SocketAddr,
    /// The address it goes to.
    pub to: SocketAddr,
    /// Its ECN field, where it is not zero.
    pub ecn: Option<EcnCodepoint>,
    /// What it carries.
    pub payload: BytesMut,
    /// Time in queues so far: what it was inside directions beyond their typical delay and
    /// its sending at their rate.
    pub queued: Span,
    /// The edges that it crosses.
    route: Arc<[usize]>,
    /// How many of them it has entered.
    hops: usize,
    /// When it entered the last of these.
    entered: Time,
}

impl Datagram {
    /// A datagram without an ECN field.
    pub fn new(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Self {
        Self {
            from,
            to,
            ecn: None,
            payload: BytesMut::from(payload),
            queued: Span::ZERO,
            route: Arc::new([]),
            hops: 0,
            entered: Time::ZERO,
        }
    }

    /// The same with the ECN field `ecn`.
    #[must_use]
    pub fn with_ecn(mut self, ecn: Option<EcnCodepoint>) -> Self {
        self.ecn = ecn;
        self
    }
}

impl Packet for Datagram {
    fn ip_len(&self) -> usize {
        self.payload.len() + IP_UDP
    }

    fn flow(&self) -> u64 {
        // Ports and the low halves of the addresses tell the hosts apart.
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

    // The UDP checksum sees what is corrupted, and the datagram never reaches a host.
}

impl Graph {
    /// A graph of `links` without hosts, in which everything random derives from `seed`; its
    /// events take their places among others by `turns`.
    pub fn new(links: &[LinkPlan], seed: u64, turns: Turns) -> Self {
        let edges = (0..).zip(links).flat_map(|(number, link)| {
            let seeds = Seeds::of_link(seed, number);
            [
                Edge::new(&link.forward, seeds.forward),
                Edge::new(&link.r#return, seeds.r#return),
            ]
        });
        Self {
            edges: edges.collect(),
            due: BinaryHeap::new(),
            turns,
            open: None,
            hosts: Vec::new(),
            addresses: BTreeMap::new(),
            undeliverable: 0,
        }
    }

    /// A gateway at `address`.
    pub fn gateway(&mut self, address: SocketAddr) -> HostId {
        self.host(address, Side::Gateway)
    }

    /// A terminal at `address`, behind the links of `path`, from the gateways on.
    ///
    /// # Panics
    /// If `path` is empty or names a link that is not there.
    pub fn terminal(&mut self, address: SocketAddr, path: &[usize]) -> HostId {
        let side = self.behind(path);
        self.host(address, side)
    }

    fn host(&mut self, address: SocketAddr, side: Side) -> HostId {
        let id = HostId(self.hosts.len());
        self.hosts.push(side);
        self.addresses.insert(address, id);
        id
    }

    /// `host` is reached by `address` too from now on.
    pub fn add_address(&mut self, host: HostId, address: SocketAddr) {
        self.addresses.insert(address, host);
    }

    /// Nobody is at `address` any more: what is on its way there is lost.
    pub fn remove_address(&mut self, address: SocketAddr) {
        self.addresses.remove(&address);
    }

    /// Who is at `address`.
    pub fn at(&self, address: SocketAddr) -> Option<HostId> {
        self.addresses.get(&address).copied()
    }

    /// The terminal `host` is behind the links of `path` from now on. What is on its way
    /// still arrives.
    ///
    /// # Panics
    /// If `path` is empty or names a link that is not there.
    pub fn reroute(&mut self, host: HostId, path: &[usize]) {
        self.hosts[host.0] = self.behind(path);
    }

    fn behind(&self, path: &[usize]) -> Side {
        assert!(
            !path.is_empty() && path.iter().all(|link| 2 * link < self.edges.len()),
            "a terminal is behind links that are there: {path:?}"
        );
        Side::Terminal {
            down: path.iter().map(|link| 2 * link).collect(),
            up: path.iter().rev().map(|link| 2 * link + 1).collect(),
        }
    }

    /// `host` sends `datagram` at `now`. One that is too long or goes to nobody is dropped
    /// and counted, as is one that finds no room in a queue.
    pub fn handle_send(&mut self, now: Time, host: HostId, mut datagram: Datagram) {
        let receiver = self.at(datagram.to).map(|host| &self.hosts[host.0]);
        // There is no way between two terminals or two gateways.
        let route = match (&self.hosts[host.0], receiver) {
            (Side::Terminal { up, .. }, Some(Side::Gateway)) => up.clone(),
            (Side::Gateway, Some(Side::Terminal { down, .. })) => down.clone(),
            _ => {
                self.undeliverable += 1;
                return;
            }
        };
        if datagram.ip_len() > MTU {
            self.undeliverable += 1;
            return;
        }
        (datagram.route, datagram.hops) = (route, 0);
        self.enter(now, datagram);
    }

    /// The next datagram that has come to a host by `turn`, and whose it is; call until
    /// `None`.
    pub fn poll_arrival(&mut self, turn: Turn) -> Option<(HostId, Datagram)> {
        let now = turn.at;
        loop {
            let edge = match self.open {
                Some(edge) => edge,
                None => self.pop_due(turn)?,
            };
            self.open = Some(edge);
            let Some(datagram) = self.edges[edge].leave(now) else {
                self.open = None;
                self.schedule(edge);
                continue;
            };
            if datagram.hops < datagram.route.len() {
                self.enter(now, datagram);
            } else if let Some(host) = self.at(datagram.to) {
                return Some((host, datagram));
            } else {
                self.undeliverable += 1;
            }
        }
    }

    /// When to call [`Self::poll_arrival`] next, if nothing is sent before.
    pub fn poll_timeout(&mut self) -> Option<Turn> {
        while let Some(&Reverse((turn, edge))) = self.due.peek() {
            if self.edges[edge].due == Some(turn.at) {
                return Some(turn);
            }
            self.due.pop();
        }
        None
    }

    /// What became of the packets of each direction: its link's number, where it leads, and
    /// the counts.
    pub fn counters(&self) -> impl Iterator<Item = (usize, Towards, Counters)> + '_ {
        self.edges.iter().enumerate().map(|(number, edge)| {
            let towards = [Towards::Terminal, Towards::Gateway][number % 2];
            (number / 2, towards, *edge.direction.counters())
        })
    }

    /// Datagrams that were longer than the links take or went to nobody.
    pub fn undeliverable(&self) -> u64 {
        self.undeliverable
    }

    fn enter(&mut self, now: Time, mut datagram: Datagram) {
        let edge = datagram.route[datagram.hops];
        datagram.hops += 1;
        datagram.entered = now;
        // A drop is counted by the direction.
        drop(self.edges[edge].direction.handle_arrival(now, datagram));
        self.schedule(edge);
    }

    fn schedule(&mut self, number: usize) {
        let edge = &mut self.edges[number];
        if let Some(at) = edge.direction.poll_timeout()
            && edge.due.is_none_or(|set| at < set)
        {
            edge.due = Some(at);
            self.due.push(Reverse((self.turns.next(at), number)));
        }
    }

    fn pop_due(&mut self, turn: Turn) -> Option<usize> {
        if self.poll_timeout()? > turn {
            return None;
        }
        let Reverse((_, edge)) = self.due.pop()?;
        self.edges[edge].due = None;
        Some(edge)
    }
}

/// One direction of one link.
#[derive(Debug)]
struct Edge {
    direction: Direction<Datagram>,
    /// The moment that it is in the graph's heap with.
    due: Option<Time>,
    /// One way, typically.
    delay: Span,
    /// At best.
    rate: Rate,
    /// Changes of either that are to come, the next one first.
    changes: VecDeque<ScheduledChange>,
}

impl Edge {
    fn new(spec: &DirectionSpec, seed: impl Into<bentpipe_link::Seed>) -> Self {
        Self {
            direction: Direction::new(spec, seed),
            due: None,
            delay: spec.delay.typical().span(),
            rate: spec.rate.ceiling(),
            changes: spec.change.iter().cloned().collect(),
        }
    }

    /// The next datagram that has come out by `now`.
    fn leave(&mut self, now: Time) -> Option<Datagram> {
        let departure = self.direction.poll_departure(now)?;
        self.follow_changes(departure.at);
        let mut datagram = departure.packet;
        let ip_len = Bytes::new(datagram.ip_len() as u64);
        let sending = self.rate.time_for(ip_len).unwrap_or(Span::ZERO);
        let inside = departure.at.since(datagram.entered).as_nanos();
        let queued = inside.saturating_sub((self.delay + sending).as_nanos());
        datagram.queued = datagram.queued + Span::from_nanos(queued);
        Some(datagram)
    }

    fn follow_changes(&mut self, now: Time) {
        while let Some(change) = self
            .changes
            .pop_front_if(|change| Time::ZERO + change.at <= now)
        {
            if let Some(link) = &change.change.link {
                (self.delay, self.rate) = (link.delay.typical().span(), link.rate.ceiling());
            }
            self.delay = change.change.delay.map_or(self.delay, |delay| delay.span());
            self.rate = change.change.rate.unwrap_or(self.rate);
        }
    }
}

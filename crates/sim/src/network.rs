//! Links joined to a graph.

use std::net::SocketAddr;

use bentpipe_link::scenario::DirectionSpec;
use bentpipe_link::{Direction, Packet, Seed};
use bentpipe_units::{Span, Time};
use bentpipe_vnet::network::IP_UDP;
use bytes::BytesMut;
use noq_proto::EcnCodepoint;

/// A UDP datagram on its way.
#[derive(Debug, Clone)]
pub(crate) struct Datagram {
    pub(crate) flow: usize,
    pub(crate) from: SocketAddr,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) payload: BytesMut,
    /// Directions still to cross after this one, the next one last.
    pub(crate) route: Vec<usize>,
    /// When it entered the direction that it is in.
    pub(crate) entered: Time,
    /// Waiting in queues so far: what it was inside directions beyond their typical delay
    /// and its sending at the rate of the plan.
    pub(crate) waited: Span,
}

impl Packet for Datagram {
    fn ip_len(&self) -> usize {
        self.payload.len() + IP_UDP
    }

    fn flow(&self) -> u64 {
        self.flow as u64
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

    // The UDP checksum sees what is corrupted, and the datagram never reaches an endpoint.
}

/// One direction of one link; an edge of the graph.
#[derive(Debug)]
pub(crate) struct Edge {
    pub(crate) direction: Direction<Datagram>,
    /// What enters before then is lost.
    pub(crate) dark_until: Time,
    /// Packets that were.
    pub(crate) blacked_out: u64,
    /// One way, typically.
    delay: Span,
    /// At best, until a change says otherwise.
    pub(crate) rate: bentpipe_units::Rate,
}

impl Edge {
    pub(crate) fn new(spec: &DirectionSpec, seed: Seed) -> Self {
        Self {
            direction: Direction::new(spec, seed),
            dark_until: Time::ZERO,
            blacked_out: 0,
            delay: spec.delay.typical().span(),
            rate: spec.rate.ceiling(),
        }
    }

    /// A datagram enters; it may find no room, or the link dark.
    pub(crate) fn enter(&mut self, now: Time, mut datagram: Datagram) {
        if now < self.dark_until {
            self.blacked_out += 1;
            return;
        }
        datagram.entered = now;
        // A drop is counted by the direction.
        drop(self.direction.handle_arrival(now, datagram));
    }

    /// The next datagram that has come out by `now`.
    pub(crate) fn leave(&mut self, now: Time) -> Option<Datagram> {
        let departure = self.direction.poll_departure(now)?;
        let mut datagram = departure.packet;
        let ip_len = bentpipe_units::Bytes::new(datagram.ip_len() as u64);
        let sending = self.rate.time_for(ip_len).unwrap_or(Span::ZERO);
        let inside = departure.at.since(datagram.entered).as_nanos();
        let waited = inside.saturating_sub((self.delay + sending).as_nanos());
        datagram.waited = datagram.waited + Span::from_nanos(waited);
        Some(datagram)
    }
}

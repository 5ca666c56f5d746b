//! The modules joined: one direction of a link.

use bentpipe_units::Time;

use crate::impair::Bernoulli;
use crate::propagate::Air;
use crate::queue::DropTail;
use crate::scenario::DirectionSpec;
use crate::serialize::Transmitter;
use crate::{Cause, Counters, Packet};

/// One direction of a link. See the [crate] for the order of calls.
///
/// Moments passed to the `handle_` and `poll_` methods must not decrease.
#[derive(Debug)]
pub struct Direction<P> {
    queue: DropTail<P>,
    transmitter: Transmitter,
    /// The packet on the transmitter, and when its last bit leaves.
    sending: Option<(Time, P)>,
    loss: Bernoulli,
    air: Air<P>,
    counters: Counters,
}

/// A packet that has come out at the other end.
#[derive(Debug)]
pub struct Departure<P> {
    /// When it came out, by the model.
    pub at: Time,
    /// The packet.
    pub packet: P,
}

/// A packet that was refused, and why.
#[derive(Debug)]
pub struct Dropped<P> {
    /// Why.
    pub cause: Cause,
    /// The packet.
    pub packet: P,
}

impl<P: Packet> Direction<P> {
    /// An idle direction. Equal `spec`, `seed` and arrivals give equal departures.
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        Self {
            queue: DropTail::new(spec.queue),
            transmitter: Transmitter::new(spec.rate),
            sending: None,
            loss: Bernoulli::new(spec.loss, seed),
            air: Air::new(spec.delay),
            counters: Counters::default(),
        }
    }

    /// What became of the packets so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets inside: waiting, being sent, or on the air.
    pub fn held(&self) -> u64 {
        (self.queue.len() + usize::from(self.sending.is_some()) + self.air.len()) as u64
    }

    /// The queue, to look at.
    pub fn queue(&self) -> &DropTail<P> {
        &self.queue
    }

    /// A packet comes in at `now`. An error is a drop at the queue, already counted.
    pub fn handle_arrival(&mut self, now: Time, packet: P) -> Result<(), Dropped<P>> {
        self.advance(now);
        let ip_len = packet.ip_len();
        self.counters.entered += 1;
        self.counters.entered_bytes += ip_len as u64;
        if self.sending.is_none() {
            // An idle transmitter takes the packet at once: it never waits.
            self.start(now, packet);
            return Ok(());
        }
        self.queue.push(packet).map_err(|packet| {
            self.counters.drop(Cause::Queue, ip_len);
            Dropped {
                cause: Cause::Queue,
                packet,
            }
        })
    }

    /// The next packet that has come out by `now`; call until `None`.
    pub fn poll_departure(&mut self, now: Time) -> Option<Departure<P>> {
        self.advance(now);
        let (at, packet) = self.air.land(now)?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.ip_len() as u64;
        Some(Departure { at, packet })
    }

    /// When to call [`Self::poll_departure`] next, if nothing comes in before.
    pub fn poll_timeout(&self) -> Option<Time> {
        let sent = self.sending.as_ref().map(|(left, _)| *left);
        [sent, self.air.next_arrival()].into_iter().flatten().min()
    }

    /// Lets the transmitter do all that it does until `now`.
    fn advance(&mut self, now: Time) {
        while let Some((left, packet)) = self.sending.take_if(|(left, _)| *left <= now) {
            if self.loss.loses() {
                self.counters.drop(Cause::Loss, packet.ip_len());
            } else {
                self.air.launch(left, packet);
            }
            if let Some(next) = self.queue.pop() {
                self.start(left, next);
            }
        }
    }

    fn start(&mut self, at: Time, packet: P) {
        let left = self.transmitter.send(at, packet.ip_len());
        self.sending = Some((left, packet));
    }
}

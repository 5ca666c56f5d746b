//! A transmitter that sends one packet at a time, at the rate that it has now.

use bentpipe_units::{Rate, Time};

use super::{constant, opportunities, trace};
use crate::accounting::Accounting;
use crate::block::TransmitterGate;
use crate::entry::{Entry, Sent};
use crate::packet::Packet;
use crate::queue::Queue;

/// Says when a packet's last bit has left.
#[derive(Debug)]
pub(crate) enum Clock {
    Constant(constant::Clock),
    Trace(trace::Clock),
    Opportunities(opportunities::Clock),
}

impl Clock {
    fn send(&mut self, start: Time, bytes: u32) -> Time {
        match self {
            Self::Constant(clock) => clock.send(start, bytes),
            Self::Trace(clock) => clock.send(start, bytes),
            Self::Opportunities(clock) => clock.send(start, bytes),
        }
    }
}

/// A transmitter with the packet that it sends.
#[derive(Debug)]
pub struct Serial<P> {
    clock: Clock,
    /// The packet on the transmitter, and when its last bit leaves.
    sending: Option<(Time, Entry<P>)>,
}

impl<P: Packet> Serial<P> {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            sending: None,
        }
    }

    /// A constant rate from the next packet on.
    pub(crate) fn set_rate(&mut self, rate: Rate) {
        self.clock = Clock::Constant(constant::Clock::new(rate));
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sending.is_none()
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.sending.as_ref().map(|(left, _)| *left)
    }

    pub(crate) fn ours(&self) -> usize {
        usize::from(
            self.sending
                .as_ref()
                .is_some_and(|(_, entry)| entry.is_ours()),
        )
    }

    pub(crate) fn start(&mut self, at: Time, entry: Entry<P>, gate: &TransmitterGate) {
        let left = self.clock.send(gate.opens(at), entry.len);
        self.sending = Some((left, entry));
    }

    /// The packet on the transmitter has left; takes the next one.
    pub(crate) fn step(
        &mut self,
        at: Time,
        queue: &mut Queue<P>,
        accounting: &mut Accounting<P>,
        gate: &TransmitterGate,
    ) -> Option<Sent<P>> {
        let (_, entry) = self.sending.take()?;
        if let Some(next) = queue.pop(at, accounting) {
            self.start(at, next, gate);
        }
        Some(Sent { entry, fate: None })
    }

    pub(crate) fn evict(&mut self) -> Option<Entry<P>> {
        self.sending.take().map(|(_, entry)| entry)
    }
}

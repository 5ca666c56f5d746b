//! A transmitter of frames: packets are cut and gathered, and a frame that is lost takes
//! every packet with a byte in it along.

use bentpipe_units::Time;

use super::encapsulate::{Encapsulation, Filler, Frame};
use super::leaving::Leaving;
use super::modcod::S2;
use super::{dvb_rcs2, dvb_s2};
use crate::accounting::Accounting;
use crate::block::TransmitterGate;
use crate::entry::{Entry, Sent};
use crate::impair::Impairments;
use crate::packet::Packet;
use crate::queue::Queue;

/// A transmitter of frames.
#[derive(Debug)]
pub struct Framed<P> {
    access: Access,
    filler: Filler<P>,
    /// A frame that did not fit into its tick, with its size in symbols.
    pending: Option<(Frame<P>, &'static S2)>,
    leaving: Leaving<P>,
    wake: Option<Time>,
}

#[derive(Debug)]
enum Access {
    S2(dvb_s2::Carrier),
    Rcs2(dvb_rcs2::Terminal),
}

impl<P: Packet> Framed<P> {
    pub(crate) fn dvb_s2(carrier: dvb_s2::Carrier, resequence: Option<u32>) -> Self {
        let encapsulation = Encapsulation::gse(carrier.link_header());
        Self::new(Access::S2(carrier), encapsulation, resequence)
    }

    pub(crate) fn dvb_rcs2(terminal: dvb_rcs2::Terminal, resequence: Option<u32>) -> Self {
        let encapsulation = Encapsulation::rle(terminal.link_header());
        Self::new(Access::Rcs2(terminal), encapsulation, resequence)
    }

    fn new(access: Access, encapsulation: Encapsulation, resequence: Option<u32>) -> Self {
        Self {
            access,
            filler: Filler::new(encapsulation),
            pending: None,
            leaving: Leaving::new(resequence),
            wake: None,
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        let leaves = self.leaving.next();
        match (leaves, self.wake) {
            (Some(leaves), Some(wake)) => Some(leaves.min(wake)),
            (one, other) => one.or(other),
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.leaving.holds()
    }

    pub(crate) fn ours(&self) -> usize {
        self.filler.ours()
            + self.pending.as_ref().map_or(0, |(frame, _)| frame.ours())
            + self.leaving.ours()
    }

    /// Something has come into the queue.
    pub(crate) fn kick(&mut self, now: Time, gate: &TransmitterGate) {
        if self.wake.is_none() {
            self.wake = Some(self.next_chance(now, gate));
        }
    }

    /// The first moment from `now` on at which frames can be sent.
    fn next_chance(&self, now: Time, gate: &TransmitterGate) -> Time {
        let mut at = self.access.chance(now);
        // A tick while the gate is closed sends nothing.
        loop {
            let open = gate.opens(at);
            if open <= at {
                return at;
            }
            at = self.access.chance(open);
        }
    }

    /// Does what happens at `at`, the moment that [`Self::next`] gave.
    pub(crate) fn step(
        &mut self,
        at: Time,
        queue: &mut Queue<P>,
        accounting: &mut Accounting<P>,
        impair: &mut Impairments,
        gate: &TransmitterGate,
    ) -> Option<Sent<P>> {
        if self.leaving.next().is_some_and(|leaves| leaves <= at) {
            return self.leaving.pop();
        }
        self.wake = None;
        let idle_from = match &mut self.access {
            Access::S2(carrier) => {
                if let Some(ticks) = carrier.begin_tick() {
                    self.fill_tick(at, queue, accounting, impair);
                    at + ticks
                } else {
                    self.fill_one(at, queue, accounting, impair)
                }
            }
            Access::Rcs2(terminal) => {
                let bursts = terminal.bursts(at, queue, self.filler.backlog());
                let bytes = terminal.burst_bytes();
                let faded = terminal.is_faded(at);
                for _ in 0..bursts {
                    let mut burst = self.filler.frame(bytes);
                    self.filler.fill(at, &mut burst, queue, accounting);
                    if burst.is_empty() {
                        break;
                    }
                    let lost = faded.or_else(|| impair.frame_fate());
                    self.leaving.send(at, burst, lost, &mut self.filler);
                }
                at + terminal.superframe()
            }
        };
        if !queue.is_empty() || self.filler.is_cut() || self.pending.is_some() {
            self.wake = Some(self.next_chance(idle_from, gate));
        }
        None
    }

    /// One frame that leaves when its last symbol has.
    fn fill_one(
        &mut self,
        at: Time,
        queue: &mut Queue<P>,
        accounting: &mut Accounting<P>,
        impair: &mut Impairments,
    ) -> Time {
        let Access::S2(carrier) = &mut self.access else {
            return at;
        };
        let modcod = carrier.modcod(at);
        let mut frame = self.filler.frame(modcod.bytes);
        self.filler.fill(at, &mut frame, queue, accounting);
        if frame.is_empty() {
            return at;
        }
        let left = carrier.send(at, modcod.symbols());
        let lost = carrier
            .is_faded(left, modcod)
            .or_else(|| impair.frame_fate());
        self.leaving.send(left, frame, lost, &mut self.filler);
        left
    }

    /// All frames of one tick, which leave at once.
    fn fill_tick(
        &mut self,
        at: Time,
        queue: &mut Queue<P>,
        accounting: &mut Accounting<P>,
        impair: &mut Impairments,
    ) {
        let Access::S2(carrier) = &mut self.access else {
            return;
        };
        loop {
            let (mut frame, modcod) = self.pending.take().unwrap_or_else(|| {
                let modcod = carrier.modcod(at);
                (self.filler.frame(modcod.bytes), modcod)
            });
            self.filler.fill(at, &mut frame, queue, accounting);
            if frame.is_empty() {
                carrier.forget_credit();
                return;
            }
            if !carrier.spend(modcod.symbols()) {
                self.pending = Some((frame, modcod));
                return;
            }
            let lost = carrier.is_faded(at, modcod).or_else(|| impair.frame_fate());
            self.leaving.send(at, frame, lost, &mut self.filler);
        }
    }

    /// Gives up everything inside.
    pub(crate) fn evict(&mut self) -> Vec<Entry<P>> {
        let mut all: Vec<_> = self.leaving.evict().collect();
        if let Some((frame, _)) = self.pending.take() {
            all.extend(frame.into_entries());
        }
        all.extend(self.filler.evict());
        self.wake = None;
        all
    }
}

impl Access {
    fn chance(&self, now: Time) -> Time {
        match self {
            Self::S2(carrier) => carrier.chance(now),
            Self::Rcs2(terminal) => terminal.chance(now),
        }
    }
}

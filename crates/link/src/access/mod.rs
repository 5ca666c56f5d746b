//! Transmitters that send frames: packets are cut and gathered, and a frame
//! that is lost takes every packet with a byte in it along.
//!
//! [`encapsulate`] cuts the packets, [`dvb_s2`] and [`dvb_rcs2`] say which
//! frames there are and when.

pub mod encapsulate;
pub mod dvb_s2;
pub mod dvb_rcs2;

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use crate::counters::Ledger;
use crate::impair::Impairments;
use crate::queue::{Entry, Queue};
use crate::serialize::Sent;
use crate::standstill::Standstill;
use crate::{Cause, Packet};
use encapsulate::{Encapsulation, Filler, Frame};

/// A transmitter of frames.
#[derive(Debug)]
pub struct Framed<P> {
    access: Access,
    filler: Filler<P>,
    /// A frame that did not fit into its tick, with its size in symbols.
    pending: Option<(Frame<P>, &'static crate::modcod::S2)>,
    leaving: Leaving<P>,
    wake: Option<Time>,
}

/// Packets whose last byte is on its way out, in order.
#[derive(Debug)]
struct Leaving<P> {
    packets: VecDeque<(Time, Entry<P>, Option<Cause>)>,
    /// Those of them that are to come out.
    ours: usize,
}

impl<P: Packet> Leaving<P> {
    fn push(&mut self, at: Time, entry: Entry<P>, fate: Option<Cause>) {
        self.ours += usize::from(entry.is_ours());
        self.packets.push_back((at, entry, fate));
    }

    fn next(&self) -> Option<Time> {
        self.packets.front().map(|(at, ..)| *at)
    }

    fn pop(&mut self) -> Option<Sent<P>> {
        let (_, entry, fate) = self.packets.pop_front()?;
        self.ours -= usize::from(entry.is_ours());
        Some(Sent { entry, fate })
    }
}

#[derive(Debug)]
enum Access {
    S2(dvb_s2::Carrier),
    Rcs2(dvb_rcs2::Terminal),
}

impl<P: Packet> Framed<P> {
    pub(crate) fn dvb_s2(carrier: dvb_s2::Carrier) -> Self {
        let encapsulation = Encapsulation::gse(carrier.link_header());
        Self::new(Access::S2(carrier), encapsulation)
    }

    pub(crate) fn dvb_rcs2(terminal: dvb_rcs2::Terminal) -> Self {
        let encapsulation = Encapsulation::rle(terminal.link_header());
        Self::new(Access::Rcs2(terminal), encapsulation)
    }

    fn new(access: Access, encapsulation: Encapsulation) -> Self {
        Self {
            access,
            filler: Filler::new(encapsulation),
            pending: None,
            leaving: Leaving {
                packets: VecDeque::new(),
                ours: 0,
            },
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

    pub(crate) fn ours(&self) -> usize {
        self.filler.ours()
            + self.pending.as_ref().map_or(0, |(frame, _)| frame.ours())
            + self.leaving.ours
    }

    /// Something has come into the queue.
    pub(crate) fn kick(&mut self, now: Time, still: &Standstill) {
        if self.wake.is_none() {
            self.wake = Some(self.next_chance(now, still));
        }
    }

    /// The first moment from `now` on at which frames can be sent.
    fn next_chance(&self, now: Time, still: &Standstill) -> Time {
        let mut at = self.access.chance(now);
        // A tick inside a standstill sends nothing.
        loop {
            let clear = still.clear(at);
            if clear <= at {
                return at;
            }
            at = self.access.chance(clear);
        }
    }

    /// Does what happens at `at`, the moment that [`Self::next`] gave.
    pub(crate) fn step(
        &mut self,
        at: Time,
        queue: &mut Queue<P>,
        ledger: &mut Ledger<P>,
        impair: &mut Impairments,
        still: &Standstill,
    ) -> Option<Sent<P>> {
        if self.leaving.next().is_some_and(|leaves| leaves <= at) {
            return self.leaving.pop();
        }
        self.wake = None;
        let idle_from = match &mut self.access {
            Access::S2(carrier) => {
                if let Some(ticks) = carrier.begin_tick() {
                    self.fill_tick(at, queue, ledger, impair);
                    at + ticks
                } else {
                    self.fill_one(at, queue, ledger, impair)
                }
            }
            Access::Rcs2(terminal) => {
                let bursts = terminal.bursts(at, queue, self.filler.backlog());
                let bytes = terminal.burst_bytes();
                let faded = terminal.is_faded(at);
                for _ in 0..bursts {
                    let mut burst = self.filler.frame(bytes);
                    self.filler.fill(at, &mut burst, queue, ledger);
                    if burst.is_empty() {
                        break;
                    }
                    let lost = faded.or_else(|| impair.frame_fate(at));
                    let leaving = &mut self.leaving;
                    self.filler
                        .send(burst, lost, |entry, fate| leaving.push(at, entry, fate));
                }
                at + terminal.superframe()
            }
        };
        if !queue.is_empty() || self.filler.is_cut() || self.pending.is_some() {
            self.wake = Some(self.next_chance(idle_from, still));
        }
        None
    }

    /// One frame that leaves when its last symbol has.
    fn fill_one(
        &mut self,
        at: Time,
        queue: &mut Queue<P>,
        ledger: &mut Ledger<P>,
        impair: &mut Impairments,
    ) -> Time {
        let Access::S2(carrier) = &mut self.access else {
            return at;
        };
        let modcod = carrier.modcod(at);
        let mut frame = self.filler.frame(modcod.bytes);
        self.filler.fill(at, &mut frame, queue, ledger);
        if frame.is_empty() {
            return at;
        }
        let left = carrier.send(at, modcod.symbols());
        let lost = carrier
            .is_faded(left, modcod)
            .or_else(|| impair.frame_fate(left));
        let leaving = &mut self.leaving;
        self.filler
            .send(frame, lost, |entry, fate| leaving.push(left, entry, fate));
        left
    }

    /// All frames of one tick, which leave at once.
    fn fill_tick(
        &mut self,
        at: Time,
        queue: &mut Queue<P>,
        ledger: &mut Ledger<P>,
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
            self.filler.fill(at, &mut frame, queue, ledger);
            if frame.is_empty() {
                carrier.forget_credit();
                return;
            }
            if !carrier.spend(modcod.symbols()) {
                self.pending = Some((frame, modcod));
                return;
            }
            let lost = carrier
                .is_faded(at, modcod)
                .or_else(|| impair.frame_fate(at));
            let leaving = &mut self.leaving;
            self.filler
                .send(frame, lost, |entry, fate| leaving.push(at, entry, fate));
        }
    }

    /// Gives up everything inside.
    pub(crate) fn evict(&mut self) -> Vec<Entry<P>> {
        let leaving = std::iter::from_fn(|| self.leaving.pop());
        let mut all: Vec<_> = leaving.map(|sent| sent.entry).collect();
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

/// Ticks that come at `phase` and every `period` after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    pub period: Span,
    pub phase: Span,
}

impl Ticks {
    /// The first tick that is not before `now`.
    pub fn at_or_after(self, now: Time) -> Time {
        let (period, phase) = (self.period.as_nanos(), self.phase.as_nanos());
        if period == 0 {
            return now;
        }
        let behind = now.as_nanos().saturating_sub(phase);
        let ticks = if now.as_nanos() < phase {
            0
        } else {
            behind.div_ceil(period)
        };
        Time::from_nanos(ticks.saturating_mul(period).saturating_add(phase))
    }

    /// Which tick `at` is.
    pub fn number(self, at: Time) -> u64 {
        at.as_nanos().saturating_sub(self.phase.as_nanos()) / self.period.as_nanos().max(1)
    }
}

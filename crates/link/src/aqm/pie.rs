//! Proportional integral controller enhanced, RFC 8033: drops at the entrance
//! with a chance that follows the queue's delay and its trend.
//!
//! The delay is measured with time stamps at the exit (section 5.2).

use bentpipe_units::{Span, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::accounting::Accounting;
use crate::entry::Entry;
use crate::fifo::Fifo;
use crate::packet::Packet;
use crate::random::{self, Stage};
use crate::spec::PieSpec;

/// Gains, per second of delay (section 4.2).
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// Above this chance packets are dropped even if they could be marked (section 5.1).
const MARK_UP_TO: f64 = 0.1;
/// `MEAN_PKTSIZE` (section 5.1).
const MEAN_PACKET: u64 = 1024;

/// PIE's state for one queue.
#[derive(Debug)]
pub struct Pie {
    target: f64,
    update: Span,
    max_burst: f64,
    ecn: bool,
    drop_prob: f64,
    accumulated: f64,
    burst_allowance: f64,
    delay: f64,
    old_delay: f64,
    next_update: Time,
    random: ChaCha8Rng,
}

impl Pie {
    /// For an empty queue.
    pub fn new(spec: &PieSpec, seed: u64) -> Self {
        Self {
            target: spec.target.as_secs_f64(),
            update: spec.update,
            max_burst: spec.burst.as_secs_f64(),
            ecn: spec.ecn,
            drop_prob: 0.0,
            accumulated: 0.0,
            burst_allowance: spec.burst.as_secs_f64(),
            delay: 0.0,
            old_delay: 0.0,
            next_update: Time::ZERO + spec.update,
            random: random::stream(seed, Stage::Management),
        }
    }

    /// `drop_prob_`.
    pub fn drop_chance(&self) -> f64 {
        self.drop_prob
    }

    /// Section 4.1: whether a packet that comes in may wait; marks it if that will do.
    pub(crate) fn admits<P: Packet>(
        &mut self,
        now: Time,
        queue: &Fifo<P>,
        entry: &mut Entry<P>,
        accounting: &mut Accounting<P>,
    ) -> bool {
        self.catch_up(now, queue.len() == 0);
        let calm = self.old_delay < self.target / 2.0 && self.drop_prob < 0.2;
        if self.burst_allowance > 0.0 || calm || queue.bytes() <= 2 * MEAN_PACKET {
            return true;
        }
        // Section 5.4: spread the drops.
        if self.drop_prob == 0.0 {
            self.accumulated = 0.0;
        }
        self.accumulated += self.drop_prob;
        if self.accumulated < 0.85 {
            return true;
        }
        if self.accumulated < 8.5 && self.random.random::<f64>() >= self.drop_prob {
            return true;
        }
        self.accumulated = 0.0;
        self.ecn && self.drop_prob <= MARK_UP_TO && accounting.mark(entry)
    }

    /// A packet found no room: a drop like any other, after which chances gather anew.
    pub(crate) fn forced_drop(&mut self) {
        self.accumulated = 0.0;
    }

    /// The next packet to send.
    pub(crate) fn pop<P>(&mut self, now: Time, queue: &mut Fifo<P>) -> Option<Entry<P>> {
        self.catch_up(now, queue.len() == 0);
        let entry = queue.pop()?;
        self.delay = now.since(entry.entered).as_secs_f64();
        Some(entry)
    }

    /// Runs the updates that were due until `now`.
    fn catch_up(&mut self, now: Time, empty: bool) {
        while self.next_update <= now {
            if empty {
                self.delay = 0.0;
            }
            self.compute();
            self.next_update = self.next_update + self.update;
            if self.drop_prob == 0.0 && self.delay == 0.0 && self.old_delay == 0.0 {
                // Nothing changes any more: go to the last update before `now`.
                let missed = now.since(self.next_update).as_nanos() / self.update.as_nanos();
                self.next_update = self.next_update
                    + Span::from_nanos(missed.saturating_mul(self.update.as_nanos()));
                self.burst_allowance = self.max_burst;
                if self.next_update <= now {
                    self.next_update = self.next_update + self.update;
                }
            }
        }
    }

    /// Section 4.2: the chance of a drop.
    fn compute(&mut self) {
        let scale = match self.drop_prob {
            p if p < 0.000_001 => 1.0 / 2048.0,
            p if p < 0.000_01 => 1.0 / 512.0,
            p if p < 0.000_1 => 1.0 / 128.0,
            p if p < 0.001 => 1.0 / 32.0,
            p if p < 0.01 => 1.0 / 8.0,
            p if p < 0.1 => 1.0 / 2.0,
            _ => 1.0,
        };
        let mut step =
            scale * (ALPHA * (self.delay - self.target) + BETA * (self.delay - self.old_delay));
        if self.drop_prob >= 0.1 && step > 0.02 {
            step = 0.02;
        }
        self.drop_prob += step;
        if self.delay == 0.0 && self.old_delay == 0.0 {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        // Section 4.3: bursts are let through while the queue is short.
        self.burst_allowance = (self.burst_allowance - self.update.as_secs_f64()).max(0.0);
        let short = self.delay < self.target / 2.0 && self.old_delay < self.target / 2.0;
        if self.drop_prob == 0.0 && short {
            self.burst_allowance = self.max_burst;
        }
        self.old_delay = self.delay;
    }
}

#[cfg(test)]
impl Pie {
    /// As after a long time above the target: the next packet but for a little is dropped.
    pub(crate) fn about_to_drop(&mut self) {
        self.burst_allowance = 0.0;
        self.old_delay = 1.0;
        self.drop_prob = 0.06;
        self.accumulated = 8.45;
    }
}

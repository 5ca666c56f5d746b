//! SEARCH (draft-chung-ccwg-search-09, its version 4.0): leave slow start when less is
//! delivered than was sent one round trip before, and let the queue run dry that has been
//! filled until then.
//!
//! The drain is described by its authors' own implementation.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use crate::Acked;
use crate::convert::{index, whole};

/// The window in which bytes are counted, initial round trips.
const WINDOW_FACTOR: f64 = 3.5;
/// Bins of this window.
const BINS: usize = 10;
/// Bins kept beyond the window: the round trip may grow by so much.
const EXTRA_BINS: usize = 15;
/// Leave when a share of this is missing.
const THRESH: f64 = 0.26;
/// What came in so many bins, about an initial round trip, is what the path holds without
/// a queue: the drain's aim.
const TARGET_BINS: usize = 3;
/// The aim is at least an initial window, packets (RFC 6928).
const LEAST_TARGET: f64 = 10.0;
/// While the queue drains, a packet leaves for so many that have arrived.
const DRAIN: f64 = 3.0;

/// Acknowledged and sent bytes at each bin's end.
#[derive(Debug, Clone, Default)]
pub struct Search {
    bin: Option<f64>,
    start: Time,
    /// Cumulative, newest last.
    acked_at: VecDeque<f64>,
    sent_at: VecDeque<f64>,
    acked: f64,
    sent: f64,
    drain: Option<Drain>,
}

#[derive(Debug, Clone, Copy)]
struct Drain {
    /// Bytes that the path holds.
    target: f64,
    /// Bytes that may leave for what has arrived.
    credit: f64,
}

impl Search {
    /// Whether the window grows no more.
    pub(super) fn draining(&self) -> bool {
        self.drain.is_some()
    }

    /// The window while the queue drains with `in_flight` bytes on the way, in packets of
    /// `packet` bytes, and whether it has drained.
    pub(super) fn drained(&mut self, in_flight: u64, packet: f64) -> Option<(f64, bool)> {
        let drain = self.drain.as_mut()?;
        let leaving = (drain.credit / packet).floor() * packet;
        drain.credit -= leaving;
        let target = drain.target.max(LEAST_TARGET * packet);
        let window = in_flight as f64 + leaving;
        Some((window.max(target), window <= target))
    }

    pub(super) fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes as f64;
    }

    pub(super) fn on_acked(&mut self, packet: &Acked) {
        if let Some(drain) = &mut self.drain {
            drain.credit += packet.bytes as f64 / DRAIN;
            return;
        }
        let rtt = packet.rtt();
        let bin = *self.bin.get_or_insert_with(|| {
            self.start = packet.now;
            rtt.as_secs_f64() * WINDOW_FACTOR / BINS as f64
        });
        let passed = packet.now.since(self.start).as_secs_f64();
        if passed >= bin {
            let skipped = passed / bin;
            if skipped > BINS as f64 {
                // Nothing came for a whole window: begin again.
                self.acked_at.clear();
                self.sent_at.clear();
            }
            let mut left = passed;
            while left >= bin {
                left -= bin;
                self.acked_at.push_back(self.acked);
                self.sent_at.push_back(self.sent);
            }
            let back = Span::from_nanos(whole(left * 1e9));
            self.start = Time::from_nanos(packet.now.as_nanos() - back.as_nanos());
            while self.acked_at.len() > BINS + 1 {
                self.acked_at.pop_front();
            }
            while self.sent_at.len() > BINS + EXTRA_BINS + 1 {
                self.sent_at.pop_front();
            }
            self.check(rtt.as_secs_f64() / bin);
        }
        self.acked += packet.bytes as f64;
    }

    /// Compares what arrived in the window with what was sent in the window one round
    /// trip of `back` bins earlier, interpolating between bins.
    fn check(&mut self, back: f64) {
        if self.acked_at.len() <= BINS {
            return;
        }
        let newest = self.acked_at.len() - 1;
        let arrived = self.acked_at[newest] - self.acked_at[newest - BINS];
        let sent = |bins_ago: f64| {
            let last = (self.sent_at.len() - 1) as f64;
            let at = last - bins_ago;
            if at < 0.0 {
                return None;
            }
            let low = index(at);
            let high = (low + 1).min(self.sent_at.len() - 1);
            let part = at - at.floor();
            Some(self.sent_at[low] * (1.0 - part) + self.sent_at[high] * part)
        };
        if let (Some(until), Some(from)) = (sent(back), sent(back + BINS as f64)) {
            let before = until - from;
            if before > 0.0 && (before - arrived) / before >= THRESH {
                self.drain = Some(Drain {
                    target: self.acked_at[newest] - self.acked_at[newest - TARGET_BINS],
                    credit: 0.0,
                });
            }
        }
    }
}

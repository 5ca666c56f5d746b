//! Packet-delivery opportunities as mahimahi records them: at each, up to 1504
//! bytes of what waits may leave; a packet may need several, and several small
//! packets may share one. An opportunity at which nothing waits is wasted.

use std::sync::Arc;

use bentpipe_units::Time;

use crate::spec::{AtEnd, Mahimahi};

/// Bytes of one opportunity (mahimahi: `PACKET_SIZE`).
const OPPORTUNITY: u32 = 1504;

/// Says when the last byte has left.
#[derive(Debug)]
pub struct Clock {
    trace: Arc<Mahimahi>,
    /// The opportunity in use, counted through all loops.
    current: u64,
    /// Bytes that it still has.
    left: u32,
}

impl Clock {
    /// An idle transmitter.
    pub fn new(trace: Arc<Mahimahi>) -> Self {
        Self {
            trace,
            current: 0,
            left: OPPORTUNITY,
        }
    }

    /// When opportunity `number` is; never, when the trace has ended.
    fn moment(&self, number: u64) -> Time {
        let count = self.trace.opportunities.len() as u64;
        let (round, place) = (number / count, number % count);
        if round > 0 && self.trace.at_end != AtEnd::Loop {
            // The link is down by now: what leaves is lost, so it may leave at once.
            return self.moment(count - 1);
        }
        let length = self.trace.opportunities.last().copied().unwrap_or(0);
        let place = usize::try_from(place).expect("an index into the trace");
        let ms = round
            .saturating_mul(length)
            .saturating_add(self.trace.opportunities[place]);
        Time::from_nanos(ms.saturating_mul(1_000_000))
    }

    /// The first opportunity that is not before `now`, from the current one on.
    fn seek(&mut self, now: Time) {
        if self.moment(self.current) >= now {
            return;
        }
        let count = self.trace.opportunities.len() as u64;
        let length = self.trace.opportunities.last().copied().unwrap_or(0).max(1);
        let mut next = self.current + 1;
        if self.trace.at_end == AtEnd::Loop {
            let ms = now.as_nanos() / 1_000_000;
            let round = ms / length;
            let inside = ms % length;
            let place = self.trace.opportunities.partition_point(|at| *at < inside) as u64;
            next = next.max((round * count + place).saturating_sub(1));
        }
        while self.moment(next) < now {
            let before = self.moment(next);
            next += 1;
            if self.trace.at_end != AtEnd::Loop && next >= count && self.moment(next) == before {
                break;
            }
        }
        self.current = next;
        self.left = OPPORTUNITY;
    }

    /// Sends `bytes` from `start` on; returns when the last byte has left.
    pub fn send(&mut self, start: Time, bytes: u32) -> Time {
        self.seek(start);
        let mut to_send = bytes;
        loop {
            if self.left == 0 {
                self.current += 1;
                self.left = OPPORTUNITY;
            }
            let now = to_send.min(self.left);
            to_send -= now;
            self.left -= now;
            if to_send == 0 {
                return self.moment(self.current).max(start);
            }
        }
    }
}

//! Controlled delay, RFC 8289: drops when the delay has stood above a target
//! for an interval, then ever faster until it falls.
//!
//! The names are those of the pseudo-code in section 5.

use bentpipe_units::{Span, Time, truncated};

use crate::entry::Entry;
use crate::fifo::Fifo;

/// A queue of less than this is never dropped from: one full packet (section 5.1).
const MAX_PACKET: u64 = 1514;

/// What CoDel asks for while it takes a packet out.
pub(crate) enum Signal<'a, P> {
    /// Drop this one.
    Drop(Entry<P>),
    /// Mark this one; the answer is whether it could be.
    Mark(&'a mut Entry<P>),
}

/// CoDel's state for one queue.
#[derive(Debug, Clone)]
pub struct CoDel {
    target: Span,
    interval: Span,
    ecn: bool,
    first_above_time: Option<Time>,
    drop_next: Time,
    count: u32,
    last_count: u32,
    dropping: bool,
}

/// What `dodequeue` (section 5.2) gives.
struct Taken<P> {
    entry: Option<Entry<P>>,
    ok_to_drop: bool,
}

impl CoDel {
    /// For an empty queue.
    pub fn new(target: Span, interval: Span, ecn: bool) -> Self {
        Self {
            target,
            interval,
            ecn,
            first_above_time: None,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
        }
    }

    /// `deque` of section 5.2: the next packet to send. `signal` drops and marks.
    pub(crate) fn pop<P>(
        &mut self,
        now: Time,
        queue: &mut Fifo<P>,
        signal: &mut impl FnMut(Signal<'_, P>) -> bool,
    ) -> Option<Entry<P>> {
        let mut taken = self.take(now, queue);
        if self.dropping {
            if !taken.ok_to_drop {
                self.dropping = false;
            }
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if self.signalled_by_mark(&mut taken, signal) {
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                if let Some(entry) = taken.entry.take() {
                    signal(Signal::Drop(entry));
                }
                taken = self.take(now, queue);
                if taken.ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if taken.ok_to_drop {
            if !self.signalled_by_mark(&mut taken, signal) {
                if let Some(entry) = taken.entry.take() {
                    signal(Signal::Drop(entry));
                }
                taken = self.take(now, queue);
            }
            self.dropping = true;
            // Section 5.4: the drop rate that controlled the queue last time is
            // the best guess when that was not long ago.
            let delta = self.count.saturating_sub(self.last_count);
            let recent =
                now.since(self.drop_next).as_nanos() < self.interval.as_nanos().saturating_mul(16);
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
        }
        taken.entry
    }

    fn signalled_by_mark<P>(
        &self,
        taken: &mut Taken<P>,
        signal: &mut impl FnMut(Signal<'_, P>) -> bool,
    ) -> bool {
        self.ecn
            && taken
                .entry
                .as_mut()
                .is_some_and(|entry| signal(Signal::Mark(entry)))
    }

    /// `dodequeue` of section 5.2.
    fn take<P>(&mut self, now: Time, queue: &mut Fifo<P>) -> Taken<P> {
        let entry = queue.pop();
        let above = entry.as_ref().is_some_and(|entry| {
            now.since(entry.entered) >= self.target && queue.bytes() > MAX_PACKET
        });
        let mut ok_to_drop = false;
        if !above {
            self.first_above_time = None;
        } else if let Some(since) = self.first_above_time {
            ok_to_drop = now >= since;
        } else {
            self.first_above_time = Some(now + self.interval);
        }
        Taken { entry, ok_to_drop }
    }

    /// Section 5.3: the next drop comes after interval / sqrt(count).
    fn control_law(&self, from: Time) -> Time {
        let nanos = self.interval.as_nanos() as f64 / f64::from(self.count.max(1)).sqrt();
        from + Span::from_nanos(truncated(nanos))
    }
}

//! The moments of timers and events: when a timer of the QUIC library's fires, and in which
//! order things happen that happen at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bentpipe_units::{Span, Time};

/// A scheduled event's place in time. Events of one moment happen in the order in which
/// they were scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// When.
    pub at: Time,
    order: u64,
}

impl Turn {
    /// After everything that is scheduled for `at`.
    pub fn last(at: Time) -> Self {
        Self {
            at,
            order: u64::MAX,
        }
    }
}

/// Hands out turns. Clones share one sequence.
#[derive(Debug, Clone, Default)]
pub struct Turns(Arc<AtomicU64>);

impl Turns {
    /// A turn at `at`, after all that were handed out for that moment before.
    pub fn next(&self, at: Time) -> Turn {
        let order = self.0.fetch_add(1, Ordering::Relaxed);
        Turn { at, order }
    }
}

/// The least time that it waits: a pacing delay that rounds to nothing would otherwise
/// stop the clock.
const STEP: Span = Span::from_nanos(1_000);

/// When a timer set to `wanted` at `now` fires: at a multiple of `granularity`, as those of
/// a real runtime do; exactly, if that is zero.
pub fn fires(wanted: Time, now: Time, granularity: Span) -> Time {
    let at = wanted.max(now + STEP).as_nanos();
    let granularity = granularity.as_nanos().max(1);
    Time::from_nanos(at.div_ceil(granularity).saturating_mul(granularity))
}

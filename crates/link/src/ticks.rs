//! A clock that ticks at regular moments.

use bentpipe_units::{Span, Time};

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

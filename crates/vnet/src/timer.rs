//! When a timer of the QUIC library's fires.

use bentpipe_units::{Span, Time};

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

//! The clock of one run.

use std::ops::{Add, Sub};

use crate::Span;

/// A moment: nanoseconds since the run began. Whoever runs the link keeps the
/// clock, real or virtual, and passes the moment in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The beginning of the run.
    pub const ZERO: Self = Self(0);

    /// A moment `nanos` nanoseconds into the run.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the run began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment, zero when it lies ahead.
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.as_nanos()))
    }
}

impl Sub for Time {
    type Output = Span;
    fn sub(self, earlier: Self) -> Span {
        self.since(earlier)
    }
}

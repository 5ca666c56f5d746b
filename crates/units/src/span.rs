//! Lengths of time, and the one that a packet spends on its way.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::ParseError;
use crate::decimal::Notation;

/// A length of time in whole nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

const UNITS: &[(&str, u64)] = &[
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000),
    ("ns", 1),
];

const SPAN: Notation = Notation {
    wanted: "a time",
    example: "250 ms",
    units: UNITS,
    base: "nanoseconds",
};

const ONE_WAY: Notation = Notation {
    wanted: "a one-way delay",
    example: "250 ms",
    units: UNITS,
    base: "nanoseconds",
};

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `nanos` nanoseconds.
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `millis` milliseconds.
    #[inline]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// The span in nanoseconds.
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// A span of `seconds`, rounded to a nanosecond; nothing below zero, 584 years above
    /// what a span holds.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self(crate::rounded(seconds * 1e9))
    }

    /// The span in seconds, as a float for printing and plotting.
    #[inline]
    pub fn as_secs_f64(self) -> f64 {
        self.as_duration().as_secs_f64()
    }

    /// The span as the standard library has it.
    #[inline]
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl std::ops::Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl FromStr for Span {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        SPAN.parse(text).map(Self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        SPAN.print(self.0, out)
    }
}

/// The time from one end of a hop to the other, in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct OneWayDelay(Span);

impl OneWayDelay {
    /// A one-way delay of `span`.
    pub const fn new(span: Span) -> Self {
        Self(span)
    }

    /// The delay as a plain length of time.
    pub const fn span(self) -> Span {
        self.0
    }
}

impl FromStr for OneWayDelay {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        ONE_WAY.parse(text).map(|nanos| Self(Span(nanos)))
    }
}

impl fmt::Display for OneWayDelay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

crate::serde_as_text!(
    Span,
    "A time: a number with its unit.",
    r"^\s*[0-9]+(\.[0-9]{1,18})?\s*(h|min|s|ms|us|µs|ns)\s*$",
    ["250 ms", "1.5 s"]
);
crate::serde_as_text!(
    OneWayDelay,
    "A one-way delay: a number with its unit.",
    r"^\s*[0-9]+(\.[0-9]{1,18})?\s*(h|min|s|ms|us|µs|ns)\s*$",
    ["250 ms"]
);

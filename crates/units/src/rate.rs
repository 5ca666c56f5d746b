//! Rates.

use std::fmt;
use std::str::FromStr;

use crate::decimal::Notation;
use crate::{Bytes, ParseError, Span};

/// A rate in whole bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

const NOTATION: Notation = Notation {
    wanted: "a rate",
    example: "20 Mbit/s",
    units: &[
        ("Gbit/s", 1_000_000_000),
        ("Mbit/s", 1_000_000),
        ("kbit/s", 1_000),
        ("bit/s", 1),
    ],
    base: "bits per second",
};

impl Rate {
    /// A rate of `bits` per second.
    pub const fn from_bits_per_second(bits: u64) -> Self {
        Self(bits)
    }

    /// The rate in bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// What passes in `span` at this rate, whole bytes rounded down: the
    /// bandwidth-delay product when `span` is a round-trip time.
    pub fn bytes_in(self, span: Span) -> Bytes {
        let bytes = u128::from(self.0) * u128::from(span.as_nanos()) / 8 / 1_000_000_000;
        Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// How long `bytes` take at this rate, rounded up to a nanosecond; `None`
    /// at a rate of zero or past 584 years.
    pub fn time_for(self, bytes: Bytes) -> Option<Span> {
        let bits = u128::from(bytes.as_u64()) * 8 * 1_000_000_000;
        let nanos =
            bits.checked_next_multiple_of(u128::from(self.0).max(1))? / u128::from(self.0).max(1);
        if self.0 == 0 {
            return None;
        }
        u64::try_from(nanos).ok().map(Span::from_nanos)
    }
}

impl FromStr for Rate {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        NOTATION.parse(text).map(Self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        NOTATION.print(self.0, out)
    }
}

crate::serde_as_text!(
    Rate,
    "A rate: a number with its unit.",
    r"^\s*[0-9]+(\.[0-9]{1,18})?\s*(Gbit/s|Mbit/s|kbit/s|bit/s)\s*$",
    ["20 Mbit/s", "512 kbit/s"]
);

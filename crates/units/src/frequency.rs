//! Frequencies and bandwidths.

use std::fmt;
use std::str::FromStr;

use crate::ParseError;
use crate::decimal::Notation;

/// A frequency or a bandwidth in whole hertz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frequency(u64);

const NOTATION: Notation = Notation {
    wanted: "a bandwidth",
    example: "50 MHz",
    units: &[
        ("GHz", 1_000_000_000),
        ("MHz", 1_000_000),
        ("kHz", 1_000),
        ("Hz", 1),
    ],
    base: "hertz",
};

impl Frequency {
    /// A frequency of `hertz`.
    pub const fn from_hertz(hertz: u64) -> Self {
        Self(hertz)
    }

    /// The frequency in hertz.
    pub const fn hertz(self) -> u64 {
        self.0
    }
}

impl FromStr for Frequency {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        NOTATION.parse(text).map(Self)
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        NOTATION.print(self.0, out)
    }
}

crate::serde_as_text!(
    Frequency,
    "A bandwidth: a number with its unit.",
    r"^\s*[0-9]+(\.[0-9]{1,18})?\s*(GHz|MHz|kHz|Hz)\s*$",
    ["50 MHz"]
);

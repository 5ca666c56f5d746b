//! Ratios of powers.

use std::fmt;
use std::str::FromStr;

use crate::ParseError;

/// A ratio of powers in decibels: a carrier over its noise, an attenuation, a margin.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Decibel(f64);

impl Decibel {
    /// A ratio of one.
    pub const ZERO: Self = Self(0.0);

    /// A ratio of `decibels`; `None` when that is not a finite number.
    pub fn new(decibels: f64) -> Option<Self> {
        decibels.is_finite().then_some(Self(decibels + 0.0))
    }

    /// The ratio in decibels.
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl FromStr for Decibel {
    type Err = ParseError;
    fn from_str(value: &str) -> Result<Self, ParseError> {
        let error = |why: &str| ParseError {
            value: value.to_owned(),
            wanted: "a ratio of powers",
            why: why.to_owned(),
            example: "17.5 dB",
        };
        let number = value
            .trim()
            .strip_suffix("dB")
            .ok_or_else(|| error("it has no dB behind it"))?
            .trim();
        number
            .parse()
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| error("it is not a number of dB"))
    }
}

impl fmt::Display for Decibel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} dB", self.0)
    }
}

crate::serde_as_text!(
    Decibel,
    "A ratio of powers in decibels.",
    r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*dB\s*$",
    ["17.5 dB", "-1.2 dB"]
);

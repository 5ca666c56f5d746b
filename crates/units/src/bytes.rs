//! Amounts of data.

use std::fmt;
use std::str::FromStr;

use crate::ParseError;
use crate::decimal::Notation;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

const NOTATION: Notation = Notation {
    wanted: "an amount of data",
    example: "1500 B, 64 KiB or 2 MB",
    units: &[
        ("GiB", 1 << 30),
        ("GB", 1_000_000_000),
        ("MiB", 1 << 20),
        ("MB", 1_000_000),
        ("KiB", 1 << 10),
        ("kB", 1_000),
        ("B", 1),
    ],
    base: "bytes",
};

impl Bytes {
    /// `count` bytes.
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// The number of bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl FromStr for Bytes {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        NOTATION.parse(text).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        NOTATION.print(self.0, out)
    }
}

crate::serde_as_text!(
    Bytes,
    "An amount of data: a number with its unit; MB is 10^6 bytes, MiB 2^20.",
    r"^\s*[0-9]+(\.[0-9]{1,18})?\s*(GiB|GB|MiB|MB|KiB|kB|B)\s*$",
    ["1500 B", "10 MiB"]
);

//! Probabilities.

use std::fmt;
use std::str::FromStr;

use crate::ParseError;

/// A probability between 0 and 1, written as a percentage.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Probability(f64);

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);

    /// A probability of `p`; `None` outside 0 to 1.
    pub fn new(p: f64) -> Option<Self> {
        // `+ 0.0` makes a negative zero positive, so that it prints as people write it.
        (0.0..=1.0).contains(&p).then_some(Self(p + 0.0))
    }

    /// The probability as a number from 0 to 1.
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = ParseError;
    fn from_str(value: &str) -> Result<Self, ParseError> {
        let error = |why: &str| ParseError {
            value: value.to_owned(),
            wanted: "a probability",
            why: why.to_owned(),
            example: "0.01 %",
        };
        let number = value
            .trim()
            .strip_suffix('%')
            .ok_or_else(|| error("it has no % behind it"))?;
        // Shifting the decimal point in the text keeps "0.1 %" exactly the double nearest 0.001.
        let number = number.trim();
        if number.contains(['e', 'E']) {
            return Err(error("it is not a plain number of percent"));
        }
        let p = format!("{number}e-2")
            .parse()
            .map_err(|_| error("it is not a number of percent"))?;
        Self::new(p).ok_or_else(|| error("it is not between 0 % and 100 %"))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shortest digits that read back as the same double, their point moved
        // two places: multiplying by 100 would round.
        let scientific = format!("{:e}", self.0);
        let (mantissa, exponent) = scientific.split_once('e').expect("Rust prints an exponent");
        let digits = mantissa.replace('.', "");
        let point = exponent
            .parse::<isize>()
            .expect("the exponent is an integer")
            + 3;
        match usize::try_from(point) {
            _ if self.0 == 0.0 => write!(out, "0 %"),
            Ok(point) if point > 0 && point < digits.len() => {
                write!(out, "{}.{} %", &digits[..point], &digits[point..])
            }
            Ok(point) if point > 0 => write!(out, "{digits:0<point$} %"),
            _ => write!(out, "0.{}{digits} %", "0".repeat(point.unsigned_abs())),
        }
    }
}

crate::serde_as_text!(
    Probability,
    "A probability in percent.",
    r"^\s*\+?([0-9]+\.?[0-9]*|\.[0-9]+)\s*%\s*$",
    ["0.01 %", "3 %"]
);

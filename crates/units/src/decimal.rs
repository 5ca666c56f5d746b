//! Exact decimal numbers with a unit behind them.

use std::fmt;
use std::str::FromStr;

/// Why a text is not the quantity that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not {wanted}: {why}; write it like {example:?}")]
pub struct ParseError {
    /// The text as it was given.
    pub value: String,
    /// What it should have been, with its article: "a rate".
    pub wanted: &'static str,
    /// What is wrong with it.
    pub why: String,
    /// A correct one.
    pub example: &'static str,
}

/// How one kind of quantity is written.
pub(crate) struct Notation {
    pub wanted: &'static str,
    pub example: &'static str,
    /// Unit names with their size in the quantity's base unit, the preferred
    /// name of each size first, sizes descending.
    pub units: &'static [(&'static str, u64)],
    /// What a fraction of the base unit would be a fraction of.
    pub base: &'static str,
}

impl Notation {
    pub(crate) fn error(&self, value: &str, why: impl Into<String>) -> ParseError {
        ParseError {
            value: value.to_owned(),
            wanted: self.wanted,
            why: why.into(),
            example: self.example,
        }
    }

    /// Parses `value` into a whole number of base units.
    pub(crate) fn parse(&self, value: &str) -> Result<u64, ParseError> {
        let text = value.trim();
        let split = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(text.len());
        let (number, unit) = (&text[..split], text[split..].trim());
        if text.starts_with('-') {
            return Err(self.error(value, "it is negative"));
        }
        let (mantissa, scale) =
            decimal(number).ok_or_else(|| self.error(value, "it has no number in front"))?;
        let names = || {
            self.units
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let factor = match self.units.iter().find(|(name, _)| *name == unit) {
            Some((_, factor)) => *factor,
            None if unit.is_empty() => {
                return Err(self.error(value, format!("it has no unit (one of {})", names())));
            }
            None => {
                return Err(self.error(value, format!("{unit:?} is not one of {}", names())));
            }
        };
        let product = mantissa
            .checked_mul(u128::from(factor))
            .ok_or_else(|| self.error(value, "it is too large"))?;
        let divisor = 10u128.pow(scale);
        if product % divisor != 0 {
            return Err(self.error(value, format!("it is not a whole number of {}", self.base)));
        }
        u64::try_from(product / divisor).map_err(|_| self.error(value, "it is too large"))
    }

    /// Prints `amount` in the largest unit that needs at most three decimals.
    pub(crate) fn print(&self, amount: u64, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |factor: u64| (u128::from(amount) * 1000) % u128::from(factor) == 0;
        let (name, factor) = self
            .units
            .iter()
            .find(|(_, factor)| amount >= *factor && exact(*factor))
            .or(self.units.iter().find(|(_, factor)| *factor == 1))
            .expect("every notation has its base unit");
        let thousandths = u128::from(amount) * 1000 / u128::from(*factor);
        let (whole, rest) = (thousandths / 1000, thousandths % 1000);
        if rest == 0 {
            write!(out, "{whole} {name}")
        } else {
            let decimals = format!("{rest:03}");
            write!(out, "{whole}.{} {name}", decimals.trim_end_matches('0'))
        }
    }
}

/// "12.50" as (1250, 2): the digits and how many of them are decimals.
fn decimal(number: &str) -> Option<(u128, u32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || number.ends_with('.') || fraction.contains('.') {
        return None;
    }
    let scale = u32::try_from(fraction.len())
        .ok()
        .filter(|scale| *scale <= 18)?;
    Some((format!("{whole}{fraction}").parse().ok()?, scale))
}

pub(crate) fn deserialize_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err = ParseError>,
    D: serde::Deserializer<'de>,
{
    struct Text<T>(std::marker::PhantomData<T>);
    impl<T: FromStr<Err = ParseError>> serde::de::Visitor<'_> for Text<T> {
        type Value = T;
        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            // The empty text is never a quantity, so its error names the notation.
            match "".parse::<T>() {
                Err(error) => {
                    write!(
                        out,
                        "{} in quotes with its unit, like {:?}",
                        error.wanted, error.example
                    )
                }
                Ok(_) => write!(out, "a quantity in quotes with its unit"),
            }
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_str(Text(std::marker::PhantomData))
}

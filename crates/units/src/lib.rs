//! The quantities of a link as types: they parse from what people write
//! (`"20 Mbit/s"`, `"250 ms"`, `"0.01 %"`), print the same way, and refuse a
//! conversion that would lose precision.
//!
//! Mbit is 10^6 bit, MB is 10^6 bytes, MiB is 2^20 bytes.

mod conversion;
mod decimal;
mod rate;
mod bytes;
mod span;
mod probability;
mod frequency;
mod decibel;
mod time;

pub use bytes::Bytes;
pub use conversion::{rounded, truncated};
pub use decibel::Decibel;
pub use decimal::ParseError;
pub use frequency::Frequency;
pub use probability::Probability;
pub use rate::Rate;
pub use span::{OneWayDelay, Span};
pub use time::Time;

/// Serialises a quantity as the text that people write, and describes that text.
macro_rules! serde_as_text {
    ($type:ident, $description:literal, $pattern:literal, $examples:expr) => {
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": $description,
                    "pattern": $pattern,
                    "examples": $examples
                })
            }
        }
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::decimal::deserialize_text(deserializer)
            }
        }
    };
}
use serde_as_text;

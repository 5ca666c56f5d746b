//! An outage that a change begins or ends.

use std::fmt;

use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An outage of the link: everything whose last bit leaves meanwhile is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum LinkOutage {
    /// `true`: from now on; `false`: no longer.
    Switched(bool),
    /// From now on for so long, and no shorter than one that lasts already.
    For(Span),
}

impl From<bool> for LinkOutage {
    fn from(down: bool) -> Self {
        Self::Switched(down)
    }
}

impl<'de> Deserialize<'de> for LinkOutage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl serde::de::Visitor<'_> for Either {
            type Value = LinkOutage;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("true, false or a time like \"2 s\"")
            }
            fn visit_bool<E: serde::de::Error>(self, down: bool) -> Result<LinkOutage, E> {
                Ok(LinkOutage::Switched(down))
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<LinkOutage, E> {
                text.parse().map(LinkOutage::For).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

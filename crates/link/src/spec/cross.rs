//! Cross traffic.

use bentpipe_units::{Bytes, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::on_off::OnOff;

/// Somebody else's packets in the same queue. They end where the link ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cross {
    /// At the IP level, while it sends.
    pub rate: Rate,
    /// Size of its packets at the IP level.
    #[serde(default = "full_packet")]
    pub packet: Bytes,
    /// When it begins.
    #[serde(default)]
    pub from: Span,
    /// When it ends; never when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Span>,
    /// Sends this long, then pauses for `off`; always when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Span>,
    /// How long it pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<Span>,
    /// `on` and `off` are means of exponential times instead of exact ones.
    #[serde(default)]
    pub exponential: bool,
}

impl Cross {
    pub(crate) fn on_off(&self) -> OnOff {
        OnOff {
            from: self.from,
            until: self.until,
            pauses: self.on.zip(self.off),
            exponential: self.exponential,
        }
    }
}

fn full_packet() -> Bytes {
    Bytes::new(1500)
}

//! Contending terminals: what others ask of the same carriers.

use bentpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::on_off::OnOff;

/// Other terminals on the carriers of a DVB-RCS2 return link, as their requests for
/// RBDC. What they ask for is divided in proportion when there is not enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ContendingTerminals {
    /// What they ask for together, while they do.
    pub rate: Rate,
    /// When they begin.
    #[serde(default)]
    pub from: Span,
    /// When they end; never when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Span>,
    /// They ask this long, then pause for `off`; always when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Span>,
    /// How long they pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<Span>,
    /// `on` and `off` are means of exponential times instead of exact ones.
    #[serde(default)]
    pub exponential: bool,
}

impl ContendingTerminals {
    pub(crate) fn on_off(&self) -> OnOff {
        OnOff {
            from: self.from,
            until: self.until,
            pauses: self.on.zip(self.off),
            exponential: self.exponential,
        }
    }
}

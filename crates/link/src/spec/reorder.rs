//! Packets out of order.

use bentpipe_units::{Probability, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Chosen packets arrive late, so that others overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The chance of each packet.
    pub chance: Probability,
    /// How much later it arrives.
    pub by: Span,
}

//! The damage of packets.

use bentpipe_units::Probability;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::loss::Bounded;
use super::text_or_table::{short_form, text_or_table};

/// The damage of one direction: independent in the short form.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "kebab-case")]
#[schemars(transform = short_form)]
pub enum CorruptSpec {
    /// Each packet with the same chance, independent of all others.
    Independent(Probability),
    /// Independent, but only so many in a row.
    Bounded(Bounded),
}

text_or_table!(
    CorruptSpec,
    Independent,
    "a probability like \"0.1 %\" or a table: bounded"
);

impl Default for CorruptSpec {
    fn default() -> Self {
        Self::Independent(Probability::ZERO)
    }
}

impl CorruptSpec {
    pub(crate) fn is_never(&self) -> bool {
        *self == Self::default()
    }
}

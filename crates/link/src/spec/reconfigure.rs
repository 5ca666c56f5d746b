//! The regular change of satellites of a low constellation.

use bentpipe_units::{Probability, Span, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A low constellation gives every terminal another satellite at fixed moments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reconfigure {
    /// From one change to the next.
    #[serde(default = "fifteen_s")]
    pub every: Span,
    /// When the first change comes.
    #[serde(default = "fifteen_s")]
    pub first: Span,
    /// Each time another delay, evenly drawn from nothing to this, on top of `delay`.
    #[serde(default)]
    pub step: Span,
    /// The transmitter stops this long.
    #[serde(default)]
    pub gap: Span,
    /// After the gap, this long,
    #[serde(default)]
    pub burst: Span,
    /// packets are lost with this chance.
    #[serde(default)]
    pub loss: Probability,
}

impl Reconfigure {
    /// How many changes there were until `at`, and how long the last one is past.
    pub(crate) fn last(&self, at: Time) -> Option<(u64, Span)> {
        let since = at.as_nanos().checked_sub(self.first.as_nanos())?;
        let every = self.every.as_nanos();
        Some((since / every, Span::from_nanos(since % every)))
    }
}

fn fifteen_s() -> Span {
    Span::from_millis(15_000)
}

//! The losses on the air.

use std::sync::Arc;

use bentpipe_units::Probability;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text_or_table::{short_form, text_or_table};
use super::trace::AtEnd;

/// The losses of one direction: independent in the short form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "kebab-case")]
#[schemars(transform = short_form)]
pub enum LossSpec {
    /// Each with the same chance, independent of all others.
    Bernoulli(Probability),
    /// Independent, but only so many in a row.
    Bounded(Bounded),
    /// Independent, for each of the fragments that it crosses a lossy hop in.
    Fragmented(Fragmented),
    /// Two states, each with a chance of its own (Gilbert 1960, Elliott 1963).
    GilbertElliott(GilbertElliott),
    /// So many in a row out of every so many.
    Periodic(Periodic),
    /// As it was recorded.
    Trace(Arc<LossTrace>),
}

text_or_table!(
    LossSpec,
    Bernoulli,
    "a probability like \"0.1 %\" or a table: bounded, fragmented, gilbert-elliott, periodic or trace"
);

/// What the losses count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LossPer {
    /// IP packets.
    Packet,
    /// BBFRAMEs of a DVB-S2 carrier: every packet with a byte in a lost one is lost.
    Bbframe,
    /// Bursts of a DVB-RCS2 return link, likewise.
    Burst,
}

impl LossPer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Bbframe => "bbframe",
            Self::Burst => "burst",
        }
    }
}

/// Independent draws of which only so many in a row may come true, as the QUIC
/// Interop Runner's network loses and damages packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bounded {
    /// The chance of each, until there were too many.
    pub chance: Probability,
    /// After so many in a row the next one is spared.
    pub max_burst: u32,
}

impl Bounded {
    /// The share for which it comes true in the long run.
    pub fn mean(&self) -> f64 {
        // Each run ends with one that is spared: the length of the run before it is
        // p + p^2 + ... + p^max_burst on average.
        let p = self.chance.as_f64();
        let run = if p < 1.0 {
            p * (1.0 - p.powf(self.max_burst.into())) / (1.0 - p)
        } else {
            self.max_burst.into()
        };
        run / (run + 1.0)
    }
}

/// Independent losses of the fragments that each packet or frame crosses a hop in: it is lost
/// with any of them, with a chance of `1 - (1 - chance)^fragments`. So netem loses what
/// OpenSAND sends between its hosts: a BBFRAME is longer than an Ethernet frame, and IP cuts it
/// in two.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fragmented {
    /// The chance of each fragment.
    pub chance: Probability,
    /// Fragments of each packet or frame.
    pub fragments: u32,
}

impl Fragmented {
    /// The share that is lost in the long run.
    pub fn mean(&self) -> f64 {
        1.0 - (1.0 - self.chance.as_f64()).powf(self.fragments.into())
    }
}

/// A good and a bad state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GilbertElliott {
    /// Chance to go from good to bad after each packet.
    pub to_bad: Probability,
    /// Chance to go from bad to good after each packet: its inverse is a bad time's mean length.
    pub to_good: Probability,
    /// Loss in the good state.
    #[serde(default)]
    pub loss_good: Probability,
    /// Loss in the bad state.
    #[serde(default = "always")]
    pub loss_bad: Probability,
}

/// Losses that come in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Periodic {
    /// Out of so many,
    pub every: u32,
    /// so many in a row,
    pub lose: u32,
    /// after so many at the start that are spared.
    #[serde(default)]
    pub first: u32,
}

/// A sequence of fates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossTrace {
    /// One character each: `.` passes, `x` is lost. White space does not count.
    #[serde(default)]
    pub fates: String,
    /// Instead: a file of the same, relative to the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What happens after the last: its fate holds, all begins again, or all is lost.
    pub at_end: AtEnd,
}

impl From<Probability> for LossSpec {
    fn from(chance: Probability) -> Self {
        Self::Bernoulli(chance)
    }
}

impl Default for LossSpec {
    fn default() -> Self {
        Self::Bernoulli(Probability::ZERO)
    }
}

impl LossSpec {
    /// The share that is lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Bernoulli(chance) => chance.as_f64(),
            Self::Bounded(bounded) => bounded.mean(),
            Self::Fragmented(fragmented) => fragmented.mean(),
            Self::GilbertElliott(model) => {
                let (p, r) = (model.to_bad.as_f64(), model.to_good.as_f64());
                (p * model.loss_bad.as_f64() + r * model.loss_good.as_f64()) / (p + r)
            }
            Self::Periodic(periodic) => f64::from(periodic.lose) / f64::from(periodic.every),
            Self::Trace(trace) => {
                let lost = trace.fates.chars().filter(|fate| *fate == 'x').count();
                lost as f64 / trace.fates.len().max(1) as f64
            }
        }
    }
}

fn always() -> Probability {
    Probability::new(1.0).unwrap_or_default()
}

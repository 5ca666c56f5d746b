//! The rate of the transmitter.

use std::sync::Arc;

use bentpipe_units::{Rate, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dvb_rcs2::DvbRcs2;
use super::dvb_s2::DvbS2;
use super::loss::LossPer;
use super::text_or_table::{short_form, text_or_table};
use super::trace::{AtEnd, Trace};

/// The capacity of one direction: constant in the short form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "kebab-case")]
#[schemars(transform = short_form)]
pub enum RateSpec {
    /// So much at the IP level, always.
    Constant(Rate),
    /// A rate at the IP level that changes; zero means that packets wait.
    Trace(Arc<Trace<Rate>>),
    /// A mahimahi packet-delivery trace.
    Mahimahi(Arc<Mahimahi>),
    /// A DVB-S2 carrier (ETSI EN 302 307-1): BBFRAMEs, GSE, MODCODs.
    #[serde(rename = "dvb-s2")]
    DvbS2(Arc<DvbS2>),
    /// A DVB-RCS2 return link (ETSI EN 301 545-2): superframes, bursts, capacity classes.
    #[serde(rename = "dvb-rcs2")]
    DvbRcs2(Arc<DvbRcs2>),
}

text_or_table!(
    RateSpec,
    Constant,
    "a rate in quotes with its unit, like \"20 Mbit/s\", or a table: trace, mahimahi, dvb-s2 or dvb-rcs2"
);

impl From<Rate> for RateSpec {
    fn from(rate: Rate) -> Self {
        Self::Constant(rate)
    }
}

/// Moments at which one packet of up to 1504 bytes may leave, as mahimahi records them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mahimahi {
    /// Milliseconds since the start, one for each opportunity, never decreasing.
    #[serde(default)]
    pub opportunities: Vec<u64>,
    /// Instead: a file with one such number on each line, relative to the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What happens after the last one. mahimahi itself loops.
    pub at_end: AtEnd,
}

impl RateSpec {
    /// When the link ends, if a trace ends it.
    pub(crate) fn ends(&self) -> Option<Time> {
        match self {
            Self::Constant(_) => None,
            Self::Trace(trace) => trace.ends(),
            Self::Mahimahi(trace) => match (trace.at_end, trace.opportunities.last()) {
                (AtEnd::End, Some(ms)) => Some(Time::from_nanos(ms.saturating_mul(1_000_000))),
                _ => None,
            },
            Self::DvbS2(spec) => spec.radio.fade.as_ref().and_then(Trace::ends),
            Self::DvbRcs2(spec) => spec.radio.fade.as_ref().and_then(Trace::ends),
        }
    }

    /// The name of the unit in which losses may be counted, besides packets.
    pub(crate) fn frame(&self) -> Option<LossPer> {
        match self {
            Self::DvbS2(_) => Some(LossPer::Bbframe),
            Self::DvbRcs2(_) => Some(LossPer::Burst),
            _ => None,
        }
    }
}

//! Scheduled outages.

use bentpipe_units::{Span, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A time in which nothing comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// When it begins.
    pub from: Span,
    /// How long it lasts.
    pub r#for: Span,
    /// How often it comes again, from one beginning to the next; once when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
    /// What becomes of the packets.
    #[serde(default)]
    pub packets: OutagePackets,
}

/// What becomes of the packets of an outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutagePackets {
    /// The transmitter sends on and everything is lost.
    #[default]
    Lost,
    /// The transmitter stops and packets wait in the queue.
    Wait,
}

impl Outage {
    /// When the outage is over that `at` lies in, the longest of `outages` where several
    /// do; `None` outside of all.
    pub(crate) fn over(outages: &[Self], at: Time) -> Option<Time> {
        outages
            .iter()
            .filter_map(|outage| {
                let since = at.as_nanos().checked_sub(outage.from.as_nanos())?;
                let since = outage.every.map_or(since, |every| since % every.as_nanos());
                let left = outage.r#for.as_nanos().checked_sub(since)?;
                (left > 0).then(|| at + Span::from_nanos(left))
            })
            .max()
    }
}

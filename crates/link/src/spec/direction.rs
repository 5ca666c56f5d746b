//! One direction of the satellite hop, and what may change of it while it runs.

use std::borrow::Cow;
use std::fmt;

use bentpipe_units::{OneWayDelay, Probability, Rate, Span, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::corrupt::CorruptSpec;
use super::cross::Cross;
use super::delay::{DelaySpec, Jitter};
use super::link_outage::LinkOutage;
use super::loss::{LossPer, LossSpec};
use super::outage::Outage;
use super::queue::QueueSpec;
use super::rate::RateSpec;
use super::reconfigure::Reconfigure;
use super::reorder::Reorder;

/// One direction of the satellite hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectionSpec {
    /// What the transmitter sends.
    pub rate: RateSpec,
    /// From the end of a packet's transmission to its arrival.
    pub delay: DelaySpec,
    /// More delay, another one for each packet or from time to time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// What is lost on the air.
    #[serde(default)]
    pub loss: LossSpec,
    /// What the losses count; must be said where the link sends frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_per: Option<LossPer>,
    /// Frames that the receiver holds behind a missing one, in case that it is only late: with
    /// more than these it goes on without it. Where the losses count frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resequence: Option<u32>,
    /// What comes out damaged.
    #[serde(default, skip_serializing_if = "CorruptSpec::is_never")]
    pub corrupt: CorruptSpec,
    /// Chance of a packet to come out twice.
    #[serde(default, skip_serializing_if = "is_never")]
    pub duplicate: Probability,
    /// Packets that are overtaken; without it they stay in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// What may wait for the transmitter.
    pub queue: QueueSpec,
    /// Times in which nothing comes through.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// Regular change of satellites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconfigure: Option<Reconfigure>,
    /// Somebody else's packets in the same queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cross: Vec<Cross>,
    /// What changes while it runs. The scenario's `[[switch]]`es are added to it.
    #[serde(
        default,
        skip_serializing_if = "none_is_written",
        serialize_with = "written"
    )]
    pub change: Vec<ScheduledChange>,
}

/// What changes while the link runs. What is not given stays.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// A constant rate from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// A constant delay from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<OneWayDelay>,
    /// Another delay variation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// Other losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossSpec>,
    /// Other damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<CorruptSpec>,
    /// Another chance of a packet to come out twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Probability>,
    /// Other packets that are overtaken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Another queue, which takes over what waits as far as it has room. A limit in time is
    /// what that takes at the rate of the moment, one in bandwidth-delay products is of the
    /// link's own round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueSpec>,
    /// `true`: everything is lost from now on; `false`: no longer; a time: lost for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<LinkOutage>,
    /// Another link altogether takes over. What waits for the old one is lost,
    /// what is on the air still arrives.
    #[serde(skip)]
    pub link: Option<Box<DirectionSpec>>,
}

impl Change {
    /// Another link that takes over.
    pub fn to_link(link: DirectionSpec) -> Self {
        Self {
            link: Some(Box::new(link)),
            ..Self::default()
        }
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A change that the scenario plans, written as one table: the moment beside what changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "FlatChange")]
pub struct ScheduledChange {
    /// When.
    pub at: Span,
    /// What.
    #[serde(flatten)]
    pub change: Change,
}

/// The table of a [`ScheduledChange`] as it is read: serde's `flatten` would lose the
/// place of an error, and what could stand there instead.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FlatChange {
    /// When.
    at: Span,
    /// A constant rate from then on.
    #[serde(default)]
    rate: Option<Rate>,
    /// A constant delay from then on.
    #[serde(default)]
    delay: Option<OneWayDelay>,
    /// Another delay variation.
    #[serde(default)]
    jitter: Option<Jitter>,
    /// Other losses.
    #[serde(default)]
    loss: Option<LossSpec>,
    /// Other damage.
    #[serde(default)]
    corrupt: Option<CorruptSpec>,
    /// Another chance of a packet to come out twice.
    #[serde(default)]
    duplicate: Option<Probability>,
    /// Other packets that are overtaken.
    #[serde(default)]
    reorder: Option<Reorder>,
    /// Another queue, which takes over what waits as far as it has room.
    #[serde(default)]
    queue: Option<QueueSpec>,
    /// `true`: everything is lost from then on; `false`: no longer; a time: lost for so long.
    #[serde(default)]
    outage: Option<LinkOutage>,
}

impl From<FlatChange> for ScheduledChange {
    fn from(flat: FlatChange) -> Self {
        Self {
            at: flat.at,
            change: Change {
                rate: flat.rate,
                delay: flat.delay,
                jitter: flat.jitter,
                loss: flat.loss,
                corrupt: flat.corrupt,
                duplicate: flat.duplicate,
                reorder: flat.reorder,
                queue: flat.queue,
                outage: flat.outage,
                link: None,
            },
        }
    }
}

impl JsonSchema for ScheduledChange {
    fn schema_name() -> Cow<'static, str> {
        "ScheduledChange".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        FlatChange::json_schema(generator)
    }
}

impl DirectionSpec {
    /// A direction with nothing but these.
    pub fn new(
        rate: impl Into<RateSpec>,
        delay: impl Into<DelaySpec>,
        loss: impl Into<LossSpec>,
        queue: impl Into<QueueSpec>,
    ) -> Self {
        Self {
            rate: rate.into(),
            delay: delay.into(),
            jitter: None,
            loss: loss.into(),
            loss_per: None,
            resequence: None,
            corrupt: CorruptSpec::default(),
            duplicate: Probability::ZERO,
            reorder: None,
            queue: queue.into(),
            outages: Vec::new(),
            reconfigure: None,
            cross: Vec::new(),
            change: Vec::new(),
        }
    }

    /// When the link goes down for good, if a trace ends it.
    pub(crate) fn ends(&self) -> Option<Time> {
        [self.rate.ends(), self.delay.ends()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// On one line as `bentpipe link set` takes it, `rate=5 Mbit/s, outage=true`; what is
/// longer than people read is cut.
impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 100;
        let written = toml::Table::try_from(self).map_err(|_| fmt::Error)?;
        let switch = self.link.as_ref().map(|_| "switch".to_owned());
        let values = written.into_iter().map(|(key, value)| {
            let text = match value {
                toml::Value::String(text) => text,
                value => value.to_string(),
            };
            match text.char_indices().nth(MOST) {
                Some((end, _)) => format!("{key}={}...", &text[..end]),
                None => format!("{key}={text}"),
            }
        });
        let all: Vec<_> = switch.into_iter().chain(values).collect();
        out.write_str(&all.join(", "))
    }
}

fn is_never(chance: &Probability) -> bool {
    *chance == Probability::ZERO
}

fn written<S: serde::Serializer>(
    changes: &[ScheduledChange],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(changes.iter().filter(|change| change.change.link.is_none()))
}

/// Changes of link are written as `[[switch]]`.
fn none_is_written(changes: &[ScheduledChange]) -> bool {
    changes.iter().all(|change| change.change.link.is_some())
}

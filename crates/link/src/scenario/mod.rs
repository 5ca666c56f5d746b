//! A link as people write it: parse, check, echo.
//!
//! Each stage of a direction has a short form in text and, where it has more
//! than one model, a table that names the model. Modules stand in the order of
//! the stages.

mod text_or_table;
mod files;
mod locate;
mod trace;
mod turns;
mod queue;
mod rate;
mod others;
mod loss;
mod corrupt;
mod delay;
mod events;
mod orbit;

use bentpipe_units::{Bytes, OneWayDelay, Probability, Rate, Span, Time};
use serde::{Deserialize, Serialize};

pub use corrupt::CorruptSpec;
pub use delay::{DelaySpec, Jitter, Orbit, Relay};
pub use events::{Change, Cross, Outage, OutagePackets, Reconfigure, Reorder, Scheduled, Switch};
pub use files::Reader;
pub use loss::{Bounded, GilbertElliott, LossPer, LossSpec, LossTrace, Periodic};
pub use orbit::{Constellation, GroundPoint, OrbitSpec, Walker};
pub use others::Others;
pub use queue::{CoDelSpec, FqCoDelSpec, MarkingSpec, PieSpec, QueueLimit, QueueSpec};
pub use rate::{Acm, DvbRcs2, DvbS2, Mahimahi, Prefer, Radio, RateSpec};
pub use trace::{AtEnd, Between, Trace, Value};

pub(crate) use turns::Turns;

use files::{Files, Problem};
use rate::Hop;

/// A named link between terminal and gateway, and the ground behind the gateway.
///
/// Serialising a parsed scenario gives the resolved form: every default filled
/// in, files read, orbits worked out, queues in packets or bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The name it goes by in tables and figures.
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub title: String,
    /// Where its numbers are from.
    #[serde(default)]
    pub source: String,
    /// Seeds every random draw; the same seed gives the same losses.
    #[serde(default = "one")]
    pub seed: u64,
    /// Gateway to terminal.
    pub forward: DirectionSpec,
    /// Terminal to gateway.
    pub r#return: DirectionSpec,
    /// Gateway to servers, the same in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ground: Option<GroundSpec>,
    /// The satellites, for directions with `delay.orbit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orbit: Option<OrbitSpec>,
    /// Other links that take over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub switch: Vec<Switch>,
}

/// One direction of the satellite hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
    pub change: Vec<Scheduled>,
}

/// The terrestrial hop between the gateway and the servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroundSpec {
    /// One way.
    pub delay: OneWayDelay,
    /// So large by default that the satellite stays the bottleneck.
    #[serde(default = "ground_rate")]
    pub rate: Rate,
    /// What may wait at either end.
    #[serde(default = "ground_queue")]
    pub queue: QueueLimit,
}

impl GroundSpec {
    /// Either direction of the ground hop.
    pub fn direction(&self) -> DirectionSpec {
        DirectionSpec::new(self.rate, self.delay, Probability::ZERO, self.queue)
    }
}

/// Why a text is not a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is not TOML, or not of this shape; the message shows line and column.
    #[error("{}{}", .0.to_string().trim_end(), remedy(.0.message()))]
    Syntax(#[from] toml::de::Error),
    /// It reads well but cannot be.
    #[error("{}{field} = {value:?}: {why}", line.map_or(String::new(), |line| format!("line {line}: ")))]
    Value {
        /// Path of the field, dotted.
        field: String,
        /// Its line, where it can be told.
        line: Option<usize>,
        /// What stands there.
        value: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

/// What to write where something is missing.
fn remedy(message: &str) -> &'static str {
    match message {
        "missing field `at_end`" => {
            "; say what happens when the trace runs out: at_end = \"hold\", \"loop\" or \"end\""
        }
        "missing field `rate`" => "; like rate = \"20 Mbit/s\"",
        "missing field `delay`" => "; one way, like delay = \"250 ms\"",
        "missing field `queue`" => "; like queue = \"1 BDP\" or queue = \"25 packets\"",
        "missing field `name`" => "; like name = \"geo\"",
        "missing field `forward`" => "; a table [forward]: the link from gateway to terminal",
        "missing field `return`" => "; a table [return]: the link from terminal to gateway",
        _ => "",
    }
}

impl Scenario {
    /// Parses and checks a scenario that needs no other files. `text` is TOML.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(text, &mut |name| {
            Err(format!(
                "{name} cannot be read here: this scenario was given as text, without the directory it lies in"
            ))
        })
    }

    /// Parses and checks a scenario; `reader` fetches the files that it names.
    pub fn parse_with(text: &str, reader: &mut Reader<'_>) -> Result<Self, ScenarioError> {
        let mut scenario: Self = toml::from_str(text)?;
        scenario
            .resolve(&mut Files(reader))
            .map_err(|problem| ScenarioError::Value {
                line: locate::line(text, &problem.field),
                field: problem.field,
                value: problem.value,
                why: problem.why,
            })?;
        Ok(scenario)
    }

    fn resolve(&mut self, files: &mut Files<'_>) -> Result<(), Problem> {
        if self.name.is_empty()
            || !self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            return Err(Problem::new(
                "name",
                &self.name,
                "a name has letters, digits, '-', '_' and '.', at least one",
            ));
        }
        orbit::resolve(self, files)?;
        let ground = self.ground_rtt();
        resolve_pair(
            (&mut self.forward, "forward"),
            (&mut self.r#return, "return"),
            ground,
            files,
        )?;
        if let Some(spec) = &mut self.ground {
            let mut direction = spec.direction();
            let rtt = ground;
            direction.resolve("ground", files, Span::ZERO, rtt)?;
            spec.queue = direction.queue.limit();
        }
        let mut before = Span::ZERO;
        for (number, switch) in self.switch.iter_mut().enumerate() {
            let field = format!("switch.{number}");
            if switch.at < before {
                return Err(Problem::new(
                    format!("{field}.at"),
                    switch.at.to_string(),
                    "before the switch above it; they stand in the order in which they happen",
                ));
            }
            before = switch.at;
            resolve_pair(
                (&mut switch.forward, &format!("{field}.forward")),
                (&mut switch.r#return, &format!("{field}.return")),
                ground,
                files,
            )?;
            self.forward
                .change
                .push(Scheduled::link(switch.at, &switch.forward));
            self.r#return
                .change
                .push(Scheduled::link(switch.at, &switch.r#return));
        }
        self.forward.change.sort_by_key(|change| change.at);
        self.r#return.change.sort_by_key(|change| change.at);
        Ok(())
    }

    /// Round-trip time of the satellite hop without queues and serialisation.
    pub fn satellite_rtt(&self) -> Span {
        self.forward.delay.typical().span() + self.r#return.delay.typical().span()
    }

    /// Round-trip time of the ground hop without queues, zero where there is none.
    pub fn ground_rtt(&self) -> Span {
        self.ground.as_ref().map_or(Span::ZERO, |ground| {
            ground.delay.span() + ground.delay.span()
        })
    }
}

fn resolve_pair(
    forward: (&mut DirectionSpec, &str),
    back: (&mut DirectionSpec, &str),
    ground: Span,
    files: &mut Files<'_>,
) -> Result<(), Problem> {
    // Delays first: rates and queues of either direction need both.
    forward
        .0
        .delay
        .resolve(&format!("{}.delay", forward.1), files)?;
    back.0.delay.resolve(&format!("{}.delay", back.1), files)?;
    let (there, here) = (
        forward.0.delay.typical().span(),
        back.0.delay.typical().span(),
    );
    let rtt = there + here + ground;
    forward.0.resolve(forward.1, files, here, rtt)?;
    back.0.resolve(back.1, files, there, rtt)
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

    /// Fills in what depends on the other direction or on files, and checks.
    fn resolve(
        &mut self,
        table: &str,
        files: &mut Files<'_>,
        other_delay: Span,
        rtt: Span,
    ) -> Result<(), Problem> {
        let hop = Hop {
            own_delay: self.delay.typical().span(),
            other_delay,
        };
        self.rate.resolve(&format!("{table}.rate"), files, &hop)?;
        self.delay.resolve(&format!("{table}.delay"), files)?;
        if let Some(jitter) = &self.jitter {
            jitter.check(&format!("{table}.jitter"))?;
        }
        self.loss.resolve(&format!("{table}.loss"), files)?;
        self.corrupt.check(&format!("{table}.corrupt"))?;
        self.check_loss_unit(table)?;
        self.queue.resolve(self.rate.ceiling(), rtt);
        self.queue.check(&format!("{table}.queue"))?;
        for (number, outage) in self.outages.iter().enumerate() {
            outage.check(&format!("{table}.outages.{number}"))?;
        }
        if let Some(reconfigure) = &self.reconfigure {
            reconfigure.check(&format!("{table}.reconfigure"))?;
        }
        for (number, cross) in self.cross.iter().enumerate() {
            cross.check(&format!("{table}.cross.{number}"))?;
        }
        let mut before = Span::ZERO;
        for (number, change) in self.change.iter_mut().enumerate() {
            let field = format!("{table}.change.{number}");
            change.resolve(&field, files)?;
            if change.at < before {
                return Err(Problem::new(
                    format!("{field}.at"),
                    change.at.to_string(),
                    "before the change above it; they stand in the order in which they happen",
                ));
            }
            before = change.at;
        }
        Ok(())
    }

    fn check_loss_unit(&self, table: &str) -> Result<(), Problem> {
        let wrong =
            |value: &str, why: String| Err(Problem::new(format!("{table}.loss_per"), value, why));
        match (self.loss_per, self.rate.frame()) {
            (None, Some(frame)) if self.loss.mean() > 0.0 => wrong(
                "",
                format!(
                    "this link sends frames, so say what the losses count: loss_per = \"packet\" or \"{}\"",
                    frame.name()
                ),
            ),
            (Some(LossPer::Packet) | None, _) => Ok(()),
            (Some(unit), Some(frame)) if unit == frame => Ok(()),
            (Some(unit), Some(frame)) => wrong(
                unit.name(),
                format!("this link has none; say \"packet\" or \"{}\"", frame.name()),
            ),
            (Some(unit), None) => wrong(
                unit.name(),
                "this link sends packets one by one; say \"packet\" or leave it out".into(),
            ),
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

fn is_never(chance: &Probability) -> bool {
    *chance == Probability::ZERO
}

fn written<S: serde::Serializer>(changes: &[Scheduled], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(changes.iter().filter(|change| change.link.is_none()))
}

/// Changes of link are written as `[[switch]]`.
fn none_is_written(changes: &[Scheduled]) -> bool {
    changes.iter().all(|change| change.link.is_some())
}

fn one() -> u64 {
    1
}

fn ground_rate() -> Rate {
    Rate::from_bits_per_second(1_000_000_000)
}

fn ground_queue() -> QueueLimit {
    QueueLimit::Bytes(Bytes::new(10_000_000))
}

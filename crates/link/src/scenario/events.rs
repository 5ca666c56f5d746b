//! What happens to a link at given moments, and who else uses it.

use std::fmt;

use bentpipe_units::{Bytes, OneWayDelay, Probability, Rate, Span};
use serde::{Deserialize, Serialize};

use super::files::{Files, Problem};
use super::turns::{self, Turns};
use super::{DelaySpec, DirectionSpec, LossSpec, ScenarioError};

/// A time in which nothing comes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum OutagePackets {
    /// The transmitter sends on and everything is lost.
    #[default]
    Lost,
    /// The transmitter stands still and packets wait in the queue.
    Wait,
}

/// A low constellation gives every terminal another satellite at fixed moments.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
    /// The transmitter stands still this long.
    #[serde(default)]
    pub gap: Span,
    /// After the gap, this long,
    #[serde(default)]
    pub burst: Span,
    /// packets are lost with this chance.
    #[serde(default)]
    pub loss: Probability,
}

/// Chosen packets arrive late, so that others overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The chance of each packet.
    pub chance: Probability,
    /// How much later it arrives.
    pub by: Span,
}

/// Somebody else's packets in the same queue. They end where the link ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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

/// What changes while the link runs. What is not given stays.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// A constant rate from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// A constant delay from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<OneWayDelay>,
    /// Other losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossSpec>,
    /// `true`: everything is lost from now on; `false`: no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<bool>,
    /// Another link altogether takes over. What waits for the old one is lost,
    /// what is on the air still arrives.
    #[serde(skip)]
    pub link: Option<Box<DirectionSpec>>,
}

impl Change {
    /// Parses and checks a change, written like an element of `change` without
    /// its moment: `rate = "5 Mbit/s"`.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let change: Self = toml::from_str(text)?;
        let mut planned = Scheduled {
            at: Span::ZERO,
            rate: change.rate,
            delay: change.delay,
            loss: change.loss,
            outage: change.outage,
            link: None,
        };
        let resolved = planned.resolve(
            "change",
            &mut Files(&mut |name| Err(format!("{name} cannot be read here; write the trace out"))),
        );
        match resolved {
            Ok(()) => Ok(planned.change()),
            Err(problem) => Err(ScenarioError::Value {
                field: problem.field,
                line: None,
                value: problem.value,
                why: problem.why,
            }),
        }
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

/// A change that the scenario plans.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scheduled {
    /// When.
    pub at: Span,
    /// A constant rate from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// A constant delay from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<OneWayDelay>,
    /// Other losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossSpec>,
    /// `true`: everything is lost from then on; `false`: no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<bool>,
    /// Another link takes over. Written as a `[[switch]]` of the scenario.
    #[serde(skip)]
    pub link: Option<Box<DirectionSpec>>,
}

impl Scheduled {
    pub(super) fn link(at: Span, link: &DirectionSpec) -> Self {
        Self {
            at,
            rate: None,
            delay: None,
            loss: None,
            outage: None,
            link: Some(Box::new(link.clone())),
        }
    }

    /// The change without its moment.
    pub fn change(&self) -> Change {
        Change {
            rate: self.rate,
            delay: self.delay,
            loss: self.loss.clone(),
            outage: self.outage,
            link: self.link.clone(),
        }
    }
}

/// The terminal leaves this link for another one, in both directions at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// When.
    pub at: Span,
    /// Whether the terminal's address changes with it. The link does not see
    /// addresses: whoever runs it makes the change.
    #[serde(default)]
    pub new_address: bool,
    /// The new link, gateway to terminal.
    pub forward: DirectionSpec,
    /// The new link, terminal to gateway.
    pub r#return: DirectionSpec,
}

fn wrong(field: &str, value: impl ToString, why: &str) -> Result<(), Problem> {
    Err(Problem::new(field, value.to_string(), why))
}

impl Outage {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        match self.every {
            _ if self.r#for == Span::ZERO => {
                wrong(&format!("{field}.for"), self.r#for, "an outage of no time")
            }
            Some(every) if every <= self.r#for => wrong(
                &format!("{field}.every"),
                every,
                "it comes again before it is over; nothing would ever pass",
            ),
            _ => Ok(()),
        }
    }
}

impl Reconfigure {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        if self.every <= self.gap + self.burst {
            return wrong(
                &format!("{field}.every"),
                self.every,
                "not longer than gap and burst together",
            );
        }
        if self.step > Span::from_millis(1000) {
            return wrong(
                &format!("{field}.step"),
                self.step,
                "more than 1 s; a low orbit's steps are some milliseconds",
            );
        }
        Ok(())
    }
}

impl Cross {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        if self.rate.bits_per_second() == 0 {
            return wrong(
                &format!("{field}.rate"),
                self.rate,
                "it sends nothing; leave it out",
            );
        }
        if !(20..=65_535).contains(&self.packet.as_u64()) {
            return wrong(
                &format!("{field}.packet"),
                self.packet,
                "not between 20 B and 65535 B, which IP packets are",
            );
        }
        // Ten million packets a second are more than anything here can follow.
        if self.rate.bits_per_second() / 8 / self.packet.as_u64() > 10_000_000 {
            return wrong(
                &format!("{field}.rate"),
                self.rate,
                "more than ten million packets a second",
            );
        }
        turns::check(field, self.on, self.off)
    }

    pub(crate) fn turns(&self) -> Turns {
        Turns {
            from: self.from,
            until: self.until,
            pauses: self.on.zip(self.off),
            exponential: self.exponential,
        }
    }
}

impl Scheduled {
    pub(crate) fn resolve(&mut self, field: &str, files: &mut Files<'_>) -> Result<(), Problem> {
        if let Some(rate) = self.rate.filter(|rate| rate.bits_per_second() == 0) {
            return wrong(
                &format!("{field}.rate"),
                rate,
                "a link that sends nothing; for a pause use outages = [{ from, for, packets = \"wait\" }]",
            );
        }
        if let Some(delay) = self.delay {
            DelaySpec::Constant(delay).resolve(&format!("{field}.delay"), files)?;
        }
        if let Some(loss) = &mut self.loss {
            loss.resolve(&format!("{field}.loss"), files)?;
        }
        Ok(())
    }
}

fn fifteen_s() -> Span {
    Span::from_millis(15_000)
}
fn full_packet() -> Bytes {
    Bytes::new(1500)
}

//! A link as people write it: parse, check, echo.

use std::fmt;
use std::str::FromStr;

use bentpipe_units::{Bytes, OneWayDelay, ParseError, Probability, Rate, Span};
use serde::{Deserialize, Serialize};

/// A named link between terminal and gateway, and the ground behind the gateway.
///
/// Serialising a parsed scenario gives the resolved form: every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
}

/// One direction of the satellite hop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionSpec {
    /// What the transmitter sends, counted at the IP level.
    pub rate: Rate,
    /// From the end of a packet's transmission to its arrival.
    pub delay: OneWayDelay,
    /// Chance of each packet to be lost on the air, independent of all others.
    #[serde(default)]
    pub loss: Probability,
    /// What may wait for the transmitter.
    pub queue: QueueLimit,
}

/// The terrestrial hop between the gateway and the servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
        DirectionSpec {
            rate: self.rate,
            delay: self.delay,
            loss: Probability::ZERO,
            queue: self.queue,
        }
    }
}

/// The size of a drop-tail queue. It counts what waits, never what is on the air.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// At most so many packets.
    Packets(u32),
    /// At most so many bytes at the IP level.
    Bytes(Bytes),
}

impl FromStr for QueueLimit {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = |why: &str| ParseError {
            value: text.to_owned(),
            wanted: "a queue size",
            why: why.to_owned(),
            example: "25 packets or 1250 kB",
        };
        if let Some(count) = text
            .trim()
            .strip_suffix("packets")
            .or(text.trim().strip_suffix("packet"))
        {
            return match count.trim().parse() {
                Ok(0) => Err(error("a queue of nothing passes nothing")),
                Ok(count) => Ok(Self::Packets(count)),
                Err(_) => Err(error("it is not a whole number of packets")),
            };
        }
        match text.parse::<Bytes>() {
            Ok(bytes) if bytes.as_u64() == 0 => Err(error("a queue of nothing passes nothing")),
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(inner) => Err(error(&inner.why)),
        }
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(1) => write!(out, "1 packet"),
            Self::Packets(count) => write!(out, "{count} packets"),
            Self::Bytes(bytes) => bytes.fmt(out),
        }
    }
}

impl Serialize for QueueLimit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QueueLimit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Why a text is not a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// It is not TOML, or not of this shape; the message shows line and column.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// It reads well but cannot be.
    #[error("{field} = {value:?}: {why}")]
    Value {
        /// Path of the field, dotted.
        field: String,
        /// What stands there.
        value: String,
        /// What is wrong and what would be right.
        why: String,
    },
}

/// Longest delay that makes sense on Earth's links: light to the Moon and back is 2.6 s.
const LONGEST_DELAY: Span = Span::from_millis(10_000);
/// IPv6 needs 1280 bytes of every link (RFC 8200, section 5).
const SMALLEST_QUEUE_BYTES: u64 = 1280;

impl Scenario {
    /// Parses and checks a scenario. `text` is TOML.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = toml::from_str(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    fn check(&self) -> Result<(), ScenarioError> {
        if self.name.is_empty()
            || !self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            return Err(ScenarioError::Value {
                field: "name".into(),
                value: self.name.clone(),
                why: "a name has letters, digits, '-', '_' and '.', at least one".into(),
            });
        }
        self.forward.check("forward")?;
        self.r#return.check("return")?;
        self.ground
            .as_ref()
            .map_or(Ok(()), |ground| ground.direction().check("ground"))
    }

    /// Round-trip time of the satellite hop without queues and serialisation.
    pub fn satellite_rtt(&self) -> Span {
        self.forward.delay.span() + self.r#return.delay.span()
    }

    /// Round-trip time of the ground hop without queues, zero where there is none.
    pub fn ground_rtt(&self) -> Span {
        self.ground.as_ref().map_or(Span::ZERO, |ground| {
            ground.delay.span() + ground.delay.span()
        })
    }
}

impl DirectionSpec {
    fn check(&self, table: &str) -> Result<(), ScenarioError> {
        let wrong = |field: &str, value: String, why: &str| {
            Err(ScenarioError::Value {
                field: format!("{table}.{field}"),
                value,
                why: why.into(),
            })
        };
        if self.rate.bits_per_second() == 0 {
            return wrong(
                "rate",
                self.rate.to_string(),
                "a link that sends nothing; give at least \"1 bit/s\"",
            );
        }
        if self.delay.span() > LONGEST_DELAY {
            return wrong(
                "delay",
                self.delay.to_string(),
                "longer than 10 s one way; is the unit right?",
            );
        }
        match self.queue {
            QueueLimit::Bytes(bytes) if bytes.as_u64() < SMALLEST_QUEUE_BYTES => wrong(
                "queue",
                self.queue.to_string(),
                "too small for one packet of 1280 bytes, which IPv6 requires of every link (RFC 8200, section 5)",
            ),
            _ => Ok(()),
        }
    }
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

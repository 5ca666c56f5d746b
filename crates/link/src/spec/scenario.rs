//! A scenario: both directions of a link, the ground behind it, and links that take over.

use bentpipe_units::{Bytes, OneWayDelay, Probability, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::direction::DirectionSpec;
use super::orbit::OrbitSpec;
use super::queue::QueueLimit;

/// A named link between terminal and gateway, and the ground behind the gateway.
///
/// Serialising a parsed scenario gives the resolved form: every default filled
/// in, files read, orbits worked out, queues in packets or bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// The terrestrial hop between the gateway and the servers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// The terminal leaves this link for another one, in both directions at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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

impl GroundSpec {
    /// Either direction of the ground hop.
    pub fn direction(&self) -> DirectionSpec {
        DirectionSpec::new(self.rate, self.delay, Probability::ZERO, self.queue)
    }
}

impl Scenario {
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

fn one() -> u64 {
    1
}

fn ground_rate() -> Rate {
    Rate::from_bits_per_second(1_000_000_000)
}

fn ground_queue() -> QueueLimit {
    QueueLimit::Bytes(Bytes::new(10_000_000))
}

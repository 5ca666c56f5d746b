//! Links of a virtual network, and what changes on them.

use bentpipe_link::Scenario;
use bentpipe_link::spec::{Change, DirectionSpec, Outage, OutagePackets, ScheduledChange};
use bentpipe_units::Span;
use serde::Serialize;

/// One link, both directions.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// Towards the terminals.
    pub forward: DirectionSpec,
    /// Towards the gateways.
    pub r#return: DirectionSpec,
}

/// Which direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Towards {
    /// Gateway to terminal.
    #[serde(rename = "forward")]
    Terminal,
    /// Terminal to gateway.
    #[serde(rename = "return")]
    Gateway,
}

impl LinkPlan {
    /// A link with these directions.
    pub fn new(forward: DirectionSpec, r#return: DirectionSpec) -> Self {
        Self { forward, r#return }
    }

    /// The satellite hop of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        Self::new(scenario.forward.clone(), scenario.r#return.clone())
    }

    /// Adds a change of one direction at a moment of the run.
    #[must_use]
    pub fn change(mut self, at: Span, towards: Towards, change: Change) -> Self {
        let changes = match towards {
            Towards::Terminal => &mut self.forward.change,
            Towards::Gateway => &mut self.r#return.change,
        };
        let after = changes.partition_point(|other| other.at <= at);
        changes.insert(after, ScheduledChange { at, change });
        self
    }

    /// Adds an outage of both directions: what would leave a transmitter between `from` and
    /// the end of `length` is lost.
    #[must_use]
    pub fn blackout(mut self, from: Span, length: Span) -> Self {
        for direction in [&mut self.forward, &mut self.r#return] {
            direction.outages.push(Outage {
                from,
                r#for: length,
                every: None,
                packets: OutagePackets::Lost,
            });
        }
        self
    }
}

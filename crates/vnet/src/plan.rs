//! Links of a virtual network, and what changes on them.

use bentpipe_link::Scenario;
use bentpipe_link::scenario::DirectionSpec;
use bentpipe_units::{Rate, Span};

/// One link, both directions.
#[derive(Debug, Clone)]
pub struct LinkPlan {
    /// Towards the terminals.
    pub forward: DirectionSpec,
    /// Towards the gateways.
    pub r#return: DirectionSpec,
    /// What changes on the way, in the order of time.
    pub changes: Vec<Change>,
}

impl LinkPlan {
    /// A link that stays as it is.
    pub fn new(forward: DirectionSpec, r#return: DirectionSpec) -> Self {
        Self {
            forward,
            r#return,
            changes: Vec::new(),
        }
    }

    /// The satellite hop of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        Self::new(scenario.forward.clone(), scenario.r#return.clone())
    }

    /// Adds a change.
    #[must_use]
    pub fn change(mut self, at: Span, what: What) -> Self {
        self.changes.push(Change { at, what });
        self
    }
}

/// A change of a link at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// When, since the run began.
    pub at: Span,
    /// What.
    pub what: What,
}

/// What changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum What {
    /// The forward direction's rate.
    ForwardRate(Rate),
    /// The return direction's rate.
    ReturnRate(Rate),
    /// Nothing that enters either direction from now on arrives, for so long.
    Blackout(Span),
}

//! The one-way delay.

use std::sync::Arc;

use bentpipe_units::{OneWayDelay, Span, Time, rounded};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text_or_table::{short_form, text_or_table};
use super::trace::Trace;

/// The one-way delay of one direction: constant in the short form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "kebab-case")]
#[schemars(transform = short_form)]
pub enum DelaySpec {
    /// Always the same.
    Constant(OneWayDelay),
    /// Changing. Packets stay in order: one that would overtake waits for the one before.
    Trace(Arc<Trace<OneWayDelay>>),
    /// Two legs over a satellite that hands packets on only at the ticks of its clocks.
    Relay(Relay),
    /// From the scenario's `[orbit]`, worked out before the start.
    Orbit(Orbit),
}

text_or_table!(
    DelaySpec,
    Constant,
    "a one-way delay in quotes with its unit, like \"250 ms\", or a table: trace, relay or orbit"
);

/// Marks a delay that follows the scenario's `[orbit]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Orbit {
    /// Added for what happens on the ground: processing, the way to the exchange.
    #[serde(default)]
    pub extra: Span,
}

/// Two legs over a satellite with polled queues, as OpenSAND 5.2 runs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// Ground to satellite.
    pub up: OneWayDelay,
    /// Satellite to ground.
    pub down: OneWayDelay,
    /// Each leg's delay queue is looked at this often.
    #[serde(default)]
    pub poll: Span,
    /// The satellite looks for frames this often.
    #[serde(default)]
    pub satellite_poll: Span,
}

/// Delay variation. Packets stay in order: one that would overtake waits for the
/// one before, so nothing is delayed by more than the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Evenly drawn from nothing to this, on top of `delay`.
    pub up_to: Span,
    /// One draw holds so long; when not given, each packet has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
}

impl From<OneWayDelay> for DelaySpec {
    fn from(delay: OneWayDelay) -> Self {
        Self::Constant(delay)
    }
}

impl DelaySpec {
    /// The delay without polls: the mean of a trace.
    pub fn typical(&self) -> OneWayDelay {
        match self {
            Self::Constant(delay) => *delay,
            Self::Trace(trace) => OneWayDelay::new(Span::from_nanos(rounded(trace.mean()))),
            Self::Relay(relay) => OneWayDelay::new(relay.up.span() + relay.down.span()),
            Self::Orbit(orbit) => OneWayDelay::new(orbit.extra),
        }
    }

    /// The shortest delay that it ever has.
    pub fn shortest(&self) -> OneWayDelay {
        match self {
            Self::Trace(trace) => trace
                .points
                .iter()
                .map(|(_, delay)| *delay)
                .min()
                .unwrap_or_default(),
            _ => self.typical(),
        }
    }

    pub(crate) fn ends(&self) -> Option<Time> {
        match self {
            Self::Trace(trace) => trace.ends(),
            _ => None,
        }
    }
}

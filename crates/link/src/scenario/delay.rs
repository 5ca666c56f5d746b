//! How long the way is, now and later.

use std::sync::Arc;

use bentpipe_units::{OneWayDelay, Span, Time};
use serde::{Deserialize, Serialize};

use super::files::{Files, Problem};
use super::text_or_table::text_or_table;
use super::trace::Trace;

/// The one-way delay of one direction: constant in the short form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(transform = super::text_or_table::short_form)]
#[serde(remote = "Self", rename_all = "kebab-case")]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Orbit {
    /// Added for what happens on the ground: processing, the way to the exchange.
    #[serde(default)]
    pub extra: Span,
}

/// Two legs over a satellite with polled queues, as OpenSAND 5.2 runs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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

/// Delay that trembles. Packets stay in order: one that would overtake waits for the
/// one before, so nothing is delayed by more than the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Evenly drawn from nothing to this, on top of `delay`.
    pub up_to: Span,
    /// One draw holds so long; when not given, each packet has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<Span>,
}

impl Jitter {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        if self.up_to > LONGEST_DELAY {
            return Err(Problem::new(
                format!("{field}.up_to"),
                self.up_to.to_string(),
                "longer than 10 s; is the unit right?",
            ));
        }
        match self.every {
            Some(every) if every < Span::from_millis(1) => Err(Problem::new(
                format!("{field}.every"),
                every.to_string(),
                "less than 1 ms; leave it out for a draw of each packet's own",
            )),
            _ => Ok(()),
        }
    }
}

impl From<OneWayDelay> for DelaySpec {
    fn from(delay: OneWayDelay) -> Self {
        Self::Constant(delay)
    }
}

/// Longest delay that makes sense on Earth's links: light to the Moon and back is 2.6 s.
const LONGEST_DELAY: Span = Span::from_millis(10_000);

impl DelaySpec {
    /// The delay without polls: the mean of a trace.
    pub fn typical(&self) -> OneWayDelay {
        match self {
            Self::Constant(delay) => *delay,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a mean of delays is a delay"
            )]
            Self::Trace(trace) => OneWayDelay::new(Span::from_nanos(trace.mean().round() as u64)),
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

    pub(crate) fn resolve(&mut self, field: &str, files: &mut Files<'_>) -> Result<(), Problem> {
        let too_long = |field: String, span: Span| {
            if span > LONGEST_DELAY {
                Err(Problem::new(
                    field,
                    span.to_string(),
                    "longer than 10 s one way; is the unit right?",
                ))
            } else {
                Ok(())
            }
        };
        match self {
            Self::Constant(delay) => too_long(field.to_owned(), delay.span()),
            Self::Trace(trace) => {
                let field = format!("{field}.trace");
                Arc::make_mut(trace).resolve(&field, files)?;
                let longest = trace.points.iter().map(|(_, delay)| delay.span()).max();
                too_long(field, longest.unwrap_or_default())
            }
            Self::Relay(relay) => {
                too_long(format!("{field}.relay.up"), relay.up.span())?;
                too_long(format!("{field}.relay.down"), relay.down.span())?;
                too_long(format!("{field}.relay.poll"), relay.poll)?;
                too_long(
                    format!("{field}.relay.satellite_poll"),
                    relay.satellite_poll,
                )
            }
            Self::Orbit(orbit) => too_long(format!("{field}.orbit.extra"), orbit.extra),
        }
    }
}

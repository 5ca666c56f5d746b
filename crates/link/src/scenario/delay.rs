//! Delays: read from files, and checked.

use std::sync::Arc;

use bentpipe_units::Span;

use super::files::Files;
use super::problem::Problem;
use crate::spec::{DelaySpec, Jitter};

/// Longest delay that makes sense on Earth's links: light to the Moon and back is 2.6 s.
const LONGEST_DELAY: Span = Span::from_millis(10_000);

impl DelaySpec {
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

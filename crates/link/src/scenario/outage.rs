//! The check of scheduled outages.

use bentpipe_units::Span;

use super::problem::{Problem, wrong};
use crate::spec::Outage;

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

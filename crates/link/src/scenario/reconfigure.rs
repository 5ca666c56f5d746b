//! The check of regular changes of satellites.

use bentpipe_units::Span;

use super::problem::{Problem, wrong};
use crate::spec::Reconfigure;

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

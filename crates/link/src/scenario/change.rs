//! Changes: read from text, and checked.

use bentpipe_units::Span;

use super::error::ScenarioError;
use super::files::Files;
use super::problem::{Problem, wrong};
use crate::spec::{Change, DelaySpec, LinkOutage};

impl Change {
    /// Parses and checks a change, written like an element of `change` without
    /// its moment: `rate = "5 Mbit/s"`.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let mut change: Self = toml::from_str(text)?;
        let resolved = change.resolve(
            "change",
            &mut Files(&mut |name| Err(format!("{name} cannot be read here; write the trace out"))),
        );
        match resolved {
            Ok(()) => Ok(change),
            Err(problem) => Err(ScenarioError::Value {
                field: problem.field,
                line: None,
                value: problem.value,
                why: problem.why,
            }),
        }
    }
}

impl Change {
    pub(super) fn resolve(&mut self, field: &str, files: &mut Files<'_>) -> Result<(), Problem> {
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
        if self.outage == Some(LinkOutage::For(Span::ZERO)) {
            return wrong(
                &format!("{field}.outage"),
                Span::ZERO,
                "an outage of no time",
            );
        }
        if let Some(loss) = &mut self.loss {
            loss.resolve(&format!("{field}.loss"), files)?;
        }
        if let Some(jitter) = &self.jitter {
            jitter.check(&format!("{field}.jitter"))?;
        }
        if let Some(corrupt) = &self.corrupt {
            corrupt.check(&format!("{field}.corrupt"))?;
        }
        if let Some(queue) = &self.queue {
            queue.check(&format!("{field}.queue"))?;
        }
        Ok(())
    }
}

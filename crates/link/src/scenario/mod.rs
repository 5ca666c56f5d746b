//! The text of a scenario: parsed, checked, and filled in to a [`Scenario`].
//!
//! Each stage of a direction has a short form in text and, where it has more than one
//! model, a table that names the model. Modules stand in the order of the stages.

mod error;
mod problem;
mod files;
mod locate;
mod trace;
mod on_off;
mod queue;
mod cross;
mod carrier;
mod rate;
mod outage;
mod loss;
mod corrupt;
mod delay;
mod reconfigure;
mod change;
mod orbit;
mod direction;

use bentpipe_units::Span;

pub use crate::spec::*;
pub use error::ScenarioError;
pub use files::Reader;

use direction::resolve_pair;
use files::Files;
use problem::Problem;

impl Scenario {
    /// Parses and checks a scenario that needs no other files. `text` is TOML.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        Self::parse_with(text, &mut |name| {
            Err(format!(
                "{name} cannot be read here: this scenario was given as text, without the directory it lies in"
            ))
        })
    }

    /// Parses and checks a scenario; `reader` fetches the files that it names.
    pub fn parse_with(text: &str, reader: &mut Reader<'_>) -> Result<Self, ScenarioError> {
        let mut scenario: Self = toml::from_str(text)?;
        scenario
            .resolve(&mut Files(reader))
            .map_err(|problem| ScenarioError::Value {
                line: locate::line(text, &problem.field),
                field: problem.field,
                value: problem.value,
                why: problem.why,
            })?;
        Ok(scenario)
    }

    fn resolve(&mut self, files: &mut Files<'_>) -> Result<(), Problem> {
        if self.name.is_empty()
            || !self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        {
            return Err(Problem::new(
                "name",
                &self.name,
                "a name has letters, digits, '-', '_' and '.', at least one",
            ));
        }
        orbit::resolve(self, files)?;
        let ground = self.ground_rtt();
        resolve_pair(
            (&mut self.forward, "forward"),
            (&mut self.r#return, "return"),
            ground,
            files,
        )?;
        if let Some(spec) = &mut self.ground {
            let mut direction = spec.direction();
            let rtt = ground;
            direction.resolve("ground", files, Span::ZERO, rtt)?;
            spec.queue = direction.queue.limit();
        }
        let mut before = Span::ZERO;
        for (number, switch) in self.switch.iter_mut().enumerate() {
            let field = format!("switch.{number}");
            if switch.at < before {
                return Err(Problem::new(
                    format!("{field}.at"),
                    switch.at.to_string(),
                    "before the switch above it; they stand in the order in which they happen",
                ));
            }
            before = switch.at;
            resolve_pair(
                (&mut switch.forward, &format!("{field}.forward")),
                (&mut switch.r#return, &format!("{field}.return")),
                ground,
                files,
            )?;
            let scheduled = |link: &DirectionSpec| ScheduledChange {
                at: switch.at,
                change: Change::to_link(link.clone()),
            };
            self.forward.change.push(scheduled(&switch.forward));
            self.r#return.change.push(scheduled(&switch.r#return));
        }
        self.forward.change.sort_by_key(|change| change.at);
        self.r#return.change.sort_by_key(|change| change.at);
        Ok(())
    }
}

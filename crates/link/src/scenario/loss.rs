//! Losses: read from files, and checked.

use std::sync::Arc;

use super::files::Files;
use super::problem::Problem;
use crate::spec::{Bounded, LossSpec};

impl Bounded {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        if self.max_burst == 0 {
            return Err(Problem::new(
                format!("{field}.bounded.max_burst"),
                "0",
                "none may come true at all; give at least 1, or leave the table out",
            ));
        }
        Ok(())
    }
}

impl LossSpec {
    pub(crate) fn resolve(&mut self, field: &str, files: &mut Files<'_>) -> Result<(), Problem> {
        let wrong = |name: &str, value: &str, why: &str| {
            Err(Problem::new(format!("{field}.{name}"), value, why))
        };
        match self {
            Self::Bernoulli(_) => Ok(()),
            Self::Bounded(bounded) => bounded.check(field),
            Self::Fragmented(fragmented) if !(1..=64).contains(&fragmented.fragments) => wrong(
                "fragmented.fragments",
                &fragmented.fragments.to_string(),
                "not between 1 and 64; a BBFRAME in Ethernet frames is 2 to 6",
            ),
            Self::Fragmented(_) => Ok(()),
            Self::GilbertElliott(model) => {
                if model.to_bad.as_f64() + model.to_good.as_f64() > 0.0 {
                    Ok(())
                } else {
                    wrong(
                        "gilbert-elliott.to_bad",
                        "0 %",
                        "with to_good = \"0 %\" it never changes its state; give one of them a chance",
                    )
                }
            }
            Self::Periodic(periodic) => {
                if periodic.every == 0 || periodic.lose > periodic.every {
                    wrong(
                        "periodic.lose",
                        &periodic.lose.to_string(),
                        &format!("more than every = {}", periodic.every),
                    )
                } else {
                    Ok(())
                }
            }
            Self::Trace(trace) => {
                let trace = Arc::make_mut(trace);
                if let Some(name) = trace.file.take() {
                    if !trace.fates.is_empty() {
                        return wrong("trace.file", &name, "a trace has fates or a file, not both");
                    }
                    trace.fates = files.read(&format!("{field}.trace.file"), &name)?;
                }
                trace.fates.retain(|fate| !fate.is_whitespace());
                if let Some(strange) = trace.fates.chars().find(|fate| !".x".contains(*fate)) {
                    return wrong(
                        "trace.fates",
                        &strange.to_string(),
                        "a fate is '.' (passes) or 'x' (lost)",
                    );
                }
                if trace.fates.is_empty() {
                    return wrong(
                        "trace.fates",
                        "",
                        "an empty trace; write one '.' or 'x' for each",
                    );
                }
                Ok(())
            }
        }
    }
}

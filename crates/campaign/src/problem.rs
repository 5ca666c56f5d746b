//! What is wrong with a plan, and where it stands.

use std::ops::Range;

/// Why a text is not a plan.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It is not TOML, or not of a plan's shape; the message shows line and column.
    #[error("{0}")]
    Syntax(toml::de::Error),
    /// It reads well but cannot be.
    #[error("{}{field}: {why}", line.map_or(String::new(), |line| format!("line {line}: ")))]
    Field {
        /// The line, where it can be told.
        line: Option<usize>,
        /// The field's dotted name.
        field: String,
        /// What is wrong and what would be right.
        why: String,
    },
    /// More runs than anybody waits for.
    #[error(
        "{points} points with their seeds are {runs} runs; {most} are the most, so leave out values or seeds"
    )]
    TooManyRuns {
        /// Points of the sweep.
        points: usize,
        /// Runs of all points together.
        runs: u64,
        /// Runs that a plan may have.
        most: u64,
    },
}

impl Problem {
    /// A problem with `field`, which stands at `span` of `text`.
    pub fn at(text: &str, span: &Range<usize>, field: &str, why: impl Into<String>) -> Self {
        let before = &text.as_bytes()[..span.start.min(text.len())];
        Self::Field {
            line: Some(before.iter().filter(|byte| **byte == b'\n').count() + 1),
            field: field.to_owned(),
            why: why.into(),
        }
    }

    /// What the TOML library found, shown in `text`.
    pub fn syntax(text: &str, mut error: toml::de::Error) -> Self {
        error.set_input(Some(text));
        Self::Syntax(error)
    }
}

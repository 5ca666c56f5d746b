//! How a command ends when it does not end well.

mod input;

use std::fmt::Display;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

pub use input::{open, read, read_or};

/// Why a command ended early; decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// What was asked for cannot be done as it is written: exit code 2, nothing started.
    Configuration(String),
    /// It went wrong while running: exit code 1.
    Runtime(anyhow::Error),
}

impl Failure {
    /// A configuration file that cannot be used; `why` names field and value.
    pub fn file(path: &Path, why: impl Display) -> Self {
        Self::Configuration(format!("{}: {why}", path.display()))
    }

    /// Prints the failure for people and gives its exit code.
    pub fn report(self) -> ExitCode {
        // A closed standard error is no reason to end otherwise.
        let _ = writeln!(std::io::stderr(), "bentpipe: {self}");
        match self {
            Self::Configuration(_) => ExitCode::from(2),
            Self::Runtime(_) => ExitCode::FAILURE,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Configuration(message) => out.write_str(message.trim_end()),
            Self::Runtime(error) => write!(out, "{error:#}"),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Runtime(error)
    }
}

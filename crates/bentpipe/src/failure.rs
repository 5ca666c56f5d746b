//! How a command ends when it does not end well.

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

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
        match self {
            Self::Configuration(message) => {
                eprintln!("bentpipe: {}", message.trim_end());
                ExitCode::from(2)
            }
            Self::Runtime(error) => {
                eprintln!("bentpipe: {error:#}");
                ExitCode::FAILURE
            }
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Runtime(error)
    }
}

/// Reads a file that a person wrote.
pub fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::file(path, error))
}

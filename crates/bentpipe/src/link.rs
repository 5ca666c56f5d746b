//! `bentpipe link`: the link model, without running it.

use std::path::{Path, PathBuf};

use bentpipe_link::Scenario;
use bentpipe_link::explain::Explanation;
use clap::Subcommand;

use crate::failure::{self, Failure};

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print ceilings, round-trip times, bandwidth-delay products and queues of a scenario
    Explain {
        /// The scenario, a TOML file
        scenario: PathBuf,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Explain { scenario, json } => {
            let explanation = Explanation::of(&load(&scenario)?);
            if json {
                let text =
                    serde_json::to_string_pretty(&explanation).map_err(anyhow::Error::from)?;
                println!("{text}");
            } else {
                print!("{explanation}");
            }
            Ok(())
        }
    }
}

/// Reads and checks a scenario file.
pub fn load(path: &Path) -> Result<Scenario, Failure> {
    Scenario::parse(&failure::read(path)?).map_err(|error| Failure::file(path, error))
}

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

/// Reads and checks a scenario file, with the traces that it names.
pub fn load(path: &Path) -> Result<Scenario, Failure> {
    let beside = path.parent().unwrap_or(Path::new(""));
    Scenario::parse_with(&failure::read(path)?, &mut |name| {
        let file = beside.join(name);
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
    })
    .map_err(|error| Failure::file(path, error))
}

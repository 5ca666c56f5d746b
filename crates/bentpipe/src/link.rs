//! `bentpipe link`: the link model, without running it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use bentpipe_link::Scenario;
use bentpipe_link::explain::Explanation;
use bentpipe_link::validate::{self, Presets};
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
    /// Compare the link model with laws, standards and published measurements; exit code 1 if a claim fails
    Validate {
        /// Hold kosek-geo.toml and kosek-leo.toml of this directory against the published measurements, instead of those that come with the program
        #[arg(value_name = "DIRECTORY")]
        scenarios: Option<PathBuf>,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
        /// Write the report to this file, as Markdown
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
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
        Command::Validate {
            scenarios,
            json,
            output,
        } => validate(scenarios.as_deref(), json, output.as_deref()),
    }
}

fn validate(scenarios: Option<&Path>, json: bool, output: Option<&Path>) -> Result<(), Failure> {
    let presets = match scenarios {
        None => Presets::shipped(),
        Some(directory) => Presets {
            kosek_geo: load(&directory.join("kosek-geo.toml"))?,
            kosek_leo: load(&directory.join("kosek-leo.toml"))?,
        },
    };
    let claims = validate::claims(&presets);
    if let Some(path) = output {
        std::fs::write(path, validate::markdown(&claims))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if json {
        let text = serde_json::to_string_pretty(&claims).map_err(anyhow::Error::from)?;
        println!("{text}");
    } else {
        for claim in &claims {
            let verdict = if claim.holds { "holds" } else { "FAILS" };
            println!("{verdict}  {}", claim.claim);
            println!("       theirs: {}  ({})", claim.theirs, claim.source);
            println!("       ours:   {}", claim.ours);
        }
    }
    match claims.iter().filter(|claim| !claim.holds).count() {
        0 => Ok(()),
        failing => Err(anyhow::anyhow!("{failing} of {} claims fail", claims.len()).into()),
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

//! `bentpipe link`: what a link amounts to, and changing one that runs.

use std::path::{Path, PathBuf};

use anyhow::Context;
use bentpipe_link::Directions;
use bentpipe_link::explain::Explanation;
use bentpipe_link_validate::{self as validate, Presets};
use bentpipe_units::Bytes;
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::control::{self, Answer, Question};
use crate::failure::Failure;
use crate::link_set::ChangeRequest;
use crate::scenario;

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print ceilings, round-trip times, bandwidth-delay products and queues of a scenario
    Explain {
        /// The scenario: a TOML file, or the name of one that comes with the program, like geo
        scenario: PathBuf,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
        /// With the least time in which so much can be transferred, like "10 MiB"; may be repeated
        #[arg(long, value_name = "SIZE")]
        bytes: Vec<Bytes>,
        /// Round trips that the transfers need one after the other
        #[arg(long, value_name = "NUMBER", default_value_t = 1)]
        round_trips: u32,
    },
    /// Change a running emulator's links
    ///
    /// All that is given changes between the same two packets, or nothing does. The
    /// emulator's certificate lists it. CHANGE is one of
    ///
    ///   rate="10 Mbit/s"     a constant rate from now on
    ///   delay="100 ms"       a constant one-way delay
    ///   loss="1 %"           other losses, or a table as in a scenario
    ///   queue="100 ms"       another queue, which takes over what waits as far as it
    ///                        has room; one in time keeps its time when the rate changes
    ///   jitter='{ up_to = "5 ms" }'
    ///   reorder='{ chance = "1 %", by = "10 ms" }'
    ///   duplicate="1 %", corrupt="1 %"
    ///                        as in a scenario
    ///   outage="2 s"         nothing comes through for so long; also true or false
    ///   switch=SCENARIO      another scenario's satellite hop takes over: a file, or
    ///                        the name of one that lies beside the running one or
    ///                        comes with the program
    ///   new_address=true     the terminal's next address; or addresses, as CIDR
    #[command(verbatim_doc_comment)]
    Set {
        /// The emulator's socket, as it printed it; the only one that runs when not given
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
        /// The link; every satellite hop when not given
        #[arg(long, value_name = "NAME")]
        link: Option<String>,
        /// Which directions of it
        #[arg(long, default_value = "both", value_parser = directions())]
        direction: Directions,
        /// What changes
        #[arg(required = true, value_name = "CHANGE")]
        changes: Vec<String>,
    },
    /// Show how a running emulator's links are doing
    Show {
        /// The emulator's socket, as it printed it; the only one that runs when not given
        #[arg(long, value_name = "PATH")]
        control: Option<PathBuf>,
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
        Command::Explain {
            scenario,
            json,
            bytes,
            round_trips,
        } => {
            let mut explanation = Explanation::of(&scenario::load(&scenario)?);
            for payload in bytes {
                explanation.add_bound(payload, round_trips);
            }
            if json {
                let text =
                    serde_json::to_string_pretty(&explanation).map_err(anyhow::Error::from)?;
                println!("{text}");
            } else {
                print!("{explanation}");
            }
            Ok(())
        }
        Command::Set {
            control,
            link,
            direction,
            changes,
        } => {
            let mut request = ChangeRequest {
                link,
                directions: direction,
                changes,
                switch: None,
            };
            if let Some(name) = request.switch_to() {
                request.switch = Some(resolved(control.as_deref(), name)?);
            }
            let answer = control::ask(control.as_deref(), &Question::Set(request))?;
            if let Answer::Changed(lines) = answer {
                println!("{}", lines.join("\n"));
            }
            Ok(())
        }
        Command::Show { control, json } => {
            let answer = control::ask(control.as_deref(), &Question::Show)?;
            if let Answer::Shown { links, text, .. } = answer {
                if json {
                    println!("{links:#}");
                } else {
                    print!("{text}");
                }
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
            kosek_geo: scenario::load(&directory.join("kosek-geo.toml"))?,
            kosek_leo: scenario::load(&directory.join("kosek-leo.toml"))?,
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

fn directions() -> impl TypedValueParser<Value = Directions> {
    PossibleValuesParser::new(Directions::ALL.map(Directions::name)).map(|name| {
        let mut all = Directions::ALL.into_iter();
        all.find(|directions| directions.name() == name)
            .unwrap_or_default()
    })
}

/// A scenario to switch to, resolved: a file, or the name of one that lies beside the running
/// scenario or comes with the program.
fn resolved(control: Option<&Path>, name: &str) -> Result<String, Failure> {
    let mut path = PathBuf::from(name);
    if scenario::name(&path).is_some() {
        let answer = control::ask(control, &Question::Show)?;
        if let Answer::Shown { directory, .. } = answer {
            path = scenario::beside(&directory, name);
        }
    }
    let scenario = scenario::load(&path)?;
    toml::to_string(&scenario)
        .map_err(|error| Failure::file(&path, format!("cannot be written out: {error}")))
}

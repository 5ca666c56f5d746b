//! `bentpipe sim`: transports over a satellite in virtual time.

mod budgets;
mod never_worst;
mod record_host;

use std::path::{Path, PathBuf};

use bentpipe_campaign::{execute, points, table, write_json};

use crate::failure::{self, Failure};
use crate::scenario;

/// Run transports over a satellite in virtual time
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Command {
    /// The plan, a TOML file; lists and ranges in it are swept over
    #[arg(required = true)]
    plan: Option<PathBuf>,
    /// Directory for resolved.json, records.jsonl, summary.json and summary.csv
    #[arg(long, default_value = "out/sim")]
    out: PathBuf,
    #[command(subcommand)]
    command: Option<Subcommand>,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Check our controller against its goals, beside the others; exit code 1 if it falls short
    Budgets {
        /// Runs per workload in which something is drawn at random
        #[arg(long, default_value_t = 30)]
        seeds: u64,
        /// Only workloads whose name contains this
        #[arg(long, default_value = "")]
        only: String,
        /// The table for programs
        #[arg(long, default_value = "out/budgets.json")]
        out: PathBuf,
    },
    /// Hold a controller against CUBIC, BBRv3 and NewReno on links drawn at random
    NeverWorst(never_worst::Command),
    /// Record how late programs run on this machine, as a host for plans
    RecordHost(record_host::Command),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match (command.command, command.plan) {
        (Some(Subcommand::Budgets { seeds, only, out }), _) => budgets::budgets(seeds, &only, &out),
        (Some(Subcommand::NeverWorst(command)), _) => never_worst::run(&command),
        (Some(Subcommand::RecordHost(command)), _) => record_host::run(&command),
        (None, Some(plan)) => study(&plan, &command.out),
        (None, None) => Err(Failure::Configuration(
            "sim: give a plan, or `budgets`, `never-worst` or `record-host`".into(),
        )),
    }
}

/// What a study is given.
const WANTED: &str = "sim takes a plan, a file like those in campaigns/ (docs/campaigns.md), or one of `budgets`, `never-worst` and `record-host`";
/// Where it was a scenario.
const A_SCENARIO: &str = "this is a scenario, and sim takes a plan, which names scenarios and what crosses them (campaigns/ has some); `bentpipe link explain` says what a scenario amounts to, `bentpipe emulate` runs it";

/// Runs a plan with all points of its sweep.
fn study(path: &Path, out: &Path) -> Result<(), Failure> {
    let beside = path.parent().unwrap_or(Path::new(""));
    if scenario::is_preset(path) {
        return Err(Failure::file(path, A_SCENARIO));
    }
    let text = failure::read_or(path, WANTED)?;
    if scenario::looks_like_one(&text) {
        return Err(Failure::file(path, A_SCENARIO));
    }
    let points = points(&text, beside).map_err(|problem| Failure::file(path, problem))?;
    write_json(&out.join("resolved.json"), &points)?;
    let lines = execute::execute(&points, out)?;
    println!("{}", table::heading());
    for line in lines {
        println!("{}", line.text());
    }
    println!("{}", out.join("summary.json").display());
    Ok(())
}

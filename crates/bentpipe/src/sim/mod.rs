//! `bentpipe sim`: transports over a satellite in virtual time.

mod problem;
mod range;
mod sweep;
mod plan;
mod tunnel;
mod study;
mod execute;
mod table;
mod budgets;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use crate::failure::{self, Failure};
use study::Study;

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
}

pub fn run(command: Command) -> Result<(), Failure> {
    match (command.command, command.plan) {
        (Some(Subcommand::Budgets { seeds, only, out }), _) => budgets::budgets(seeds, &only, &out),
        (None, Some(plan)) => study(&plan, &command.out),
        (None, None) => Err(Failure::Configuration(
            "sim: give a plan, or 'budgets'".into(),
        )),
    }
}

/// Carries out a plan with all points of its sweep.
fn study(path: &Path, out: &Path) -> Result<(), Failure> {
    let wrong = |problem| Failure::file(path, problem);
    let text = range::expand(&failure::read(path)?).map_err(wrong)?;
    let beside = path.parent().unwrap_or(Path::new(""));
    let mut points = Vec::new();
    let mut runs = 0;
    for point in sweep::points(&text).map_err(wrong)? {
        let study = Study::read(&text, &point, beside).map_err(wrong)?;
        runs += study.seeds();
        points.push((point.axes, study));
    }
    if runs > MOST_RUNS {
        let why = format!(
            "{} points with their seeds are {runs} runs; {MOST_RUNS} are the most, so leave out values or seeds",
            points.len()
        );
        return Err(Failure::file(path, why));
    }
    write_json(&out.join("resolved.json"), &points)?;
    for line in execute::execute(&points, out)? {
        println!("{}", line.text());
    }
    println!("{}", out.join("summary.json").display());
    Ok(())
}

/// Runs that a plan may have.
const MOST_RUNS: u64 = 1_000_000;

fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    write(path, &(serde_json::to_string_pretty(value)? + "\n"))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making {}", directory.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

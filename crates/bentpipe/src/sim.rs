//! `bentpipe sim`: transports over a satellite in virtual time.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context;
use bentpipe_cc::{Choice, Settings, Transport};
use bentpipe_link::Scenario;
use bentpipe_sim::record::{Records, Verdict};
use bentpipe_sim::{Change, FlowPlan, LinkPlan, Plan, Transfer, What, budget};
use bentpipe_units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};

use crate::failure::{self, Failure};

/// Run transports over a satellite in virtual time
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Command {
    /// The plan, a TOML file; lists in it are swept over
    #[arg(required = true)]
    plan: Option<PathBuf>,
    /// Directory for resolved.json, records.jsonl and summary.json
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
        (Some(Subcommand::Budgets { seeds, only, out }), _) => budgets(seeds, &only, &out),
        (None, Some(plan)) => sweep(&plan, &command.out),
        (None, None) => Err(Failure::Configuration(
            "sim: give a plan, or 'budgets'".into(),
        )),
    }
}

/// Shows how far it is, for people only.
fn progress(done: usize, all: usize) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        let end = if done == all { "\n" } else { "" };
        // Progress that cannot be shown is no failure.
        let _ = write!(terminal, "\r{done} of {all} runs{end}");
    }
}

// --- budgets ------------------------------------------------------------------------

fn budgets(seeds: u64, only: &str, out: &Path) -> Result<(), Failure> {
    const CONTROLLERS: [Choice; 4] = [
        Choice::Satellite,
        Choice::Bbr3,
        Choice::Cubic,
        Choice::NewReno,
    ];
    if !(1..=1000).contains(&seeds) {
        return Err(Failure::Configuration(format!(
            "--seeds {seeds}: give 1 to 1000"
        )));
    }
    let rows: Vec<_> = (budget::Section::ALL.into_iter())
        .flat_map(|section| {
            budget::check(section, &CONTROLLERS, seeds, only, Instant::now(), progress)
        })
        .collect();
    if rows.is_empty() {
        return Err(Failure::Configuration(format!(
            "--only {only:?}: no workload has this in its name"
        )));
    }
    let mut work = "";
    let mut section = budget::Section::Goals;
    for row in &rows {
        if row.section != section {
            section = row.section;
            println!("\nPaths that our controller was not tuned on\n");
        }
        if row.work != work {
            work = row.work;
            println!("{work}");
        }
        let bound = row
            .bound_s
            .map_or(String::new(), |bound| format!("{bound:.3} s"));
        print!(
            "  {:<36}{bound:>9}",
            format!("{}, {}", row.figure, row.unit).trim_end_matches(", ")
        );
        for (controller, median) in &row.medians {
            let value = median.map_or("-".into(), |median| format!("{median:.3}"));
            print!("  {controller} {value:>6}");
        }
        let verdict = if row.kept { "ok" } else { "SHORT" };
        println!("  limit {:<9} {verdict}", row.limit.to_string());
    }
    write_json(out, &rows)?;
    let short = rows.iter().filter(|row| !row.kept).count();
    println!(
        "{} of {} goals kept; {}",
        rows.len() - short,
        rows.len(),
        out.display()
    );
    if short > 0 {
        return Err(anyhow::anyhow!("{short} of {} goals are not kept", rows.len()).into());
    }
    Ok(())
}

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

// --- plans --------------------------------------------------------------------------

/// A plan as people write it, one point of its sweep.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    /// The name it goes by.
    name: String,
    /// Where the study is from.
    #[serde(default)]
    source: String,
    /// Runs per point, with seeds 1, 2, ...
    #[serde(default = "one")]
    seeds: u64,
    /// Each run ends here at the latest.
    until: Span,
    /// How often flows are looked at.
    #[serde(default = "second")]
    sample_every: Span,
    link: Scenario,
    #[serde(default)]
    change: Vec<ChangeFile>,
    flow: FlowFile,
    /// Flows alike that run beside each other.
    #[serde(default = "one")]
    flows: u64,
    /// One more flow with this controller beside them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beside: Option<Choice>,
    /// From a moment on, the terminals have another address and come over this link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    r#move: Option<MoveFile>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct FlowFile {
    controller: Choice,
    bytes: Bytes,
    /// Carried before, over the same connection, which is then idle for `idle`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warm: Option<Bytes>,
    #[serde(default = "second")]
    idle: Span,
    #[serde(default = "initial_window")]
    initial_window: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_rtt: Option<Span>,
    /// By default chosen from rate and round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ack_after: Option<u32>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct MoveFile {
    at: Span,
    link: Scenario,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ChangeFile {
    at: Span,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forward_rate: Option<Rate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    return_rate: Option<Rate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blackout: Option<Span>,
}

fn one() -> u64 {
    1
}

fn second() -> Span {
    Span::from_millis(1000)
}

fn initial_window() -> u32 {
    32
}

impl PlanFile {
    /// The run with one seed.
    fn plan(&self, seed: u64) -> Plan {
        let mut settings = Settings::new(self.flow.controller);
        settings.initial_window = self.flow.initial_window;
        settings.initial_rtt = self.flow.initial_rtt.unwrap_or(self.link.satellite_rtt());
        settings.contracted_rate = Some(self.link.forward.rate.ceiling());
        let mut transport = Transport::new(settings);
        let other = self
            .r#move
            .as_ref()
            .map(|to| to.link.forward.rate.ceiling());
        let rate = self.link.forward.rate.ceiling();
        transport.rate = rate.max(other.unwrap_or(rate));
        transport.ack_after = self.flow.ack_after;
        let transfers = match self.flow.warm {
            None => vec![Transfer::now(self.flow.bytes)],
            Some(warm) => vec![
                Transfer::now(warm),
                Transfer::after(self.flow.idle, self.flow.bytes),
            ],
        };
        let mut flow = FlowPlan::new(transport, transfers);
        let mut links = vec![LinkPlan::of(&self.link)];
        for change in &self.change {
            let what = [
                change.forward_rate.map(What::ForwardRate),
                change.return_rate.map(What::ReturnRate),
                change.blackout.map(What::Blackout),
            ];
            let what = what.into_iter().flatten().map(|what| Change {
                at: change.at,
                what,
            });
            links[0].changes.extend(what);
        }
        if let Some(to) = &self.r#move {
            links.push(LinkPlan::of(&to.link));
            flow.moves = vec![bentpipe_sim::Move {
                at: to.at,
                path: vec![1],
            }];
        }
        let mut flows = vec![flow.clone(); usize::try_from(self.flows).unwrap_or(1)];
        if let Some(controller) = self.beside {
            flow.transport.settings.controller = controller;
            flows.push(flow);
        }
        Plan {
            seed,
            links,
            flows,
            until: self.until,
            sample_every: self.sample_every,
        }
    }
}

/// Every combination of the lists in `value`, each with the values chosen. Lists of
/// tables are not swept over.
fn points(value: &toml::Value) -> Vec<(BTreeMap<String, String>, toml::Value)> {
    fn first_list(value: &toml::Value, path: &str) -> Option<(String, Vec<toml::Value>)> {
        match value {
            toml::Value::Array(list) if !list.iter().any(toml::Value::is_table) => {
                Some((path.to_owned(), list.clone()))
            }
            toml::Value::Table(table) => table.iter().find_map(|(key, inner)| {
                let dot = if path.is_empty() { "" } else { "." };
                first_list(inner, &format!("{path}{dot}{key}"))
            }),
            _ => None,
        }
    }
    fn put(value: &mut toml::Value, path: &str, chosen: toml::Value) {
        let at = path.split('.').try_fold(value, |at, key| at.get_mut(key));
        *at.expect("the path was found in this value") = chosen;
    }
    let Some((path, list)) = first_list(value, "") else {
        return vec![(BTreeMap::new(), value.clone())];
    };
    let mut all = Vec::new();
    for chosen in list {
        let text = chosen
            .as_str()
            .map_or_else(|| chosen.to_string(), str::to_owned);
        let mut next = value.clone();
        put(&mut next, &path, chosen);
        for (mut axes, value) in points(&next) {
            axes.insert(path.clone(), text.clone());
            all.push((axes, value));
        }
    }
    all
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Summary {
    axes: BTreeMap<String, String>,
    n_ok: usize,
    n_total: usize,
    /// Of the last transfer of the first flow.
    median_s: Option<f64>,
    /// Payload that the first flow received, of whole runs.
    median_goodput_bit_s: f64,
    /// Share of the first flow of all that was received.
    median_share: f64,
    verdicts: BTreeMap<String, usize>,
}

fn sweep(path: &Path, out: &Path) -> Result<(), Failure> {
    let text = failure::read(path)?;
    let value: toml::Value = toml::from_str(&text).map_err(|error| Failure::file(path, error))?;
    let mut jobs = Vec::new();
    let mut resolved = Vec::new();
    for (index, (axes, value)) in points(&value).into_iter().enumerate() {
        // The text is read again so that an error shows its place in it, where it can.
        let parsed: Result<PlanFile, _> = if axes.is_empty() {
            toml::from_str(&text)
        } else {
            value.try_into()
        };
        let file = parsed.map_err(|error| Failure::file(path, error))?;
        Scenario::parse(&toml::to_string(&file.link).map_err(anyhow::Error::from)?)
            .map_err(|error| Failure::file(path, format!("link: {error}")))?;
        if !(1..=10_000).contains(&file.seeds) || !(1..=1_000).contains(&file.flows) {
            let why = format!(
                "seeds = {} and flows = {}: give 1 to 10000 seeds and 1 to 1000 flows",
                file.seeds, file.flows
            );
            return Err(Failure::file(path, why));
        }
        file.plan(1)
            .check()
            .map_err(|error| Failure::file(path, error))?;
        jobs.extend((1..=file.seeds).map(|seed| (index, seed)));
        resolved.push((axes, file));
    }
    let runs = execute(&resolved, &jobs)?;

    let mut records = String::new();
    let mut summaries = Vec::new();
    for (index, (axes, file)) in resolved.iter().enumerate() {
        let mine: Vec<_> = runs.iter().filter(|(at, ..)| *at == index).collect();
        summaries.push(summarise(
            axes,
            file,
            mine.iter().map(|(_, _, records)| records),
        ));
        for (_, seed, run) in mine {
            let run_line = serde_json::json!({"run": {"axes": axes, "seed": seed}});
            records += &format!("{run_line}\n{}", run.to_jsonl());
        }
    }
    write_json(&out.join("resolved.json"), &resolved)?;
    write(&out.join("records.jsonl"), &records)?;
    write_json(&out.join("summary.json"), &summaries)?;
    print_table(&summaries);
    println!("{}", out.join("summary.json").display());
    Ok(())
}

type Point = (BTreeMap<String, String>, PlanFile);

/// Runs all jobs on all cores; gives them back in their order.
fn execute(points: &[Point], jobs: &[(usize, u64)]) -> Result<Vec<(usize, u64, Records)>, Failure> {
    let base = Instant::now();
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let runs = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&(index, seed)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let records = bentpipe_sim::run(&points[index].1.plan(seed), base);
                    let mut runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
                    runs.push((index, seed, records));
                    progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
                }
            });
        }
    });
    let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_by_key(|(index, seed, _)| (*index, *seed));
    runs.into_iter()
        .map(|(index, seed, records)| Ok((index, seed, records.map_err(anyhow::Error::from)?)))
        .collect()
}

fn summarise<'a>(
    axes: &BTreeMap<String, String>,
    file: &PlanFile,
    runs: impl Iterator<Item = &'a Records>,
) -> Summary {
    let (mut seconds, mut goodputs, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    let mut verdicts = BTreeMap::new();
    let mut n_total = 0;
    for records in runs {
        n_total += 1;
        let flow = &records.flows[0];
        let verdict = match &flow.verdict {
            Verdict::Ok => "ok".to_owned(),
            Verdict::TimedOut => "timed out".to_owned(),
            Verdict::Broken(why) => format!("broken: {why}"),
        };
        *verdicts.entry(verdict).or_insert(0) += 1;
        let mut transfers = records
            .transfers
            .iter()
            .filter(|transfer| transfer.flow == 0);
        if flow.verdict == Verdict::Ok {
            seconds.extend(transfers.next_back().and_then(|last| last.seconds()));
        }
        let received = |flow: Option<usize>| {
            let of = |transfer: &&bentpipe_sim::record::TransferRecord| {
                flow.is_none_or(|flow| transfer.flow == flow)
            };
            let bytes: u64 = records
                .transfers
                .iter()
                .filter(of)
                .map(|at| at.received)
                .sum();
            bytes as f64
        };
        let until = file.until.as_secs_f64();
        goodputs.push(received(Some(0)) * 8.0 / seconds.last().copied().unwrap_or(until));
        shares.push(received(Some(0)) / received(None).max(1.0));
    }
    Summary {
        axes: axes.clone(),
        n_ok: seconds.len(),
        n_total,
        median_s: median(&mut seconds),
        median_goodput_bit_s: median(&mut goodputs).unwrap_or(0.0),
        median_share: median(&mut shares).unwrap_or(0.0),
        verdicts,
    }
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values {
        [] => None,
        [..] if values.len() % 2 == 1 => Some(values[middle]),
        [..] => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

fn print_table(summaries: &[Summary]) {
    for line in summaries {
        let axes: Vec<_> = line
            .axes
            .iter()
            .map(|(path, value)| format!("{path} = {value}"))
            .collect();
        let seconds = line
            .median_s
            .map_or("-".into(), |seconds| format!("{seconds:.3} s"));
        println!(
            "{:<60} {:>4} of {:<4} {seconds:>12} {:>9.3} Mbit/s",
            axes.join(", "),
            line.n_ok,
            line.n_total,
            line.median_goodput_bit_s / 1e6,
        );
    }
}

//! Execution of all runs of a plan on all cores.
//!
//! Records are written as they come, in the plan's order; the summary follows every few
//! seconds. What was measured before a run failed, or before somebody had enough, stays.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use schemars::JsonSchema;
use serde::Serialize;

use crate::progress::Progress;
use crate::study::Study;
use crate::sweep::Axes;
use crate::table::{self, Kind, Line};
use crate::write;

/// How often the summary is brought up to date.
const SUMMARY_EVERY: Duration = Duration::from_secs(5);

/// All runs of `points`; writes `records.jsonl`, `summary.json` and `summary.csv` to `out`.
/// An error tells of the runs that failed, if only some did.
pub fn execute(points: &[(Axes, Study)], out: &Path) -> anyhow::Result<Vec<Line>> {
    let jobs: Vec<_> = (points.iter().enumerate())
        .flat_map(|(index, (_, study))| study.seeds().map(move |seed| (index, seed)))
        .collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let base = Instant::now();
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let (done, results) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            let done = done.clone();
            scope.spawn(|| {
                let done = done;
                while !stop.load(Ordering::Relaxed) {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&(index, seed)) = jobs.get(job) else {
                        break;
                    };
                    let run = run(&points[index], seed, base);
                    // Nobody listens any more where the records could not be written.
                    if done.send((job, run)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        let written = collect(points, &jobs, results, out);
        stop.store(true, Ordering::Relaxed);
        written
    })
}

/// One run: its lines of `records.jsonl`, and its figures if it did not fail.
struct Run {
    lines: String,
    figures: Result<Vec<Kind>, String>,
}

/// The line of `records.jsonl` before those of one run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunLine<'a> {
    run: RunHead<'a>,
}

/// Which run the lines that follow are of.
#[derive(Debug, Serialize, JsonSchema)]
struct RunHead<'a> {
    /// The values that the sweep chose, by the dotted names of their fields.
    axes: &'a Axes,
    /// Why there are no records of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<&'a str>,
    /// Its seed.
    seed: u64,
}

impl RunLine<'_> {
    fn text(axes: &Axes, seed: u64, failed: Option<&str>) -> String {
        let run = RunHead { axes, failed, seed };
        serde_json::to_string(&RunLine { run }).expect("a run's head is plain data") + "\n"
    }
}

fn run((axes, study): &(Axes, Study), seed: u64, base: Instant) -> Run {
    // A run that panics is a defect of ours; the others are worth having all the same.
    let run = catch_unwind(AssertUnwindSafe(|| study.run(seed, base)))
        .map_err(|panic| {
            let text = (panic.downcast_ref::<String>().cloned())
                .or(panic.downcast_ref::<&str>().map(ToString::to_string));
            text.unwrap_or_else(|| "it panicked".into())
        })
        .flatten();
    match run {
        Ok((lines, figures)) => Run {
            lines: RunLine::text(axes, seed, None) + &lines,
            figures: Ok(figures),
        },
        Err(why) => Run {
            lines: RunLine::text(axes, seed, Some(&why)),
            figures: Err(why),
        },
    }
}

/// Writes what the workers send, in the order of the jobs.
fn collect(
    points: &[(Axes, Study)],
    jobs: &[(usize, u64)],
    results: mpsc::Receiver<(usize, Run)>,
    out: &Path,
) -> anyhow::Result<Vec<Line>> {
    let path = out.join("records.jsonl");
    let mut records =
        BufWriter::new(File::create(&path).with_context(|| format!("writing {}", path.display()))?);
    writeln!(records, "{}", bentpipe_sim::record::SCHEMA)?;
    let mut progress = Progress::new(jobs.len());
    let mut waiting = BTreeMap::new();
    let mut written = 0;
    let mut figures: Vec<Vec<Option<Vec<Kind>>>> = points.iter().map(|_| Vec::new()).collect();
    let mut lines = Vec::new();
    let mut failed: Vec<String> = Vec::new();
    let mut summary = Instant::now();
    for (count, (job, run)) in results.into_iter().enumerate() {
        waiting.insert(job, run);
        while let Some(run) = waiting.remove(&written) {
            let (index, seed) = jobs[written];
            let (axes, study) = &points[index];
            (records.write_all(run.lines.as_bytes()))
                .with_context(|| format!("writing {}", path.display()))?;
            if let Err(why) = &run.figures {
                failed.push(format!("seed {seed} of {axes:?}: {why}"));
            }
            figures[index].push(run.figures.ok());
            if seed + 1 == study.seeds().end {
                lines.extend(study.summarise(axes, &std::mem::take(&mut figures[index])));
            }
            written += 1;
        }
        progress.show(count + 1);
        if summary.elapsed() > SUMMARY_EVERY {
            records.flush()?;
            summarise(&lines, out)?;
            summary = Instant::now();
        }
    }
    records
        .flush()
        .with_context(|| format!("writing {}", path.display()))?;
    summarise(&lines, out)?;
    anyhow::ensure!(
        failed.is_empty(),
        "{} of {} runs failed, the first one: {}; the others are in {}",
        failed.len(),
        jobs.len(),
        failed[0],
        out.display()
    );
    Ok(lines)
}

fn summarise(lines: &[Line], out: &Path) -> anyhow::Result<()> {
    crate::write_json(&out.join("summary.json"), &lines)?;
    write(&out.join("summary.csv"), &table::csv(lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep;

    const PLAN: &str = r#"
        name = "test"
        seeds = 2
        until = "1 s"
        [link]
        name = "leo"
        forward = { rate = "1 Mbit/s", delay = "1 ms", queue = ["10 kB", "20 kB"] }
        return = { rate = "1 Mbit/s", delay = "1 ms", queue = "10 kB" }
        [flow]
        controller = "newreno"
        bytes = "1 kB"
    "#;

    #[test]
    fn records_come_in_order_and_those_before_and_after_a_failed_run_stay() {
        let points: Vec<_> = (sweep::points(PLAN, crate::study::schema)
            .expect("points")
            .into_iter())
        .map(|point| {
            let study = Study::read(PLAN, &point, Path::new("")).expect("a plan");
            (point.axes, study)
        })
        .collect();
        let jobs = [(0, 1), (0, 2), (1, 1), (1, 2)];
        let (done, results) = mpsc::channel();
        for job in [2, 0, 3, 1] {
            let (index, seed) = jobs[job];
            let mut run = run(&points[index], seed, Instant::now());
            if job == 1 {
                run.lines = "failed\n".into();
                run.figures = Err("out of luck".into());
            }
            done.send((job, run)).expect("somebody listens");
        }
        drop(done);
        let out = std::env::temp_dir().join(format!("bpsim-collect-{}", std::process::id()));
        std::fs::create_dir_all(&out).expect("a directory");
        let error = collect(&points, &jobs, results, &out).expect_err("a run failed");
        let records = std::fs::read_to_string(out.join("records.jsonl")).expect("records");
        let summary = std::fs::read_to_string(out.join("summary.json")).expect("a summary");
        std::fs::remove_dir_all(&out).expect("it was made above");
        let error = error.to_string();
        assert!(
            error.starts_with("1 of 4 runs failed, the first one: seed 2"),
            "{error}"
        );
        assert!(error.contains("out of luck"), "{error}");
        let begun: Vec<_> = (records.lines())
            .filter(|line| line.starts_with("{\"run\"") || *line == "failed")
            .map(|line| match line.split_once("\"seed\":") {
                Some((_, seed)) => format!("{} {seed}", line.contains("10 kB")),
                None => line.to_owned(),
            })
            .collect();
        assert_eq!(begun, ["true 1}}", "failed", "false 1}}", "false 2}}"]);
        let lines: serde_json::Value = serde_json::from_str(&summary).expect("JSON");
        assert_eq!(lines[0]["verdicts"]["failed"], 1);
        assert_eq!(
            (&lines[0]["n_ok"], &lines[1]["n_ok"]),
            (&1.into(), &2.into())
        );
    }
}

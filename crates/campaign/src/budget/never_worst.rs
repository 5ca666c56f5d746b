//! Never the worst choice: a controller beside the others on [drawn links](super::draw).
//!
//! Each link carries one endless download with each controller, as often as there are seeds of
//! its losses, its jitter and its hosts' stalls. Of it count when 100 kB, 2 MB and 20 MB have
//! arrived, what arrived in all, and the queue's 95th percentile. A cell is a link and a
//! measure; its score is the controller's median over the seeds as a share of the best of the
//! others' medians, more than 1 where it is better than all of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bentpipe_cc::Choice;
use bentpipe_sim::quic::{FlowPlan, Transfer};
use bentpipe_sim::{LinkPlan, Nodes, Plan, Records};
use bentpipe_units::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::progress::Progress;

use super::draw::{Drawn, Links};
use super::median;
use super::plans::{ENDLESS, transport};

/// Those that a controller is held against.
pub const OTHERS: [Choice; 3] = [Choice::Cubic, Choice::Bbr3, Choice::NewReno];
/// Bytes whose arrival is timed.
const MILESTONES: [u64; 3] = [100_000, 2_000_000, 20_000_000];
/// Names of the measures of [`Run::measures`].
pub const MEASURES: [&str; 4] = ["100 kB", "2 MB", "20 MB", "goodput"];

/// What one download came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Which link of the set.
    pub link: u64,
    /// Whose.
    pub controller: Choice,
    /// Which of the link's seeds.
    #[serde(default)]
    pub repetition: u64,
    /// Seconds that it lasted.
    pub lasted: u64,
    /// Seconds to each milestone, where it was reached.
    pub seconds: [Option<f64>; 3],
    /// Mbit/s of payload.
    pub goodput: f64,
    /// 95th percentile of the waiting time, ms.
    pub queue_p95_ms: f64,
    /// Packets lost, of those sent.
    pub lost: f64,
}

/// A controller on one link by one measure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// Which link.
    pub link: u64,
    /// What is measured, an entry of [`MEASURES`].
    pub measure: &'static str,
    /// Median over the seeds, as a share of the best of the others'; above 1 it is better.
    pub score: f64,
    /// The worst seed, as a share of the worst seed of the best other.
    pub worst_seed: f64,
    /// The best other.
    pub best: Choice,
}

impl Run {
    /// More is better: 1 / s to a milestone, where it was reached, or Mbit/s in all.
    fn figure(&self, measure: usize) -> Option<f64> {
        match measure {
            3 => Some(self.goodput),
            measure => self.seconds[measure].map(|seconds| 1.0 / seconds),
        }
    }

    /// The same; what was not reached took longer than the run, at least its part of the way.
    fn at_most(&self, measure: usize) -> f64 {
        (self.figure(measure)).unwrap_or_else(|| self.goodput * 125e3 / MILESTONES[measure] as f64)
    }
}

/// The plan of `drawn` for `controller`.
pub fn plan(drawn: &Drawn, controller: Choice, seed: u64) -> Plan {
    let rtt = drawn.scenario.satellite_rtt().max(Span::from_millis(10));
    let mut transport = transport(controller, drawn.bits, rtt);
    transport.rate = Rate::from_bits_per_second(drawn.bits.max(10_000_000));
    let mut flow = FlowPlan::new(transport, vec![Transfer::now(ENDLESS)]);
    flow.host = drawn.host;
    Plan {
        seed: seed ^ drawn.number,
        links: vec![LinkPlan::of(&drawn.scenario)],
        nodes: Nodes::Quic(vec![flow]),
        until: Span::from_millis(1000 * drawn.seconds),
        // A first 100 kB over 15 ms take 60.
        sample_every: Span::from_millis(1),
    }
}

fn run(drawn: &Drawn, controller: Choice, seed: u64, repetition: u64, base: Instant) -> Run {
    let seed = seed ^ repetition.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let records = Records::of(&plan(drawn, controller, seed), base)
        .expect("the plan of a drawn link can be carried out");
    let mut waits: Vec<_> = (records.samples.iter())
        .filter_map(|sample| sample.waited_ns)
        .collect();
    waits.sort_unstable();
    let sent = records.flows.first().map_or(0, |flow| flow.sent);
    let lost = records.flows.first().map_or(0, |flow| flow.lost);
    let received = records.samples.last().map_or(0, |last| last.received);
    Run {
        link: drawn.number,
        controller,
        repetition,
        lasted: drawn.seconds,
        seconds: MILESTONES.map(|bytes| reached(&records, bytes)),
        goodput: received as f64 * 8e-6 / drawn.seconds as f64,
        queue_p95_ms: waits
            .get(waits.len() * 95 / 100)
            .map_or(0.0, |wait| *wait as f64 / 1e6),
        lost: lost as f64 / sent.max(1) as f64,
    }
}

fn reached(records: &Records, bytes: u64) -> Option<f64> {
    let sample = records
        .samples
        .iter()
        .find(|sample| sample.received >= bytes)?;
    Some(sample.at_ns as f64 / 1e9)
}

/// Runs `links` links of the set `seed` with each of `controllers`, `repetitions` times each, but
/// for those that `known` has.
pub fn runs(
    seed: u64,
    links: &[u64],
    controllers: &[Choice],
    repetitions: u64,
    known: Vec<Run>,
    base: Instant,
) -> Vec<Run> {
    let keep = |_: &Run| Ok::<_, Infallible>(());
    let set = Links::whole(seed);
    let Ok(runs) = runs_kept(set, links, controllers, repetitions, known, keep, base);
    runs
}

/// The same over links of `set`; `keep` has each run as it ends.
///
/// # Errors
///
/// The first of `keep`, behind which no more are begun.
pub fn runs_kept<E: Send>(
    set: Links,
    links: &[u64],
    controllers: &[Choice],
    repetitions: u64,
    known: Vec<Run>,
    keep: impl FnMut(&Run) -> Result<(), E> + Send,
    base: Instant,
) -> Result<Vec<Run>, E> {
    let mut jobs: Vec<(u64, Choice, u64)> = Vec::new();
    for link in links {
        for controller in controllers {
            jobs.extend((0..repetitions).map(|repetition| (*link, *controller, repetition)));
        }
    }
    jobs.retain(|job| {
        !(known.iter()).any(|run| *job == (run.link, run.controller, run.repetition))
    });
    // The long ones first, so that no core waits for the last.
    jobs.sort_by_key(|(link, ..)| std::cmp::Reverse(set.link(*link).bits));
    let next = AtomicUsize::new(0);
    let progress = Progress::new(jobs.len());
    let results = Mutex::new((known, 0, progress, keep, Ok(())));
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&(link, controller, repetition)) =
                    jobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let run = run(&set.link(link), controller, set.seed, repetition, base);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    let (runs, done, progress, keep, kept) = &mut *results;
                    if kept.is_ok() {
                        *kept = keep(&run);
                    }
                    if kept.is_err() {
                        break;
                    }
                    runs.push(run);
                    *done += 1;
                    progress.show(*done);
                }
            });
        }
    });
    let (mut runs, .., kept) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    kept?;
    runs.sort_by_key(|run| (run.link, run.controller, run.repetition));
    Ok(runs)
}

/// The runs of each link and controller.
fn by_link(runs: &[Run]) -> BTreeMap<u64, BTreeMap<Choice, Vec<&Run>>> {
    let mut links: BTreeMap<u64, BTreeMap<Choice, Vec<&Run>>> = BTreeMap::new();
    for run in runs {
        let of_link = links.entry(run.link).or_default();
        of_link.entry(run.controller).or_default().push(run);
    }
    links
}

/// The cells of `controller`, worst first.
pub fn cells(runs: &[Run], controller: Choice) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (link, runs) in by_link(runs) {
        let Some(own) = runs.get(&controller) else {
            continue;
        };
        for (index, measure) in MEASURES.into_iter().enumerate() {
            let speeds =
                |runs: &[&Run]| -> Vec<f64> { runs.iter().map(|run| run.at_most(index)).collect() };
            let best = (OTHERS.iter())
                .filter(|other| **other != controller)
                .filter_map(|other| {
                    let of = runs.get(other)?;
                    let reached = of.iter().filter(|run| run.figure(index).is_some());
                    let most = 2 * reached.count() > of.len();
                    Some((median(speeds(of).into_iter()).filter(|_| most)?, *other))
                })
                .max_by(|one, other| one.0.total_cmp(&other.0));
            let Some((best, by)) = best.filter(|(best, _)| *best > 0.0) else {
                continue;
            };
            let least = |runs: &[&Run]| speeds(runs).into_iter().fold(f64::INFINITY, f64::min);
            cells.push(Cell {
                link,
                measure,
                score: median(speeds(own).into_iter()).unwrap_or(0.0) / best,
                worst_seed: least(own) / least(&runs[&by]),
                best: by,
            });
        }
    }
    cells.sort_by(|one, other| one.score.total_cmp(&other.score));
    cells
}

/// Of each controller and cell the median over the seeds as a share of the best of all of them, at most 1: 0 where it
/// has not carried the size in the middle one of its runs. Cells of a size that nobody has carried are left out.
pub fn shares_of_best(runs: &[Run]) -> BTreeMap<Choice, Vec<f64>> {
    let mut shares: BTreeMap<Choice, Vec<f64>> = BTreeMap::new();
    for runs in by_link(runs).values() {
        for measure in 0..MEASURES.len() {
            let figure = |run: &&Run| run.figure(measure).unwrap_or(0.0);
            let medians = (runs.iter()).filter_map(|(controller, runs)| {
                Some((*controller, median(runs.iter().map(figure))?))
            });
            let medians: Vec<_> = medians.collect();
            let best = medians
                .iter()
                .map(|(_, figure)| *figure)
                .fold(0.0, f64::max);
            for (controller, figure) in medians.into_iter().filter(|_| best > 0.0) {
                shares.entry(controller).or_default().push(figure / best);
            }
        }
    }
    shares
}

/// On how many of how many links the 95th percentile of `controller`'s queue is at most CUBIC's, in
/// the median of the seeds; a millisecond more is the same.
pub fn queues(runs: &[Run], controller: Choice) -> (usize, usize) {
    let mut links: BTreeMap<u64, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for run in runs {
        let (own, cubic) = links.entry(run.link).or_default();
        if run.controller == controller {
            own.push(run.queue_p95_ms);
        }
        if run.controller == Choice::Cubic {
            cubic.push(run.queue_p95_ms);
        }
    }
    let pairs: Vec<_> = (links.into_values())
        .filter_map(|(own, cubic)| Some((median(own.into_iter())?, median(cubic.into_iter())?)))
        .collect();
    let kept = pairs
        .iter()
        .filter(|(own, cubic)| *own <= cubic + 1.0)
        .count();
    (kept, pairs.len())
}

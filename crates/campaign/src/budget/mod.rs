//! Budgets of the controllers: named workloads, each with its physical bound,
//! the limit and where the limit is from.
//!
//! R is 600 ms, the rates 20/2 Mbit/s and the download 10 MiB unless the work says
//! otherwise. Bounds count 63 bytes of headers in 1500 (IPv4 20, UDP 8, short header
//! 11, AEAD 16, stream frame 8).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bentpipe_cc::Choice;
use serde::Serialize;

use bentpipe_sim::{Plan, Records};

use crate::progress::Progress;

mod plans;
mod goals;
mod other_paths;
mod classes;
pub mod draw;
mod kept;
pub mod never_worst;

pub use draw::Links;
pub use kept::Kept;

/// A workload and what is asked of it.
pub struct Budget {
    /// A name for tables.
    pub work: &'static str,
    /// Where the limits are from.
    pub source: &'static str,
    plan: fn(Choice, u64) -> Plan,
    /// What is asked.
    pub goals: &'static [Goal],
}

/// Which budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// The project's goals, which the satellite controller was tuned on.
    Goals,
    /// Other paths, to see whether it holds there.
    OtherPaths,
    /// Classes of links on which it once did badly.
    Classes,
    /// The same on busy hosts.
    ClassesOnBusyHosts,
}

impl Section {
    /// All, in the table's order.
    pub const ALL: [Self; 4] = [
        Self::Goals,
        Self::OtherPaths,
        Self::Classes,
        Self::ClassesOnBusyHosts,
    ];

    /// Its heading in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Goals => "Goals",
            Self::OtherPaths => "Other paths, beside the other controllers",
            Self::Classes => "Classes of links, ideal hosts",
            Self::ClassesOnBusyHosts => "Classes of links, busy hosts",
        }
    }

    fn budgets(self) -> &'static [Budget] {
        match self {
            Self::Goals => goals::GOALS,
            Self::OtherPaths => other_paths::OTHER_PATHS,
            Self::Classes => classes::CLASSES,
            Self::ClassesOnBusyHosts => classes::CLASSES_BUSY,
        }
    }
}

/// One figure and its limit.
pub struct Goal {
    /// What is measured.
    pub figure: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// The bound in seconds or the like, where the figure is a ratio to one.
    bound: fn() -> Option<f64>,
    measure: fn(&Records) -> f64,
    /// The limit.
    pub limit: Limit,
}

/// Share of what CUBIC carries that is asked for on other paths: it does so with a full queue.
pub const BESIDE_CUBIC: f64 = 0.95;

/// On which side of the limit it is good.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The median may not be larger.
    AtMost(f64),
    /// The median may not be larger than this, unless CUBIC's is.
    AtMostOrCubics(f64),
    /// The median may not be smaller.
    AtLeast(f64),
    /// More is better: the median may not be smaller than this share of the best of the
    /// other controllers, nor than [`BESIDE_CUBIC`] of CUBIC's.
    OfTheBest(f64),
    /// Shown only.
    None,
}

impl Budget {
    /// The run for `controller` with `seed`.
    pub fn plan(&self, controller: Choice, seed: u64) -> Plan {
        (self.plan)(controller, seed)
    }
}

impl Limit {
    /// Whether the first of the medians keeps it. What is not a number does not.
    pub fn keeps(self, medians: &[(Choice, Option<f64>)]) -> bool {
        let [(_, Some(value)), others @ ..] = medians else {
            return self == Self::None;
        };
        match self {
            Self::AtMost(most) => *value <= most,
            Self::AtMostOrCubics(most) => {
                let cubics = others.iter().filter(|(other, _)| *other == Choice::Cubic);
                let most = cubics
                    .filter_map(|(_, median)| *median)
                    .fold(most, f64::max);
                *value <= most
            }
            Self::AtLeast(least) => *value >= least,
            Self::OfTheBest(share) => others.iter().all(|(other, median)| {
                let share = if *other == Choice::Cubic {
                    BESIDE_CUBIC.max(share)
                } else {
                    share
                };
                median.is_none_or(|median| *value >= share * median)
            }),
            Self::None => true,
        }
    }
}

impl Limit {
    /// The worst of one controller's figures.
    fn worst(self, figures: impl Iterator<Item = f64>) -> Option<f64> {
        let worst = match self {
            Self::AtMost(_) | Self::AtMostOrCubics(_) => figures.max_by(f64::total_cmp),
            Self::AtLeast(_) | Self::OfTheBest(_) => figures.min_by(f64::total_cmp),
            Self::None => None,
        };
        worst.filter(|figure| figure.is_finite())
    }
}

impl std::fmt::Display for Limit {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtMost(most) => out.pad(&format!("<= {most}")),
            Self::AtMostOrCubics(most) => out.pad(&format!("<= {most}|cubic")),
            Self::AtLeast(least) => out.pad(&format!(">= {least}")),
            Self::OfTheBest(share) => out.pad(&format!(">= {share} best")),
            Self::None => out.pad("none"),
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Of which part of the table.
    pub section: Section,
    /// The workload.
    pub work: &'static str,
    /// The figure.
    pub figure: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The physical bound, in seconds, where the figure is a ratio to one.
    pub bound_s: Option<f64>,
    /// The limit for our controller.
    pub limit: Limit,
    /// Where it is from.
    pub source: &'static str,
    /// Medians by controller, in the order asked for; `None` when half the runs did not finish.
    pub medians: Vec<(Choice, Option<f64>)>,
    /// The first controller's figure with the seed that is worst for it; `None` where a run did not finish, or where
    /// nothing is asked.
    pub worst: Option<f64>,
    /// Whether the first controller keeps the limit.
    pub kept: bool,
}

/// Runs the budgets of `section` whose work contains `filter` for each of `controllers` with `seeds`
/// seeds, on all cores, and shows the progress.
pub fn check(
    section: Section,
    controllers: &[Choice],
    seeds: u64,
    filter: &str,
    base: Instant,
) -> Vec<Row> {
    let budgets: Vec<_> = section
        .budgets()
        .iter()
        .filter(|budget| budget.work.contains(filter))
        .collect();
    let mut jobs = Vec::new();
    for index in 0..budgets.len() {
        for (place, controller) in controllers.iter().enumerate() {
            jobs.extend((1..=seeds).map(|seed| (index, place, *controller, seed)));
        }
    }
    let results = Mutex::new((Vec::new(), Progress::new(jobs.len())));
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&(index, place, controller, seed)) =
                    jobs.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    let budget = budgets[index];
                    let records = Records::of(&(budget.plan)(controller, seed), base);
                    let figures: Vec<_> = (budget.goals.iter())
                        .map(|goal| records.as_ref().map_or(f64::NAN, goal.measure))
                        .collect();
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    let (values, progress) = &mut *results;
                    values.push((index, place, figures));
                    progress.show(values.len());
                }
            });
        }
    });
    let (values, _) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut rows = Vec::new();
    for (index, budget) in budgets.iter().enumerate() {
        for (column, goal) in budget.goals.iter().enumerate() {
            let medians: Vec<_> = (controllers.iter().enumerate())
                .map(|(place, controller)| {
                    let figures = (values.iter())
                        .filter(|value| value.0 == index && value.1 == place)
                        .map(|value| value.2[column]);
                    (*controller, median(figures))
                })
                .collect();
            let own = (values.iter())
                .filter(|value| value.0 == index && value.1 == 0)
                .map(|value| value.2[column]);
            rows.push(Row {
                section,
                work: budget.work,
                figure: goal.figure,
                unit: goal.unit,
                bound_s: (goal.bound)(),
                limit: goal.limit,
                source: budget.source,
                kept: goal.limit.keeps(&medians),
                worst: goal.limit.worst(own),
                medians,
            });
        }
    }
    rows
}

/// The middle of the figures; a run without one counts as infinitely bad.
pub fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    let median = if figures.len().is_multiple_of(2) && middle > 0 {
        f64::midpoint(figures[middle - 1], figures[middle])
    } else {
        *figures.get(middle)?
    };
    median.is_finite().then_some(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_can_be_run() {
        for budget in Section::ALL.into_iter().flat_map(Section::budgets) {
            for seed in [1, 30] {
                let plan = budget.plan(Choice::Satellite, seed);
                assert_eq!(plan.check(), Ok(()), "{}", budget.work);
            }
        }
    }
}

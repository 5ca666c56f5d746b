//! Studies in virtual time: a plan file, the points of its sweep, and what comes of them.
//!
//! In the order in which a plan meets them:
//!
//! 1. `range` writes ranges out as lists, [`sweep`] turns lists into points; `shape`
//!    tells it which fields are lists anyway;
//! 2. [`study`] reads a point: QUIC connections alone (`plan`), or terminals and a
//!    gateway (`tunnel`), what changes on their link (`change`) and on what machines they run (`host`), proxies on their way (`pep`); a [`problem`] names
//!    line and field;
//! 3. [`execute`] runs the points on all cores and shows the [`progress`]; [`table`] sums up.
//!
//! [`budget`] has named goals with their physical bounds, [`schema`] the JSON Schemas of
//! all files that are read and written here.

pub mod problem;
mod range;
mod shape;
pub mod sweep;
mod change;
pub mod host;
mod pep;
mod plan;
mod tunnel;
pub mod study;
pub mod execute;
pub mod progress;
pub mod table;
pub mod budget;
pub mod schema;

use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use problem::Problem;
use study::Study;
use sweep::Axes;

/// Runs that a plan may have.
const MOST_RUNS: u64 = 1_000_000;

/// The checked points of the plan `text`, which lies in the directory `beside`, each with
/// its place on the axes of the sweep.
pub fn points(text: &str, beside: &Path) -> Result<Vec<(Axes, Study)>, Problem> {
    let text = range::expand(text)?;
    let mut points = Vec::new();
    let mut runs = 0;
    for point in sweep::points(&text, study::schema)? {
        let study = Study::read(&text, &point, beside)?;
        runs += study.runs();
        points.push((point.axes, study));
    }
    if runs > MOST_RUNS {
        return Err(Problem::TooManyRuns {
            points: points.len(),
            runs,
            most: MOST_RUNS,
        });
    }
    Ok(points)
}

/// Writes `value` as JSON to `path`, whose directory is made.
pub fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    write(path, &(serde_json::to_string_pretty(value)? + "\n"))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("making {}", directory.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

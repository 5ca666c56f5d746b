//! A study: one point of a plan, with QUIC connections alone or terminals and a gateway.

use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Instant;

use bentpipe_sim::{Plan, Record, Records};
use schemars::{JsonSchema, schema_for};
use serde::Serialize;
use serde_json::Value;
use toml::de::DeTable;

use crate::plan::PlanFile;
use crate::problem::Problem;
use crate::sweep::{Axes, Point};
use crate::table::{Figures, Kind, Line};
use crate::tunnel::TunnelFile;

/// One point of a plan.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Study {
    /// QUIC connections alone.
    Quic(Box<PlanFile>),
    /// Terminals and a gateway.
    Tunnel(Box<TunnelFile>),
}

/// The JSON Schema of the kind of plan that `file` is.
pub fn schema(file: &DeTable<'_>) -> &'static Value {
    static QUIC: LazyLock<Value> = LazyLock::new(|| schema_for!(PlanFile).to_value());
    static TUNNEL: LazyLock<Value> = LazyLock::new(|| schema_for!(TunnelFile).to_value());
    if is_tunnel(file) { &TUNNEL } else { &QUIC }
}

fn is_tunnel(file: &DeTable<'_>) -> bool {
    file.contains_key("through")
}

impl Study {
    /// Reads and checks `point` of the plan `text`, which lies in the directory `beside`.
    pub fn read(text: &str, point: &Point<'_>, beside: &Path) -> Result<Self, Problem> {
        if is_tunnel(point.file.get_ref()) {
            let file = TunnelFile::read(text, point, beside)?;
            Ok(Self::Tunnel(Box::new(file)))
        } else {
            let file = PlanFile::read(text, point, beside)?;
            Ok(Self::Quic(Box::new(file)))
        }
    }

    /// How many runs it has.
    pub fn runs(&self) -> u64 {
        match self {
            Self::Quic(file) => file.seeds,
            Self::Tunnel(file) => file.seeds,
        }
    }

    /// Their seeds.
    pub fn seeds(&self) -> Range<u64> {
        let first = match self {
            Self::Quic(file) => file.first_seed,
            Self::Tunnel(file) => file.first_seed,
        };
        first..first + self.runs()
    }

    /// The run with one seed.
    fn plan(&self, seed: u64) -> Plan {
        match self {
            Self::Quic(file) => file.plan(seed),
            Self::Tunnel(file) => file.plan(seed),
        }
    }

    /// One run: the lines of its records, and the figures of each kind of its flows.
    pub fn run(&self, seed: u64, base: Instant) -> Result<(String, Vec<Kind>), String> {
        let mut lines = String::new();
        let mut records = Records::default();
        let mut keep = |record: Record| {
            lines += &record.to_json();
            lines.push('\n');
            records.push(record);
        };
        // What the ends of a tunnel log is for their operators, with the time of day before it.
        let quiet = tracing::subscriber::NoSubscriber::default();
        let ended = tracing::subscriber::with_default(quiet, || {
            bentpipe_sim::run(&self.plan(seed), base, &mut keep)
        });
        ended.map_err(|error| error.to_string())?;
        let kinds = match self {
            Self::Quic(file) => vec![vec![Figures::of(file, &records)]],
            Self::Tunnel(file) => file.kinds(&records.tunnel_flows),
        };
        Ok((lines, kinds))
    }

    /// Its lines in the table; `None` stands for a run that failed.
    pub fn summarise(&self, axes: &Axes, runs: &[Option<Vec<Kind>>]) -> Vec<Line> {
        let kinds: Vec<Option<&str>> = match self {
            Self::Quic(_) => vec![None],
            Self::Tunnel(file) => file.flow.iter().map(|flow| Some(&*flow.name)).collect(),
        };
        let lines = kinds.iter().enumerate().map(|(place, name)| {
            let mut axes = axes.clone();
            if let Some(name) = name {
                axes.insert("flow".to_owned(), (*name).to_owned());
            }
            let flows: Vec<_> = runs
                .iter()
                .flat_map(|run| match run {
                    Some(kinds) => kinds[place].iter().cloned().map(Some).collect(),
                    None => vec![None],
                })
                .collect();
            Line::of(&axes, &flows)
        });
        lines.collect()
    }
}

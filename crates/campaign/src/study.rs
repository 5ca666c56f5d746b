//! What a plan is about: QUIC connections alone, or terminals and a gateway.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::plan::PlanFile;
use crate::problem::Problem;
use crate::sweep::{Axes, Point};
use crate::table::{Figures, Line};
use crate::tunnel::TunnelFile;

/// One point of a plan.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Study {
    /// QUIC connections alone.
    Quic(Box<PlanFile>),
    /// Terminals and a gateway.
    Tunnel(Box<TunnelFile>),
}

/// The flows of one kind in one run.
pub type Kind = Vec<Figures>;

impl Study {
    /// Reads and checks `point` of the plan `text`, which lies in the directory `beside`.
    pub fn read(text: &str, point: &Point<'_>, beside: &Path) -> Result<Self, Problem> {
        if point.file.get_ref().contains_key("through") {
            let file = TunnelFile::read(text, point, beside)?;
            Ok(Self::Tunnel(Box::new(file)))
        } else {
            let file = PlanFile::read(text, point, beside)?;
            Ok(Self::Quic(Box::new(file)))
        }
    }

    /// How many runs it has, with the seeds 1, 2, ...
    pub fn seeds(&self) -> u64 {
        match self {
            Self::Quic(file) => file.seeds,
            Self::Tunnel(file) => file.seeds,
        }
    }

    /// One run: the lines of its records, and the figures of each kind of its flows.
    pub fn carry_out(&self, seed: u64, base: Instant) -> Result<(String, Vec<Kind>), String> {
        match self {
            Self::Quic(file) => {
                let records =
                    bentpipe_sim::run(&file.plan(seed), base).map_err(|error| error.to_string())?;
                Ok((records.lines(), vec![vec![Figures::of(file, &records)]]))
            }
            Self::Tunnel(file) => file.carry_out(seed),
        }
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

//! Plans with `through = "tunnel"`: terminals and a gateway in virtual time.

use std::num::NonZeroUsize;
use std::path::Path;

use bentpipe_link::Scenario;
use bentpipe_sim::tunnel::record::FlowRecord;
use bentpipe_sim::tunnel::{FlowPlan, Line, Plan, TerminalPlan, TunnelPlanError, Work, run};
use bentpipe_sim::{Change, LinkPlan, Move, PlanError, What};
use bentpipe_tunnel::transport::Transport;
use bentpipe_units::{Bytes, Span};
use serde::{Deserialize, Serialize};

use crate::plan::{ChangeFile, MoveFile, problem, resolve};
use crate::problem::Problem;
use crate::study::Kind;
use crate::sweep::Point;
use crate::table::Figures;

/// Terminals alike that share one link, and what their applications do.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelFile {
    /// The name it goes by.
    pub name: String,
    /// Where the study is from.
    #[serde(default)]
    pub source: String,
    through: Through,
    /// Runs per point, with seeds 1, 2, ...
    #[serde(default = "one")]
    pub seeds: u64,
    /// Each run ends here at the latest.
    pub until: Span,
    /// How often sessions are looked at.
    #[serde(default = "second")]
    pub sample_every: Span,
    /// QUIC's timers fire at multiples of this; exactly by default.
    #[serde(default)]
    pub granularity: Span,
    /// Datagrams that are handed to a socket at once at most.
    #[serde(default = "segments")]
    pub segments: NonZeroUsize,
    /// Terminals on the link.
    #[serde(default = "one")]
    pub terminals: u64,
    /// The link that they share, and the ground behind the gateway.
    pub link: Scenario,
    #[serde(default)]
    pub change: Vec<ChangeFile>,
    /// From a moment on, the terminals have another address and come over this link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#move: Option<MoveFile>,
    /// How both ends are set up.
    #[serde(default)]
    pub transport: Transport,
    /// What each terminal's applications do.
    pub flow: Vec<FlowFile>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Through {
    Tunnel,
}

/// Connections of one kind.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFile {
    /// What it is called in the summary.
    pub name: String,
    /// When the first one begins at the first terminal.
    pub start: Span,
    /// So much later at each further terminal.
    #[serde(default)]
    pub stagger: Span,
    /// So many at each terminal.
    #[serde(default = "one")]
    pub count: u64,
    /// One after the other with this between their beginnings.
    #[serde(default)]
    pub every: Span,
    /// Either what is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub download: Option<Bytes>,
    /// Or what is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<Bytes>,
}

fn one() -> u64 {
    1
}

fn second() -> Span {
    Span::from_millis(1000)
}

fn segments() -> NonZeroUsize {
    NonZeroUsize::new(10).expect("ten is not zero")
}

impl TunnelFile {
    /// Reads and checks `point` of the plan `text`, which lies in the directory `beside`.
    pub fn read(text: &str, point: &Point<'_>, beside: &Path) -> Result<Self, Problem> {
        let reader = toml::de::Deserializer::from(point.file.clone());
        let mut file = Self::deserialize(reader).map_err(|error| Problem::syntax(text, error))?;
        file.link = resolve(text, point, "link", &file.link, beside)?;
        if let Some(to) = &mut file.r#move {
            to.link = resolve(text, point, "move.link", &to.link, beside)?;
        }
        match file.check() {
            Ok(()) => Ok(file),
            Err((field, why)) => Err(problem(text, point, &field, why)),
        }
    }

    /// What cannot be seen in one field alone: the field, and what is wrong with it.
    fn check(&self) -> Result<(), (String, String)> {
        let wrong = |field: &str, why: String| Err((field.to_owned(), why));
        if !(1..=10_000).contains(&self.seeds) {
            return wrong("seeds", format!("{} runs: give 1 to 10000", self.seeds));
        }
        if !(1..=1_000).contains(&self.terminals) {
            let why = format!("{} terminals: give 1 to 1000", self.terminals);
            return wrong("terminals", why);
        }
        for (index, flow) in self.flow.iter().enumerate() {
            let field = |name: &str| format!("flow.{index}.{name}");
            if self.flow[..index]
                .iter()
                .any(|other| other.name == flow.name)
            {
                let why = format!(
                    "two flows are called {:?}; give each a name of its own",
                    flow.name
                );
                return wrong(&field("name"), why);
            }
            if flow.download.is_some() == flow.upload.is_some() {
                let why = "give either this or upload, like download = \"2 MB\"";
                return wrong(&field("download"), why.into());
            }
            if !(1..=10_000).contains(&flow.count) {
                let why = format!("{} flows: give 1 to 10000", flow.count);
                return wrong(&field("count"), why);
            }
        }
        self.plan(1)
            .check()
            .map_err(|error| (named(&error).to_owned(), error.to_string()))
    }

    /// The run with one seed.
    fn plan(&self, seed: u64) -> Plan {
        let mut link = LinkPlan::of(&self.link);
        for change in &self.change {
            let what = [
                change.forward_rate.map(What::ForwardRate),
                change.return_rate.map(What::ReturnRate),
                change.blackout.map(What::Blackout),
            ];
            let at = change.at;
            let what = what.into_iter().flatten();
            link.changes.extend(what.map(|what| Change { at, what }));
        }
        let mut links = vec![link];
        let mut moves = Vec::new();
        if let Some(to) = &self.r#move {
            links.push(LinkPlan::of(&to.link));
            moves.push(Move {
                at: to.at,
                path: vec![1],
            });
        }
        let terminals = (0..self.terminals)
            .map(|terminal| {
                let flows = self.flow.iter().flat_map(|flow| flow.plans(terminal));
                let mut plan = TerminalPlan::new(self.transport.clone(), flows.collect());
                plan.moves.clone_from(&moves);
                plan
            })
            .collect();
        Plan {
            seed,
            ground_rtt: self.link.ground_rtt(),
            gateway: self.transport.clone(),
            until: self.until,
            sample_every: self.sample_every,
            granularity: self.granularity,
            segments: self.segments,
            ..Plan::new(links, terminals)
        }
    }

    /// One run: the lines of its records, and the figures of each kind of flow.
    pub fn carry_out(&self, seed: u64) -> Result<(String, Vec<Kind>), String> {
        let mut text = String::new();
        let mut flows = Vec::new();
        let mut keep = |line: &Line| {
            text += &line.to_json();
            text.push('\n');
            if let Line::Flow(flow) = line {
                flows.push(flow.clone());
            }
        };
        // What the two ends log is for their operators, with the time of day before it.
        let quiet = tracing::subscriber::NoSubscriber::default();
        tracing::subscriber::with_default(quiet, || run(&self.plan(seed), &mut keep))
            .map_err(|error| error.to_string())?;
        Ok((text, self.kinds(&flows)))
    }

    /// The flows of each kind; each terminal numbers its own in the order of the kinds.
    fn kinds(&self, flows: &[FlowRecord]) -> Vec<Kind> {
        let all: u64 = flows.iter().map(|flow| flow.arrived).sum();
        let mut first = 0;
        let kinds = self.flow.iter().map(|kind| {
            let mine = first..first + usize::try_from(kind.count).unwrap_or(usize::MAX);
            first = mine.end;
            let flows = flows.iter().filter(|flow| mine.contains(&flow.flow));
            flows
                .map(|flow| Figures::of_flow(flow, flow.arrived as f64 / all.max(1) as f64))
                .collect()
        });
        kinds.collect()
    }
}

impl FlowFile {
    /// The flows of one terminal; `check` has seen that there is either.
    fn plans(&self, terminal: u64) -> impl Iterator<Item = FlowPlan> {
        let work = match (self.download, self.upload) {
            (_, Some(bytes)) => Work::Upload(bytes),
            (bytes, None) => Work::Download(bytes.unwrap_or_default()),
        };
        let (start, later, every) = (self.start, self.stagger, self.every);
        (0..self.count).map(move |number| FlowPlan {
            start: start + times(later, terminal) + times(every, number),
            work,
        })
    }
}

fn times(span: Span, count: u64) -> Span {
    Span::from_nanos(span.as_nanos().saturating_mul(count))
}

/// The plan's field that an error of the simulator is about.
fn named(error: &TunnelPlanError) -> &'static str {
    match error {
        TunnelPlanError::Plan(PlanError::NoRate(_)) => "change",
        TunnelPlanError::Plan(PlanError::Endless(_)) => "until",
        TunnelPlanError::Plan(_) => "link",
        TunnelPlanError::Gateway(_) | TunnelPlanError::Terminal(..) => "transport",
        TunnelPlanError::Memory { .. } => "terminals",
        TunnelPlanError::Granularity(_) => "granularity",
        TunnelPlanError::Segments(_) => "segments",
        TunnelPlanError::Samples(_) => "sample_every",
        TunnelPlanError::NoFlow | TunnelPlanError::Flows(_) => "flow",
    }
}

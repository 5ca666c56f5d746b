//! Plans with `through = "tunnel"`: terminals and a gateway in virtual time.

use std::num::NonZeroUsize;
use std::path::Path;

use bentpipe_link::Scenario;
use bentpipe_sim::record::TunnelFlow;
use bentpipe_sim::tunnel::{Call, FlowPlan, TerminalPlan, TunnelPlan, Work};
use bentpipe_sim::{LinkPlan, Nodes, Plan, PlanError};
use bentpipe_tunnel::transport::Transport;
use bentpipe_units::{Bytes, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::{ChangeFile, moves};
use crate::host::{HostFile, HostSpec};
use crate::plan::{MOST_FIRST_SEED, problem, resolve};
use crate::problem::Problem;
use crate::sweep::Point;
use crate::table::{Figures, Kind};

/// Terminals alike that share one link, and what their applications do.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelFile {
    /// The name it goes by.
    pub name: String,
    /// Where the study is from.
    #[serde(default)]
    pub source: String,
    /// What makes it such a plan.
    through: Through,
    /// Runs per point, each with a seed of its own.
    #[serde(default = "one")]
    pub seeds: u64,
    /// The seed of the first; those of the others follow it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub first_seed: u64,
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
    /// The link that they share, and the ground behind the gateway. Where it switches with a new
    /// address, the terminals have another address from then on.
    pub link: Scenario,
    /// What changes on it.
    #[serde(default)]
    pub change: Vec<ChangeFile>,
    /// How both ends are set up.
    #[serde(default)]
    pub transport: Transport,
    /// The machines that they run on; ideal ones by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostFile>,
    /// The gateway's, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_host: Option<HostFile>,
    /// What each terminal's applications do.
    pub flow: Vec<FlowFile>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Through {
    /// A terminal and a gateway.
    Tunnel,
}

/// Connections of one kind.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
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
    /// Or datagrams that the server sends back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallFile>,
}

/// Datagrams at a steady rate, of a host of their own.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallFile {
    /// Of their payloads, each way.
    pub rate: Rate,
    /// Payload of each.
    pub size: Bytes,
    /// How long.
    pub r#for: Span,
}

impl CallFile {
    fn call(&self) -> Option<Call> {
        let every = self
            .rate
            .time_for(self.size)
            .filter(|every| *every > Span::ZERO)?;
        Some(Call {
            every,
            size: usize::try_from(self.size.as_u64()).ok()?,
            count: (self.r#for.as_nanos() / every.as_nanos()).max(1),
        })
    }

    /// What is wrong with it, and in which field.
    fn check(&self) -> Result<(), (&'static str, String)> {
        let (shortest, longest) = (Call::SHORTEST as u64, Call::LONGEST as u64);
        if !(shortest..=longest).contains(&self.size.as_u64()) {
            let why = format!("{}: give {shortest} B to {longest} B", self.size);
            return Err(("call.size", why));
        }
        match self.call() {
            None => Err((
                "call.rate",
                "no datagrams at this rate: give more, like \"100 kbit/s\"".into(),
            )),
            Some(call) if call.count > Call::MOST => {
                let why = format!("{} datagrams: give at most {}", call.count, Call::MOST);
                Err(("call.for", why))
            }
            Some(_) => Ok(()),
        }
    }
}

fn one() -> u64 {
    1
}

fn is_one(number: &u64) -> bool {
    *number == 1
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
        if !(1..=MOST_FIRST_SEED).contains(&self.first_seed) {
            let why = format!("{}: give 1 to {MOST_FIRST_SEED}", self.first_seed);
            return wrong("first_seed", why);
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
            let given = [
                flow.download.is_some(),
                flow.upload.is_some(),
                flow.call.is_some(),
            ];
            if given.into_iter().filter(|given| *given).count() != 1 {
                let why = "give one of this, upload and call, like download = \"2 MB\"";
                return wrong(&field("download"), why.into());
            }
            if let Some(call) = &flow.call
                && let Err((name, why)) = call.check()
            {
                return wrong(&field(name), why);
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
    pub fn plan(&self, seed: u64) -> Plan {
        let link = LinkPlan::of(&self.link);
        let link = self
            .change
            .iter()
            .fold(link, |link, change| change.of(link));
        let host = (self.host.as_ref()).map_or(HostSpec::IDEAL, HostFile::spec);
        let terminals = (0..self.terminals)
            .map(|terminal| {
                let flows = self.flow.iter().flat_map(|flow| flow.plans(terminal));
                let mut plan = TerminalPlan::new(self.transport.clone(), flows.collect());
                plan.moves = moves(&self.link);
                plan.host = host;
                plan
            })
            .collect();
        Plan {
            seed,
            links: vec![link],
            nodes: Nodes::Tunnel(TunnelPlan {
                ground_rtt: self.link.ground_rtt(),
                gateway: self.transport.clone(),
                gateway_host: (self.gateway_host.as_ref()).map_or(host, HostFile::spec),
                terminals,
                granularity: self.granularity,
                segments: self.segments,
            }),
            until: self.until,
            sample_every: self.sample_every,
        }
    }

    /// The flows of each kind; each terminal numbers its own in the order of the kinds.
    pub fn kinds(&self, flows: &[TunnelFlow]) -> Vec<Kind> {
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
    /// The flows of one terminal; `check` has seen that there is one kind.
    fn plans(&self, terminal: u64) -> impl Iterator<Item = FlowPlan> {
        let call = self.call.as_ref().and_then(CallFile::call);
        let work = match (self.download, self.upload, call) {
            (_, _, Some(call)) => Work::Call(call),
            (_, Some(bytes), None) => Work::Upload(bytes),
            (bytes, None, None) => Work::Download(bytes.unwrap_or_default()),
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
fn named(error: &PlanError) -> &'static str {
    match error {
        PlanError::NoRate(_) => "change",
        PlanError::Endless(_) => "until",
        PlanError::Gateway(_) | PlanError::Terminal(..) => "transport",
        PlanError::Host { of, .. } if of.starts_with("gateway") => "gateway_host",
        PlanError::Host { .. } => "host",
        PlanError::Memory { .. } => "terminals",
        PlanError::Granularity { .. } => "granularity",
        PlanError::Segments(_) => "segments",
        PlanError::Samples(_) => "sample_every",
        PlanError::NoFlow | PlanError::Flows(_) => "flow",
        _ => "link",
    }
}

//! The plan of a run: links, nodes, times.

use bentpipe_cc::ChoiceError;
use bentpipe_tunnel::transport::TransportError;
use bentpipe_units::{Rate, Span};
use bentpipe_vnet::host::HostError;
pub use bentpipe_vnet::plan::{LinkPlan, Towards};

use crate::quic::FlowPlan;
use crate::tunnel::TunnelPlan;

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seeds everything that is drawn.
    pub seed: u64,
    /// The links, to be named by their place.
    pub links: Vec<LinkPlan>,
    /// Who communicates over them.
    pub nodes: Nodes,
    /// The run ends here at the latest.
    pub until: Span,
    /// How often a sample is recorded of each flow or session.
    pub sample_every: Span,
}

/// The nodes of a run.
#[derive(Debug, Clone)]
pub enum Nodes {
    /// QUIC connections, each between a terminal and a gateway of its own, without an async
    /// runtime.
    Quic(Vec<FlowPlan>),
    /// The same on the async runtime.
    QuicOnRuntime(Vec<FlowPlan>),
    /// Terminals and a gateway as the daemons have them.
    Tunnel(TunnelPlan),
}

/// The terminal gets another address and another path.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// When, since the run began.
    pub at: Span,
    /// The links from then on, gateway to terminal.
    pub path: Vec<usize>,
}

/// Why a plan cannot be run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A flow goes over a link that is not there.
    #[error("flows[{flow}].path names link {link}, but there are {links}")]
    NoSuchLink {
        /// Which flow or terminal.
        flow: usize,
        /// Which link.
        link: usize,
        /// How many there are.
        links: usize,
    },
    /// A flow has no path at all.
    #[error("flows[{0}].path is empty; a flow crosses at least one link")]
    NoPath(usize),
    /// The run would never end.
    #[error("until = {0}: a run ends after at least 1 ms and at most 30 days")]
    Endless(Span),
    /// The records would be more than anybody can hold.
    #[error(
        "sample_every = {every}: {samples:.0} samples of the flows until {until}; give at least {least}"
    )]
    TooManySamples {
        /// How often.
        every: Span,
        /// How long.
        until: Span,
        /// Of all flows together.
        samples: f64,
        /// What would be right.
        least: Span,
    },
    /// A change to a rate at which nothing ever leaves.
    #[error(
        "links[{0}]: a change to a rate of zero would hold its packets for ever; use a blackout"
    )]
    NoRate(usize),
    /// Timers too coarse; of a flow, where each has its own.
    #[error("{of}granularity = {value}: give at most {COARSEST}, like \"1 ms\"")]
    Granularity {
        /// Whose: empty, or like `flows[0].`.
        of: String,
        /// How coarse.
        value: Span,
    },
    /// A host's field.
    #[error("flows[{flow}].{error}")]
    Host {
        /// Which flow.
        flow: usize,
        /// What is wrong.
        error: HostError,
    },
    /// What the async runtime has once for all flows, or not at all.
    #[error(
        "flows[{flow}].{what}: on the async runtime all flows have the same granularity and ideal hosts"
    )]
    OnRuntime {
        /// Which flow.
        flow: usize,
        /// Which field.
        what: &'static str,
    },
    /// A controller's parameter.
    #[error("flows[{flow}]: {error}")]
    Controller {
        /// Which flow.
        flow: usize,
        /// What is wrong.
        error: ChoiceError,
    },
    /// The gateway's transport.
    #[error("gateway: {0}")]
    Gateway(TransportError),
    /// A terminal's transport.
    #[error("terminals[{0}]: {1}")]
    Terminal(usize, TransportError),
    /// More terminals than the gateway's memory holds sessions.
    #[error(
        "{terminals} terminals, but the gateway's memory is for {sessions} sessions; raise its memory, or lower its expected_rate"
    )]
    Memory {
        /// How many terminals there are.
        terminals: usize,
        /// How many sessions the gateway takes.
        sessions: u64,
    },
    /// Too many datagrams at once.
    #[error("segments = {0}: give 1 to {most}", most = crate::tunnel::plan::MOST_SEGMENTS)]
    Segments(usize),
    /// A flow that the run does not live to see.
    #[error("flows[{flow}] would start at {start}, but the run ends at {until}")]
    NeverStarts {
        /// Which.
        flow: usize,
        /// When it would start.
        start: Span,
        /// When the run ends.
        until: Span,
    },
    /// Nothing to run.
    #[error("there is no flow; give at least one")]
    NoFlow,
    /// Too many flows to hold.
    #[error("{0} flows; give at most {most}", most = crate::tunnel::plan::MOST_FLOWS)]
    Flows(usize),
    /// Samples without end.
    #[error("sample_every = {0}: give at least 1 ms")]
    Samples(Span),
}

/// A coarser timer than this is a mistake.
pub(crate) const COARSEST: Span = Span::from_millis(100);
/// The longest run.
const LONGEST: Span = Span::from_millis(30 * 24 * 3600 * 1000);
/// Samples that a run may record: some GB.
const MOST_SAMPLES: u64 = 10_000_000;

impl Plan {
    /// Checks that the plan can be run and ends.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.until < Span::from_millis(1) || self.until > LONGEST {
            return Err(PlanError::Endless(self.until));
        }
        match &self.nodes {
            Nodes::Quic(flows) | Nodes::QuicOnRuntime(flows) => {
                if let Nodes::QuicOnRuntime(_) = self.nodes {
                    crate::quic::plan::check_on_runtime(flows)?;
                }
                self.check_samples(flows.len())?;
                self.check_links(flows.iter().map(|flow| (&flow.path, &flow.moves)))?;
                crate::quic::plan::check(flows, self.until)
            }
            Nodes::Tunnel(tunnel) => {
                if self.sample_every < Span::from_millis(1) {
                    return Err(PlanError::Samples(self.sample_every));
                }
                let terminals = tunnel.terminals.iter();
                self.check_links(terminals.map(|terminal| (&terminal.path, &terminal.moves)))?;
                tunnel.check()
            }
        }
    }

    fn check_samples(&self, flows: usize) -> Result<(), PlanError> {
        let flows = flows.max(1) as u64;
        let least = Span::from_nanos((self.until.as_nanos() / MOST_SAMPLES * flows).max(1));
        if self.sample_every >= least {
            return Ok(());
        }
        let every = self.sample_every.as_nanos().max(1);
        Err(PlanError::TooManySamples {
            every: self.sample_every,
            until: self.until,
            samples: self.until.as_nanos() as f64 / every as f64 * flows as f64,
            least,
        })
    }

    /// Checks that no link stops for ever and that every path leads over links that are there.
    fn check_links<'a>(
        &self,
        paths: impl Iterator<Item = (&'a Vec<usize>, &'a Vec<Move>)>,
    ) -> Result<(), PlanError> {
        let zero = Some(Rate::from_bits_per_second(0));
        for (index, link) in self.links.iter().enumerate() {
            let mut changes = link.forward.change.iter().chain(&link.r#return.change);
            if changes.any(|change| change.change.rate == zero) {
                return Err(PlanError::NoRate(index));
            }
        }
        let links = self.links.len();
        for (flow, (path, moves)) in paths.enumerate() {
            if path.is_empty() || moves.iter().any(|to| to.path.is_empty()) {
                return Err(PlanError::NoPath(flow));
            }
            let mut all = path.iter().chain(moves.iter().flat_map(|to| &to.path));
            if let Some(&link) = all.find(|&&link| link >= links) {
                return Err(PlanError::NoSuchLink { flow, link, links });
            }
        }
        Ok(())
    }
}

//! What a run does.

use bentpipe_cc::ChoiceError;
use bentpipe_quic::ConnectionParameters;
use bentpipe_units::{Bytes, Rate, Span};
use bentpipe_vnet::host::{HostError, HostSpec};
pub use bentpipe_vnet::plan::{Change, LinkPlan, What};

/// One run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seeds everything that is drawn.
    pub seed: u64,
    /// The links, to be named by their place.
    pub links: Vec<LinkPlan>,
    /// The flows.
    pub flows: Vec<FlowPlan>,
    /// The run ends here at the latest.
    pub until: Span,
    /// How often each flow is looked at for [`crate::record::FlowSample`]s.
    pub sample_every: Span,
}

/// One connection from a terminal to its gateway, and what is fetched over it.
#[derive(Debug, Clone)]
pub struct FlowPlan {
    /// Links on the way from gateway to terminal.
    pub path: Vec<usize>,
    /// When the terminal connects.
    pub start: Span,
    /// How both ends are set up.
    pub transport: ConnectionParameters,
    /// One after the other over the same connection.
    pub transfers: Vec<Transfer>,
    /// Changes of the terminal's address and way.
    pub moves: Vec<Move>,
    /// Flows with the same number share what they learn of the path (RFC 9959).
    pub memory: Option<usize>,
    /// Timers at both ends fire at multiples of this, as those of a real runtime do; zero
    /// for exact ones.
    pub granularity: Span,
    /// The machines at both ends.
    pub host: HostSpec,
}

impl FlowPlan {
    /// A flow over link 0 that connects at once.
    pub fn new(transport: ConnectionParameters, transfers: Vec<Transfer>) -> Self {
        Self {
            path: vec![0],
            start: Span::ZERO,
            transport,
            transfers,
            moves: Vec::new(),
            memory: None,
            granularity: Span::ZERO,
            host: HostSpec::IDEAL,
        }
    }
}

/// The terminal gets another address and another way.
#[derive(Debug, Clone, PartialEq)]
pub struct Move {
    /// When, since the run began.
    pub at: Span,
    /// The links from then on, gateway to terminal.
    pub path: Vec<usize>,
}

/// Something to fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Idle time before it, after the connection stands or the transfer before it is complete.
    pub pause: Span,
    /// And not before this moment of the run.
    pub not_before: Span,
    /// How much.
    pub bytes: Bytes,
}

impl Transfer {
    /// `bytes` right away.
    pub fn now(bytes: Bytes) -> Self {
        Self {
            pause: Span::ZERO,
            not_before: Span::ZERO,
            bytes,
        }
    }

    /// `bytes` after `pause`.
    pub fn after(pause: Span, bytes: Bytes) -> Self {
        Self {
            pause,
            ..Self::now(bytes)
        }
    }

    /// `bytes` at a moment of the run, if what comes before is through by then.
    pub fn at(not_before: Span, bytes: Bytes) -> Self {
        Self {
            not_before,
            ..Self::now(bytes)
        }
    }
}

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A flow goes over a link that is not there.
    #[error("flows[{flow}].path names link {link}, but there are {links}")]
    NoSuchLink {
        /// Which flow.
        flow: usize,
        /// Which link.
        link: usize,
        /// How many there are.
        links: usize,
    },
    /// A flow has no way at all.
    #[error("flows[{0}].path is empty; a flow crosses at least one link")]
    NoPath(usize),
    /// The run would never end.
    #[error("until = {0}: a run ends after at least 1 ms and at most 30 days")]
    Endless(Span),
    /// The records would be more than anybody can hold.
    #[error(
        "sample_every = {every}: {looks:.0} looks at the flows until {until}; give at least {least}"
    )]
    TooManyLooks {
        /// How often.
        every: Span,
        /// How long.
        until: Span,
        /// At all flows together.
        looks: f64,
        /// What would be right.
        least: Span,
    },
    /// A change to a rate at which nothing ever leaves.
    #[error(
        "links[{0}]: a change to a rate of zero would hold its packets for ever; use a blackout"
    )]
    NoRate(usize),
    /// Timers too coarse.
    #[error("flows[{0}].granularity = {1}: give at most {COARSEST}, like \"1 ms\"")]
    Granularity(usize, Span),
    /// A host's field.
    #[error("flows[{flow}].{error}")]
    Host {
        /// Which flow.
        flow: usize,
        /// What is wrong.
        error: HostError,
    },
    /// A controller's parameter.
    #[error("flows[{flow}]: {error}")]
    Controller {
        /// Which flow.
        flow: usize,
        /// What is wrong.
        error: ChoiceError,
    },
}

/// A coarser timer than this is a mistake.
pub(crate) const COARSEST: Span = Span::from_millis(100);
/// The longest run.
pub(crate) const LONGEST: Span = Span::from_millis(30 * 24 * 3600 * 1000);
/// Looks at flows that a run may take: some GB of records.
const MOST_LOOKS: u64 = 10_000_000;

impl Plan {
    /// Checks that the plan can be carried out and ends.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.until < Span::from_millis(1) || self.until > LONGEST {
            return Err(PlanError::Endless(self.until));
        }
        let flows = self.flows.len().max(1) as u64;
        let least = Span::from_nanos((self.until.as_nanos() / MOST_LOOKS * flows).max(1));
        if self.sample_every < least {
            let every = self.sample_every.as_nanos().max(1);
            return Err(PlanError::TooManyLooks {
                every: self.sample_every,
                until: self.until,
                looks: self.until.as_nanos() as f64 / every as f64 * flows as f64,
                least,
            });
        }
        let ways = self.flows.iter().map(|flow| (&flow.path, &flow.moves));
        check_links(&self.links, ways)?;
        for (flow, plan) in self.flows.iter().enumerate() {
            if plan.granularity > COARSEST {
                return Err(PlanError::Granularity(flow, plan.granularity));
            }
            plan.host
                .check()
                .map_err(|error| PlanError::Host { flow, error })?;
            plan.transport
                .settings
                .check()
                .map_err(|error| PlanError::Controller { flow, error })?;
        }
        Ok(())
    }
}

/// Checks that no link stops for ever and that every way leads over links that are there.
pub(crate) fn check_links<'a>(
    links: &[LinkPlan],
    ways: impl Iterator<Item = (&'a Vec<usize>, &'a Vec<Move>)>,
) -> Result<(), PlanError> {
    let zero = Rate::from_bits_per_second(0);
    for (index, link) in links.iter().enumerate() {
        let stops = |change: &Change| matches!(change.what, What::ForwardRate(rate) | What::ReturnRate(rate) if rate == zero);
        if link.changes.iter().any(stops) {
            return Err(PlanError::NoRate(index));
        }
    }
    for (flow, (path, moves)) in ways.enumerate() {
        if path.is_empty() || moves.iter().any(|to| to.path.is_empty()) {
            return Err(PlanError::NoPath(flow));
        }
        let mut all = path.iter().chain(moves.iter().flat_map(|to| &to.path));
        if let Some(&link) = all.find(|&&link| link >= links.len()) {
            let links = links.len();
            return Err(PlanError::NoSuchLink { flow, link, links });
        }
    }
    Ok(())
}

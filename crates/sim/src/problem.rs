//! What is wrong with a plan, and what all kinds of nodes have in common.

use bentpipe_cc::ChoiceError;
use bentpipe_quicpep::transport::SideError;
use bentpipe_tunnel::transport::TransportError;
use bentpipe_units::Span;
use bentpipe_vnet::host::HostError;

/// A coarser timer than this is a mistake.
pub(crate) const COARSEST: Span = Span::from_millis(100);
/// Datagrams that Linux takes at once at most (UDP_MAX_SEGMENTS).
pub(crate) const MOST_SEGMENTS: usize = 64;
/// Flows of one run; each holds some memory.
pub(crate) const MOST_FLOWS: usize = 100_000;

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
    #[error("{of}{error}")]
    Host {
        /// Whose: like `flows[0].`, `terminals[0].` or `gateway_`.
        of: String,
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
    /// Nothing splits what is to be split.
    #[error("proxies: there is none; give at least one")]
    NoProxy,
    /// A proxy goes over no link, or over one that is not there.
    #[error("proxies[{0}].path: give the links on the way to it from its next hop")]
    ProxyPath(usize),
    /// One side of a proxy.
    #[error("proxies[{0}]: {1}")]
    Proxy(usize, SideError),
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
    #[error("segments = {0}: give 1 to {most}", most = MOST_SEGMENTS)]
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
    #[error("{0} flows; give at most {most}", most = MOST_FLOWS)]
    Flows(usize),
    /// Samples without end.
    #[error("sample_every = {0}: give at least 1 ms")]
    Samples(Span),
}

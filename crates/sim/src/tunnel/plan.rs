//! What a run through the tunnel does.

use std::num::NonZeroUsize;

use bentpipe_tunnel::transport::{Transport, TransportError};
use bentpipe_units::{Bytes, Span};

use crate::plan::{COARSEST, LONGEST, LinkPlan, Move, PlanError, check_links};

/// One run: a gateway, terminals behind links, and the flows of their applications.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seeds everything that is drawn.
    pub seed: u64,
    /// The links, to be named by their place.
    pub links: Vec<LinkPlan>,
    /// From the gateway to the servers and back.
    pub ground_rtt: Span,
    /// How the gateway is set up.
    pub gateway: Transport,
    /// The terminals.
    pub terminals: Vec<TerminalPlan>,
    /// The run ends here at the latest.
    pub until: Span,
    /// How often the sessions are looked at.
    pub sample_every: Span,
    /// QUIC's timers fire at multiples of this; zero for exact ones.
    pub granularity: Span,
    /// Datagrams that are handed to a socket at once at most.
    pub segments: NonZeroUsize,
}

/// One terminal.
#[derive(Debug, Clone)]
pub struct TerminalPlan {
    /// Links on the way from the gateway to it.
    pub path: Vec<usize>,
    /// When it is switched on.
    pub start: Span,
    /// How it is set up.
    pub transport: Transport,
    /// Changes of its address and way.
    pub moves: Vec<Move>,
    /// What its applications do.
    pub flows: Vec<FlowPlan>,
}

/// One connection of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowPlan {
    /// When the application connects, since the run began.
    pub start: Span,
    /// What it wants.
    pub work: Work,
}

/// What an application wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// To fetch so much.
    Download(Bytes),
    /// To send so much, and to hear that it has arrived.
    Upload(Bytes),
}

/// Datagrams that Linux takes at once at most (UDP_MAX_SEGMENTS).
const MOST_SEGMENTS: usize = 64;
/// Of one run; each holds some memory.
const MOST_FLOWS: usize = 100_000;

/// Why a plan through the tunnel cannot be carried out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TunnelPlanError {
    /// Links, ways and times.
    #[error(transparent)]
    Plan(#[from] PlanError),
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
    /// Timers too coarse.
    #[error("granularity = {0}: give at most {COARSEST}, like \"1 ms\"")]
    Granularity(Span),
    /// Too many datagrams at once.
    #[error("segments = {0}: give 1 to {MOST_SEGMENTS}")]
    Segments(usize),
    /// Nobody to look at.
    #[error("there is no flow; give at least one")]
    NoFlow,
    /// Too many to hold.
    #[error("{0} flows; give at most {MOST_FLOWS}")]
    Flows(usize),
    /// Samples without end.
    #[error("sample_every = {0}: give at least 1 ms")]
    Samples(Span),
}

impl Plan {
    /// A run with `terminals` over `links`, with what the daemons have by default.
    pub fn new(links: Vec<LinkPlan>, terminals: Vec<TerminalPlan>) -> Self {
        Self {
            seed: 1,
            links,
            ground_rtt: Span::ZERO,
            gateway: Transport::default(),
            terminals,
            until: Span::from_millis(600_000),
            sample_every: Span::from_millis(1000),
            granularity: Span::ZERO,
            segments: NonZeroUsize::new(10).expect("ten is not zero"),
        }
    }

    /// Checks that the plan can be carried out and ends.
    pub fn check(&self) -> Result<(), TunnelPlanError> {
        if self.until < Span::from_millis(1) || self.until > LONGEST {
            return Err(PlanError::Endless(self.until).into());
        }
        if self.sample_every < Span::from_millis(1) {
            return Err(TunnelPlanError::Samples(self.sample_every));
        }
        if self.granularity > COARSEST {
            return Err(TunnelPlanError::Granularity(self.granularity));
        }
        if self.segments.get() > MOST_SEGMENTS {
            return Err(TunnelPlanError::Segments(self.segments.get()));
        }
        let ways = self
            .terminals
            .iter()
            .map(|terminal| (&terminal.path, &terminal.moves));
        check_links(&self.links, ways)?;
        self.gateway.check().map_err(TunnelPlanError::Gateway)?;
        for (index, terminal) in self.terminals.iter().enumerate() {
            let wrong = |error| TunnelPlanError::Terminal(index, error);
            terminal.transport.check().map_err(wrong)?;
        }
        let (terminals, sessions) = (self.terminals.len(), self.gateway.max_sessions());
        if terminals as u64 > sessions {
            return Err(TunnelPlanError::Memory {
                terminals,
                sessions,
            });
        }
        match self.terminals.iter().map(|t| t.flows.len()).sum() {
            0 => Err(TunnelPlanError::NoFlow),
            flows if flows > MOST_FLOWS => Err(TunnelPlanError::Flows(flows)),
            _ => Ok(()),
        }
    }
}

impl TerminalPlan {
    /// A terminal behind link 0 from the beginning.
    pub fn new(transport: Transport, flows: Vec<FlowPlan>) -> Self {
        Self {
            path: vec![0],
            start: Span::ZERO,
            transport,
            moves: Vec::new(),
            flows,
        }
    }
}

impl Work {
    /// Bytes up and down, behind the request.
    pub(crate) fn bytes(self) -> (u64, u64) {
        match self {
            Self::Download(bytes) => (0, bytes.as_u64()),
            Self::Upload(bytes) => (bytes.as_u64(), super::exchange::RECEIPT),
        }
    }
}

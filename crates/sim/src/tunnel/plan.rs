//! Terminals, their gateway, and the connections of their applications.

use std::num::NonZeroUsize;

use bentpipe_tunnel::transport::Transport;
use bentpipe_units::{Bytes, Span};
use bentpipe_vnet::host::HostSpec;

use crate::problem::{COARSEST, MOST_FLOWS, MOST_SEGMENTS, Move, PlanError};

/// The answer to an upload, bytes: as long as a small HTTP one.
const RECEIPT: u64 = 100;

/// A gateway, and terminals behind links.
#[derive(Debug, Clone)]
pub struct TunnelPlan {
    /// From the gateway to the servers and back.
    pub ground_rtt: Span,
    /// How the gateway is set up.
    pub gateway: Transport,
    /// The machine that it runs on.
    pub gateway_host: HostSpec,
    /// The terminals.
    pub terminals: Vec<TerminalPlan>,
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
    /// The machine that it runs on.
    pub host: HostSpec,
    /// Changes of its address and path.
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
    /// To send datagrams, and to hear the echo of each.
    Call(Call),
}

/// Datagrams at a steady rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Time between two of them.
    pub every: Span,
    /// Payload of each, bytes: eight at least, for its number.
    pub size: usize,
    /// How many.
    pub count: u64,
}

impl Call {
    /// Its longest datagrams: what UDP carries over IPv4, bytes.
    pub const LONGEST: usize = 65_507;
    /// Its shortest, bytes.
    pub const SHORTEST: usize = size_of::<u64>();
    /// The most datagrams of one: the times of all are kept until the run ends.
    pub const MOST: u64 = 1_000_000;

    /// From its beginning to its last datagram.
    pub(crate) fn time(self) -> Span {
        let gaps = self.count.saturating_sub(1);
        Span::from_nanos(self.every.as_nanos().saturating_mul(gaps))
    }
}

impl TunnelPlan {
    /// `terminals`, with what the daemons have by default.
    pub fn new(terminals: Vec<TerminalPlan>) -> Self {
        Self {
            ground_rtt: Span::ZERO,
            gateway: Transport::default(),
            gateway_host: HostSpec::IDEAL,
            terminals,
            granularity: Span::ZERO,
            segments: NonZeroUsize::new(10).expect("ten is not zero"),
        }
    }

    /// Checks what cannot be seen in one field alone.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        if self.granularity > COARSEST {
            return Err(PlanError::Granularity {
                of: String::new(),
                value: self.granularity,
            });
        }
        if self.segments.get() > MOST_SEGMENTS {
            return Err(PlanError::Segments(self.segments.get()));
        }
        self.gateway.check().map_err(PlanError::Gateway)?;
        let machine = |of: String| move |error| PlanError::Host { of, error };
        for (index, terminal) in self.terminals.iter().enumerate() {
            let wrong = |error| PlanError::Terminal(index, error);
            terminal.transport.check().map_err(wrong)?;
            let of_terminal = machine(format!("terminals[{index}]."));
            terminal.host.check().map_err(of_terminal)?;
        }
        let of_gateway = machine("gateway_".into());
        self.gateway_host.check().map_err(of_gateway)?;
        let (terminals, sessions) = (self.terminals.len(), self.gateway.max_sessions());
        if terminals as u64 > sessions {
            return Err(PlanError::Memory {
                terminals,
                sessions,
            });
        }
        match self.terminals.iter().map(|t| t.flows.len()).sum() {
            0 => Err(PlanError::NoFlow),
            flows if flows > MOST_FLOWS => Err(PlanError::Flows(flows)),
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
            host: HostSpec::IDEAL,
            moves: Vec::new(),
            flows,
        }
    }
}

impl Work {
    /// Bytes up and down, behind the request of a connection.
    pub(crate) fn bytes(self) -> (u64, u64) {
        match self {
            Self::Download(bytes) => (0, bytes.as_u64()),
            Self::Upload(bytes) => (bytes.as_u64(), RECEIPT),
            Self::Call(call) => (0, call.size as u64 * call.count),
        }
    }
}

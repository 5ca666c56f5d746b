//! Flows of a run with QUIC connections alone.

use bentpipe_quic::ConnectionParameters;
use bentpipe_units::{Bytes, Span};
use bentpipe_vnet::host::HostSpec;

use crate::problem::{COARSEST, Move, PlanError};

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
    /// Changes of the terminal's address and path.
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

/// Checks what the async runtime cannot do: machines of their own, and timers of different ticks.
pub(crate) fn check_on_runtime(flows: &[FlowPlan]) -> Result<(), PlanError> {
    let granularity = flows.first().map(|flow| flow.granularity);
    for (flow, plan) in flows.iter().enumerate() {
        if plan.host != HostSpec::IDEAL {
            return Err(PlanError::OnRuntime { flow, what: "host" });
        }
        if Some(plan.granularity) != granularity {
            return Err(PlanError::OnRuntime {
                flow,
                what: "granularity",
            });
        }
    }
    Ok(())
}

/// Checks what cannot be seen in one field alone.
pub(crate) fn check(flows: &[FlowPlan], until: Span) -> Result<(), PlanError> {
    for (flow, plan) in flows.iter().enumerate() {
        if plan.start >= until {
            return Err(PlanError::NeverStarts {
                flow,
                start: plan.start,
                until,
            });
        }
        if plan.granularity > COARSEST {
            return Err(PlanError::Granularity {
                of: format!("flows[{flow}]."),
                value: plan.granularity,
            });
        }
        plan.host.check().map_err(|error| PlanError::Host {
            of: format!("flows[{flow}]."),
            error,
        })?;
        plan.transport
            .settings
            .check()
            .map_err(|error| PlanError::Controller { flow, error })?;
    }
    Ok(())
}

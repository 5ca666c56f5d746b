//! The machines of a plan: one of those that the simulator knows, and what is different on it.

use bentpipe_units::Span;
pub use bentpipe_vnet::host::{HostSpec, WakeUp, fit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A machine that the simulator knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Machine {
    /// Exact timers and free processors.
    #[default]
    Ideal,
    /// A small virtual machine with nothing else to do.
    Quiet,
    /// Two processors at load 5 to 13.
    Busy,
    /// Two processors with several compilers at work (load 17), as recorded.
    Loaded,
    /// A router with a clock of 250 Hz, a slow processor and no segmentation offload.
    Slow,
}

/// The machine at either end of a flow.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// The machine that it is but for the fields below.
    #[serde(default)]
    pub like: Machine,
    /// Timers fire at multiples of this, at most 100 ms; 0 s for exact ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Span>,
    /// Mean of the exponential time from wake-up to running, at most 1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lateness: Option<Span>,
    /// Mean time between two stalls, exponential; 0 s for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_every: Option<Span>,
    /// The shortest and the longest stall, log-uniform between them, at most 1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shortest_stall: Option<Span>,
    /// See `shortest_stall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_stall: Option<Span>,
    /// Processor time for each packet, at most 10 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_packet: Option<Span>,
    /// Whether up to ten packets leave by one system call (GSO).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<bool>,
}

impl HostFile {
    /// The machine with all its fields; not checked yet.
    pub fn spec(&self) -> HostSpec {
        let like = match self.like {
            Machine::Ideal => HostSpec::IDEAL,
            Machine::Quiet => HostSpec::QUIET,
            Machine::Busy => HostSpec::BUSY,
            Machine::Loaded => HostSpec::LOADED,
            Machine::Slow => HostSpec::SLOW,
        };
        HostSpec {
            tick: self.tick.unwrap_or(like.tick),
            lateness: self.lateness.unwrap_or(like.lateness),
            stall_every: self.stall_every.unwrap_or(like.stall_every),
            stall: (
                self.shortest_stall.unwrap_or(like.stall.0),
                self.longest_stall.unwrap_or(like.stall.1),
            ),
            per_packet: self.per_packet.unwrap_or(like.per_packet),
            offload: self.offload.unwrap_or(like.offload),
        }
    }
}

//! Virtual time: QUIC connections over modelled links.
//!
//! The lean mode drives the QUIC library's sans-I/O core alone, without
//! an async runtime, over [`bentpipe_link::Direction`]s. Nothing waits: the clock
//! jumps to the next event.
//!
//! A [`Plan`] says which links there are, which flows cross them, and what each flow
//! transfers. [`run`] carries it out and gives [`Records`]. The same plan gives the
//! same records, byte for byte: connection IDs, keys of tokens and resets, the
//! certificate and the endpoints' random numbers all derive from the plan's seed.
//!
//! - [`plan`]: what to do
//! - `network`: links joined to a graph, and what happened to the packets in it
//! - `node`: one end of a connection and the program behind it
//! - `world`: the clock, and the loop
//! - [`record`]: what came of it
//!
//! [`tunnel`] runs terminals and gateways instead: the code of the daemons, on the async
//! runtime's paused clock.

pub mod plan;
mod identity;
mod network;
mod node;
mod world;
pub mod record;
pub mod tunnel;

pub use plan::{Change, FlowPlan, LinkPlan, Move, Plan, PlanError, Transfer, What};
pub use record::Records;
pub use world::run;

/// Bytes of the request for a transfer or a flow: as many as a small HTTP one has.
const REQUEST: usize = 100;

/// A seed for what draws beside the links; `number` tells them apart.
fn seed_of(run: u64, number: u64) -> u64 {
    // Spreads numbers over 64 bits: 2^64 divided by the golden ratio.
    run ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

//! QUIC connections alone: the library's sans-I/O core, without an async runtime.
//!
//! Nothing waits: the clock jumps to the next event. Connection IDs, keys of tokens and
//! resets, the certificate and the endpoints' random numbers all derive from the plan's
//! seed.
//!
//! - [`plan`]: connections, and what is fetched over them
//! - `node`: one end of a connection and the program behind it
//! - `world`: the clock, and the loop

pub mod plan;
mod node;
mod world;

pub use plan::{FlowPlan, Transfer};
pub(crate) use world::run;

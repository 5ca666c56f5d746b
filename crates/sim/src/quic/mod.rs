//! QUIC connections alone: the measurement's client and server.
//!
//! The lean run has the library's sans-I/O core, without an async runtime. Nothing waits: the
//! clock jumps to the next event. The other one has the same programs over the async runtime, as
//! a person runs them. Connection IDs, keys of tokens and resets, the certificate and the
//! endpoints' random numbers all derive from the plan's seed.
//!
//! - [`plan`]: connections, and what is fetched over them
//! - `addresses`: where their ends are
//! - `node`: one end of a lean connection and the program behind it
//! - `world`: the lean run's clock, and the loop
//! - `on_runtime`: the run on the async runtime
//! - [`proxies`]: what splits the connections on their way there

pub mod plan;
mod addresses;
mod node;
mod world;
mod on_runtime;
pub mod proxies;

pub(crate) use on_runtime::run as run_on_runtime;
pub use plan::{FlowPlan, Transfer};
pub use proxies::{ProxyPlan, SplitPlan};
pub(crate) use world::run;

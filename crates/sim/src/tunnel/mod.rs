//! Terminals and gateways in virtual time: the code that the daemons run, with links,
//! UDP sockets, applications and servers in memory.
//!
//! - [`plan`]: what to do
//! - `exchange`: applications behind terminals, servers behind the gateway
//! - [`run`](run()): all of it together
//! - [`record`]: what came of it
//!
//! The same plan gives the same records. Connection IDs, keys of resets and tokens, and
//! the endpoints' random numbers derive from the seed; TLS draws its keys and random
//! values, and the terminal the first connection ID of its peer, whose lengths never
//! differ, so that no packet's length or moment depends on them.

pub mod plan;
mod exchange;
mod run;
pub mod record;

pub use plan::{FlowPlan, Plan, TerminalPlan, TunnelPlanError, Work};
pub use record::{Line, Verdict};
pub use run::{endpoint, run};

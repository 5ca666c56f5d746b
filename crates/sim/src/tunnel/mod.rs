//! Terminals and gateways in virtual time: the code that the daemons run, with links,
//! UDP sockets, applications and servers in memory.
//!
//! - [`plan`]: terminals, their gateway, and the connections of their applications
//! - `application`, `server`: the two ends of such a connection; `content` is what they
//!   send, `progress` how far they are
//! - `call`: the two ends of a call, in datagrams
//! - `run`: all of it together
//!
//! The same plan gives the same records. Connection IDs, keys of resets and tokens, and
//! the endpoints' random numbers derive from the seed; TLS draws its keys and random
//! values, and the terminal the first connection ID of its peer, whose lengths never
//! differ, so that no packet's length or moment depends on them.

pub mod plan;
mod content;
mod progress;
mod application;
mod server;
mod call;
mod run;

pub use plan::{Call, FlowPlan, TerminalPlan, TunnelPlan, Work};
pub use run::endpoint;
pub(crate) use run::run;

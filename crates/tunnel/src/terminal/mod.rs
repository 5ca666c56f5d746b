//! The terminal: takes applications' connections and sends them to the gateway.
//!
//! - `connector`: opens the session
//! - `session`: the one warm session
//! - `hosts`: whose applications' connections
//! - `flows`: applications' connections through it
//! - `places`, `udp`: their flows of datagrams, which are bounded
//! - [`dns`]: applications' questions of DNS

mod session;
mod connector;
mod hosts;
mod places;
mod flows;
mod udp;
pub mod dns;

pub use connector::{Connector, SessionError};
pub use flows::Terminal;
pub use session::Session;
pub use udp::Unreachable;

//! The terminal: takes applications' connections and sends them to the gateway.
//!
//! - `connector`: opens the session
//! - `session`: the one warm session
//! - `hosts`: whose applications' connections
//! - `flows`: applications' connections through it
//! - [`dns`]: applications' questions of DNS

mod session;
mod connector;
mod hosts;
mod flows;
pub mod dns;

pub use connector::{Connector, SessionError};
pub use flows::Terminal;
pub use session::Session;

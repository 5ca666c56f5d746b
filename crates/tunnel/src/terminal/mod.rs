//! The terminal: takes applications' connections and sends them to the gateway.
//!
//! - `connector`: opens a session
//! - `session`: the one warm session
//! - `probe`: whether a gateway can be reached
//! - `liveness`: whether the session is dead, or the link out
//! - `gateways`: with which gateway the session is
//! - `hosts`: whose applications' connections
//! - `names`: what addresses are called
//! - `server_name`: and what TLS handshakes say
//! - [`quic_choice`]: whether applications' own QUIC is tunnelled
//! - `flows`: applications' connections through it
//! - `udp`: and their flows of datagrams
//! - `places`, of a `room`: how many of both each host may have
//! - `ip`: IP packets of an interface
//! - [`dns`]: applications' questions of DNS

mod session;
mod probe;
mod liveness;
mod connector;
mod gateways;
mod hosts;
mod room;
mod places;
mod names;
mod server_name;
pub mod quic_choice;
mod flows;
mod udp;
mod ip;
pub mod dns;

pub use connector::{Connector, Kept, SessionError};
pub use flows::{EARLY_UDP_PORTS, Terminal};
pub use gateways::GatewayState;
pub use session::Session;
pub use udp::Unreachable;

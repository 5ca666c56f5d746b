//! The gateway: authenticates terminals and speaks to the real servers for them.
//!
//! - `admission`: who may begin a handshake
//! - `log_limit`: how much strangers can make the log say
//! - `sessions`: the open sessions
//! - `client`: who a session is with
//! - `requests`: what their terminals ask for; `guarded`: what of it may come in early data
//! - [`egress`]: what may be dialled by anybody
//! - [`destination`], [`policy`], `usage`: what a terminal may do, and has done of it
//! - `proxy_header`: how an origin is told whose connection it is
//! - `dial`: connections to origins
//! - `udp`: flows of datagrams
//! - `ip`: IP packets, of [`ip_protocol`]s that a policy names, in an [`ip_network`]
//! - `dns`: questions of DNS
//! - `serve`: all of it together

mod admission;
mod log_limit;
mod sessions;
mod client;
pub mod egress;
mod dial;
pub mod destination;
pub mod ip_protocol;
pub mod policy;
mod usage;
mod proxy_header;
mod dns;
mod guarded;
mod requests;
mod udp;
pub mod ip_network;
mod ip;
mod serve;

pub use bentpipe_quic::mapped::mapped;
pub use serve::{Configuration, Gateway, server_config};

//! The gateway: authenticates terminals and speaks to the real servers for them.
//!
//! - `admission`: who may begin a handshake
//! - `sessions`: the open sessions
//! - `requests`: what their terminals ask for
//! - [`egress`]: what may be dialled
//! - `dial`: connections to origins
//! - `serve`: all of it together

mod admission;
mod sessions;
pub mod egress;
mod dial;
mod requests;
mod serve;

pub use serve::{Configuration, Gateway, server_config};

//! DNS at the terminal: applications ask here, and the gateway's name servers answer.
//!
//! - [`question`]: what an application asks, and the reply
//! - [`key`]: what of it is the same for all who ask
//! - [`answer`]: what the gateway answers, checked
//! - [`cache`]: answers that are kept
//! - `local`: names that are answered without asking
//! - `resolver`: all of it together

pub mod key;
pub mod answer;
pub mod question;
pub mod cache;
mod local;
mod resolver;

pub use question::Over;
pub use resolver::{Resolver, ResolverSnapshot, Settings};

//! Flows: what applications and origins say to each other, carried through a session.
//!
//! - [`tcp`]: a TCP connection on a stream
//! - [`tally`]: how many there are, and how they ended
//! - [`stalled`]: the bound on TCP flows that are not read

mod outcome;
pub mod tally;
pub mod tcp;
pub mod stalled;

pub use outcome::{Carried, FlowError};

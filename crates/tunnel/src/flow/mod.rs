//! Flows: what applications and origins say to each other, carried through a session.
//!
//! - [`stream`]: the halves of a stream
//! - [`tcp`]: a TCP connection on a stream
//! - [`udp`]: the UDP datagrams of one pair of peers, beside a stream
//! - [`tally`]: how many there are, and how they ended
//! - [`stalled`]: the bound on TCP flows that are not read

mod outcome;
pub mod tally;
pub mod stream;
pub mod tcp;
pub mod udp;
pub mod stalled;

pub use outcome::{Carried, FlowError};

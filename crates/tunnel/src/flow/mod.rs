//! Flows: what applications and origins say to each other, carried through a session.
//!
//! - [`stream`]: the halves of a stream
//! - [`tcp`]: a TCP connection on a stream
//! - [`client_hello`]: what it may begin with in early data; [`ahead`]: a socket that is read for that
//! - [`udp`]: the UDP datagrams of one pair of peers, beside a stream
//! - [`ip`]: IP packets, with [`packet`] for what they say, beside a stream
//! - [`syn`]: a TCP connection's first packet, and what its sender is told
//! - [`tally`]: how many there are, and how they ended
//! - [`by_name`]: how many there were of each server's name
//! - [`watched`]: a socket whose bytes somebody sees
//! - [`transfer_time`]: how long what applications ask for takes
//! - [`stalled`]: the bound on TCP flows that are not read

mod outcome;
pub mod tally;
pub mod by_name;
pub mod watched;
pub mod transfer_time;
pub mod stream;
pub mod tcp;
pub mod client_hello;
pub mod ahead;
pub mod udp;
pub mod packet;
pub mod ip;
pub mod syn;
pub mod stalled;

pub use outcome::{Carried, FlowError};

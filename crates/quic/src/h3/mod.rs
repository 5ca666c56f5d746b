//! HTTP/3's view of the QUIC library.
//!
//! Four things it does beyond passing calls on: requests' streams write when it is
//! their turn ([`crate::schedule`]) and as far as the peer lets them
//! ([`crate::windows`]), a stream that is dropped before it was finished is reset, so
//! that nobody takes a torn flow for a complete one, and the header sections of CONNECT are
//! as their standards have them ([`crate::connect_headers`]).

mod connection;
mod errors;
mod flows;
mod receive;
mod send;
mod stream;

pub use connection::{Connection, Opener};
pub use flows::{Flows, Stops};
pub use receive::RecvStream;
pub use send::SendStream;
pub use stream::BidiStream;

/// Bytes taken from a stream at a time.
const CHUNK: usize = 64 * 1024;

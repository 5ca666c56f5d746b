//! One direction of a satellite link, without a clock and without I/O.
//!
//! Whoever runs it (the emulator in real time, the simulator in virtual time)
//! says what time it is. A packet meets the modules below in this order:
//!
//! 1. [`queue`]: it waits for the transmitter, or is dropped when there is no room;
//! 2. [`serialize`]: the transmitter sends it at the link's rate;
//! 3. [`impair`]: it may be lost on the air;
//! 4. [`propagate`]: it arrives one one-way delay later.
//!
//! [`Direction`] joins them. Its calls sort into [`Direction::handle_arrival`]
//! (a packet came in), [`Direction::poll_departure`] (take what has come out,
//! until `None`) and [`Direction::poll_timeout`] (call again at that moment).
//!
//! [`scenario`] is the link as people write it, [`explain`] what it amounts to.

pub mod scenario;
pub mod explain;
pub mod queue;
pub mod serialize;
pub mod impair;
pub mod propagate;
mod direction;
mod counters;

pub use counters::{Cause, Counters, Drops};
pub use direction::{Departure, Direction, Dropped};
pub use scenario::Scenario;

/// What travels over a link.
pub trait Packet {
    /// Its length at the IP level in bytes: IP header and all that follows.
    fn ip_len(&self) -> usize;
}

impl Packet for Vec<u8> {
    fn ip_len(&self) -> usize {
        self.len()
    }
}

//! One direction of a satellite link, without a clock and without I/O.
//!
//! Whoever runs it (the emulator in real time, the simulator in virtual time)
//! says what time it is. A packet meets the modules below in this order:
//!
//! 1. `queue`: it waits for the transmitter, beside `cross` traffic, and
//!    may be dropped or marked by the queue's management (`aqm`);
//! 2. the transmitter sends it: packet by packet (`serialize`), or cut into
//!    frames (`access`) of what `modcod` allows; `standstill` may stop it;
//! 3. `impair`: it may be lost, damaged or doubled on the air;
//! 4. `propagate`: it arrives one one-way delay later, which `reconfigure`
//!    may lengthen.
//!
//! [`Direction`] joins them. Its calls sort into [`Direction::handle_arrival`]
//! (a packet came in), [`Direction::poll_departure`] (take what has come out,
//! until `None`) and [`Direction::poll_timeout`] (call again at that moment).
//! [`Direction::apply`] changes the link while it runs.
//!
//! [`scenario`] is the link as people write it, [`explain`] what it amounts to,
//! `geometry` how long the way over satellites is.

pub mod scenario;
pub mod explain;
pub mod geometry;
mod packet;
mod random;
mod activity;
mod cross;
mod queue;
mod aqm;
pub mod modcod;
pub mod access;
mod standstill;
mod reconfigure;
mod serialize;
mod impair;
mod propagate;
mod direction;
mod counters;

pub use counters::{Cause, Counters, Drop, Drops};
pub use direction::{Departure, Direction, Dropped};
pub use packet::{Packet, ip};
pub use queue::Queue;
pub use random::Seeds;
pub use scenario::Scenario;

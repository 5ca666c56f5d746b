//! One direction of a satellite link, without a clock and without I/O.
//!
//! Whoever runs it (the emulator in real time, the simulator in virtual time)
//! says what time it is. A packet meets the modules below in this order:
//!
//! 1. `queue`: it waits for the transmitter, beside `cross` traffic, and
//!    may be dropped or marked by the queue's management (`aqm`);
//! 2. `transmit`: it is sent, packet by packet or cut into frames; `block` may stop the
//!    transmitter meanwhile;
//! 3. `impair`: it may be lost, damaged, doubled or held back on the air;
//! 4. `propagate`: it arrives one one-way delay later.
//!
//! [`Direction`] joins them. Its calls sort into [`Direction::handle_arrival`]
//! (a packet came in), [`Direction::poll_departure`] (take what has come out,
//! until `None`) and [`Direction::poll_timeout`] (call again at that moment).
//! [`Direction::apply`] makes a [`Change`] while the link runs.
//!
//! [`spec`] is the link as data, below all of this; [`scenario`] turns text into it,
//! [`explain`] says what it amounts to with [`bound`] and [`geometry`].

pub mod spec;
mod packet;
mod random;
mod on_off;
mod ticks;
mod counters;
mod entry;
mod accounting;
mod fifo;
mod cross;
mod queue;
mod aqm;
mod transmit;
mod block;
mod impair;
mod propagate;
mod direction;
pub mod geometry;
pub mod scenario;
pub mod bound;
pub mod explain;

pub use accounting::Drop;
pub use counters::{Cause, Counters, Drops};
pub use direction::{Departure, Direction, Dropped};
pub use packet::{Packet, ip};
pub use queue::Queue;
pub use random::{Seed, Seeds};
pub use scenario::ScenarioError;
pub use spec::{Change, Directions, LinkChange, LinkOutage, Scenario, ScheduledChange};

/// The arithmetic of DVB carriers, as the transmitters do it: for whoever compares it with
/// the standards.
pub mod dvb {
    pub use crate::transmit::dvb_rcs2::bursts_for;
    pub use crate::transmit::dvb_s2::ip_rate;
    pub use crate::transmit::encapsulate::Encapsulation;
    pub use crate::transmit::modcod::{DVB_S2, S2};
}

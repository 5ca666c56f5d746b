//! Links in real time: packets come out of one TUN device and go into another when
//! the link model says so.
//!
//! A [`frame`] travels in memory from a [`pool`], [`pace`] decides what to do next,
//! [`run`] does it. Somebody may ask for a [`change`] by way of a [`remote`]. [`record`]
//! writes down what became of each packet and [`capture`] the packets themselves, both
//! through a [`spool`]. [`lateness`] measures how well it is done, and [`certificate`] says
//! whether to trust it.

mod frame;
mod pool;
mod pace;
mod lateness;
mod change;
mod remote;
mod spool;
mod record;
mod capture;
mod run;
pub mod certificate;

pub use certificate::Certificate;
pub use change::{ChangeError, Changed, NewAddress, NoAddress, Order, next_addresses};
pub use remote::{Remote, Sight};
pub use run::{Emulator, EmulatorError, End, Plan};

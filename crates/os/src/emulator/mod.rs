//! Links in real time: packets come out of one TUN device and go into another when
//! the link model says so.
//!
//! [`frame`] is what travels, [`pace`] decides what to do next, [`run`] does it,
//! [`lateness`] measures how well, and [`certificate`] says whether to trust it.

mod frame;
mod pace;
mod lateness;
mod run;
pub mod certificate;

pub use certificate::Certificate;
pub use run::{Emulator, EmulatorError, End, Plan, Stop};

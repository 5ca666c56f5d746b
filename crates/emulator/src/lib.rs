//! Links in real time: packets come out of one TUN device and go into another when
//! the link model says so.
//!
//! A [`frame`] travels in memory from a [`pool`] in a [`direction`] of a link, [`pace`]
//! decides what to do next, [`emulator`] does it. A [`link_update`] may be asked for by way
//! of [`control`], or stand in the [`schedule`]; [`address`] finds a device's next one.
//! A [`packet_log`] has what became of each packet ([`record`]) and the packets themselves
//! ([`capture`]), both written through a [`spool`]. [`lateness`] measures how well it is
//! done, and [`certificate`] says whether to trust it.

mod direction;
mod frame;
mod pool;
mod pace;
mod lateness;
mod address;
mod link_update;
mod schedule;
mod control;
mod spool;
mod record;
mod capture;
mod packet_log;
mod emulator;
pub mod certificate;

pub use address::{NoAddress, UnreachableEnds, next_addresses};
pub use certificate::Certificate;
pub use control::{ControlHandle, DirectionStatus, RunStatus, STATUS_SCHEMA, status_schema};
pub use direction::DirectionName;
pub use emulator::{Emulator, EmulatorError, End, LinkPlan};
pub use link_update::{AppliedChange, LinkUpdate, NewAddress, UpdateError};
pub use record::schema as packets_schema;

//! The only crate that touches the machine: what it has, in the order in which a
//! packet and its device need it.

pub mod namespace;
mod netlink;
pub mod tun;
pub mod realtime;
pub mod emulator;

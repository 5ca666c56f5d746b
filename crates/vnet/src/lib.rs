//! The virtual network: a paused clock, links joined to a graph, UDP sockets in memory.
//!
//! - [`plan`]: the links, and what changes on them
//! - [`timer`]: when a timer fires
//! - [`host`]: when a program runs on a machine that has other things to do
//! - [`clock`]: the async runtime's paused clock, exact to the nanosecond
//! - [`network`]: UDP sockets joined by links

pub mod plan;
pub mod timer;
pub mod host;
pub mod clock;
pub mod network;

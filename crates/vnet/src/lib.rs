//! The virtual network: a paused clock, links joined to a graph, UDP sockets in memory.
//!
//! - [`plan`]: the links, and what changes on them
//! - [`graph`]: datagrams from host to host over links, without a clock
//! - [`timer`]: when a timer fires
//! - [`host`]: when a program runs on a machine that has other things to do
//! - [`clock`]: the async runtime's paused clock, exact to the nanosecond
//! - [`network`]: UDP sockets of the async runtime on a graph

pub mod plan;
pub mod graph;
pub mod timer;
pub mod host;
pub mod clock;
pub mod network;

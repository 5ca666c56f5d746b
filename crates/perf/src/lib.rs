//! Measurement of transports: a client that asks for bytes and requests, a server that answers,
//! and what both see of the connections below.
//!
//! No OS call: sockets, clock and runtime are handed in, so that real and virtual time run the
//! same code. In the order in which a measurement needs them:
//!
//! - [`protocol`]: what is said on a stream (draft-banks-quic-performance)
//! - [`error`]: why a measurement fails
//! - [`clock`]: the runtime's clock
//! - [`parameters`]: how one end's QUIC is set up
//! - [`ecn`]: a socket that sends without ECN
//! - [`tls`]: certificates, and whom a client trusts
//! - [`transport`]: what a measurement needs of a transport
//! - [`quic`]: that, over the QUIC library
//! - [`workload`]: what a client does
//! - [`report`]: the documented result
//! - [`meter`]: bytes as they come and go, and intervals
//! - [`streams`]: what each end does on one stream
//! - [`datagrams`]: at a given rate, there and back
//! - [`iperf3`]: a report as iperf3 would write it
//! - [`client`], [`server`]: the two programs
//! - [`files`]: files by HTTP/3 and by HTTP/0.9, with the same report
//! - [`lean`]: the same two on the library's sans-I/O core

pub mod protocol;
pub mod error;
pub mod clock;
pub mod parameters;
pub mod ecn;
pub mod tls;
pub mod report;
pub mod transport;
pub mod quic;
pub mod workload;
pub mod meter;
mod latency;
mod stall;
pub mod datagrams;
pub mod iperf3;
pub mod streams;
pub mod client;
pub mod files;
pub mod server;
pub mod lean;

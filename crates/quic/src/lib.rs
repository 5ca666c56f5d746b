//! All that knows the QUIC library, for whoever carries bytes over a satellite.
//!
//! - [`clock`]: the async runtime's present moment
//! - [`selection`]: which controllers there are, the library's own among them
//! - [`controller`]: the project's congestion controllers behind the library's trait
//! - [`monitor`]: what a controller does, for whoever measures
//! - [`qlog`]: where connections' events are written
//! - [`version2`]: QUIC version 2, which the library lacks
//! - [`layer`]: what lies between the library and a UDP socket
//! - [`batches`]: how many datagrams go out at once
//! - [`versions`]: which datagrams of other versions are answered
//! - [`mapped`]: IPv4 peers that migrate by addresses of IPv6
//! - `pacing`: bursts of at most 2 ms
//! - [`acks`]: how often the peer acknowledges
//! - [`transport`]: transport parameters for a satellite
//! - [`schedule`]: whose bytes go first
//! - [`windows`]: how far each stream may be sent
//! - [`varint`]: the integers of QUIC and HTTP/3
//! - `frames`: how long a frame may be
//! - [`datagrams`]: what is sent beside the streams; `outgoing` is where it waits, under `codel`
//! - [`drops`]: counts of datagrams that were dropped
//! - [`fingerprint`]: the hash of a public key, which names a peer
//! - [`connect_headers`]: header sections of CONNECT as their standards have them
//! - [`h3`]: the HTTP/3 library on connections of the QUIC library

pub mod clock;
pub mod selection;
pub mod monitor;
pub mod controller;
pub mod qlog;
pub mod version2;
pub mod layer;
pub mod batches;
pub mod versions;
pub mod mapped;
mod pacing;
pub mod acks;
pub mod transport;
pub mod schedule;
pub mod windows;
pub mod varint;
mod frames;
pub mod datagrams;
mod outgoing;
mod codel;
pub mod drops;
pub mod fingerprint;
pub mod connect_headers;
pub mod h3;

pub use controller::{Factory, Together};
pub use qlog::Events;
pub use selection::{Selection, Settings};
pub use transport::ConnectionParameters;

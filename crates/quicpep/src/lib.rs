//! A proxy that splits QUIC connections at a satellite hop (Kosek et al., section II-D).
//!
//! It ends each client's connection, opens one to the next hop, and carries streams between
//! the two with the same stream IDs. Each connection then has loss recovery, congestion
//! control and windows for its own part of the path. **It sees everything in the clear**;
//! that is what it is compared with the tunnel for.
//!
//! Nothing here opens a socket, reads a clock or draws a random number: endpoints, names and
//! runtime are handed in, so the daemon, the tests and the simulator run the same code.
//!
//! In a connection's order:
//!
//! 1. [`hello`] reads the client's first flight: server name and application protocols;
//! 2. [`routes`] says where that leads;
//! 3. [`tls`] answers the client, and verifies the next hop;
//! 4. [`next_hop`] opens the connection onwards, with the windows and the controller of
//!    [`transport`] and what is known of the path from [`paths`]; to another proxy, `pool` has
//!    some ready, on which [`pair`] tells of the client;
//! 5. [`proxy`] decides who is waited for ([`proxy::Mode`]); `protocols` is what servers have
//!    chosen before;
//! 6. [`join`] carries `streams` and datagrams both ways, each direction of a stream by
//!    `relay`, until both connections have ended, whose codes are in [`close`] and
//!    whose failures in [`failure`]; what they may
//!    hold is their part of the [`memory`].

pub mod hello;
pub mod routes;
pub mod transport;
pub mod memory;
pub mod tls;
pub mod close;
pub mod failure;
pub mod paths;
pub mod pair;
mod pool;
pub mod next_hop;
mod relay;
mod protocols;
mod streams;
pub mod join;
pub mod proxy;

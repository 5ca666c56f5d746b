//! QUIC versions 1 and 2 (RFC 9000, RFC 9001, RFC 9369) as a capture shows them.
//!
//! [`Tracker`] attributes datagrams to connections by connection ID, or by address where
//! IDs are empty, so that migration and coalesced packets are followed; it takes off
//! header protection, decrypts, and hands each packet with its [`frames`] to a
//! [`Visitor`]. What cannot be decrypted is handed over too, with the reason.

pub mod bytes;
pub mod connection;
pub mod frames;
pub mod header;
pub mod keys;
pub mod tls;
mod owners;
pub mod tracker;

pub use connection::{Connection, Side, Space};
pub use frames::Frame;
pub use tracker::{Datagram, Packet, Tracker, Undecryptable, Visitor};

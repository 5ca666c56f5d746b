//! What is known of a packet, and which bytes of a stream have been seen before.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::quic::Side;
use crate::ranges::Ranges;

/// Which connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// `quic` or `tcp`.
    pub protocol: &'static str,
    /// Its number.
    pub connection: u32,
}

/// What is known of a packet without its frames.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// On which interface.
    pub interface: u32,
    /// From where.
    pub from: SocketAddr,
    /// To where.
    pub to: SocketAddr,
    /// Who sent it.
    pub side: Side,
    /// Packet number, or sequence number of TCP.
    pub number: Option<u64>,
    /// Whether it is of the application's packet number space.
    pub application: bool,
    /// Whether it is a 1-RTT packet.
    pub one_rtt: bool,
    /// Bytes to be counted.
    pub bytes: u32,
    /// ECN field.
    pub ecn: u8,
    /// Key phase bit.
    pub key_phase: Option<bool>,
}

/// A piece of a stream, and what of it was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Stream ID.
    pub stream: u64,
    /// Offset.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Of these, sent before.
    pub repeated: u64,
    /// Whether later bytes of the stream were sent before it.
    pub late: bool,
}

/// Which bytes of a connection's streams have been seen on an interface.
#[derive(Debug, Default)]
pub struct Coverage {
    streams: HashMap<(Key, bool, u32, u64), Ranges>,
}

impl Coverage {
    /// `length` bytes at `offset` of `stream` have been seen.
    pub fn add(
        &mut self,
        (key, side, interface): (Key, Side, u32),
        stream: u64,
        offset: u64,
        length: u64,
    ) -> Piece {
        let place = (key, side == Side::Client, interface, stream);
        let ranges = self.streams.entry(place).or_default();
        let late = offset < ranges.end();
        let repeated = ranges.insert(offset, offset.saturating_add(length));
        Piece {
            stream,
            offset,
            length,
            repeated,
            late,
        }
    }
}

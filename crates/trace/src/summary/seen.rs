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
    /// Whether all of its stream has been seen with it.
    pub whole: bool,
}

/// Streams that are not whole and followed at one time.
const MOST_STREAMS: usize = if cfg!(test) { 1 << 7 } else { 1 << 17 };
/// Ranges of bytes that are held of them all; beyond, the earliest gap of the stream that grows is closed.
const MOST_RANGES: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// The direction of a connection's streams past an interface.
type Place = (Key, bool, u32);

/// Which bytes of streams have been seen on an interface. Of streams of which all was seen, their numbers are left.
#[derive(Debug, Default)]
pub struct Coverage {
    streams: HashMap<(Place, u64), Seeing>,
    ranges: usize,
    /// Streams that are whole, by their kind: the last two bits of their IDs.
    whole: HashMap<(Place, u64), Ranges>,
}

#[derive(Debug, Default)]
struct Seeing {
    bytes: Ranges,
    /// Where it ends.
    end: Option<u64>,
}

impl Coverage {
    /// `length` bytes at `offset` of `stream` have been seen, and whether it ends with them.
    pub fn add(
        &mut self,
        (key, side, interface): (Key, Side, u32),
        stream: u64,
        (offset, length, fin): (u64, u64, bool),
    ) -> Piece {
        let place = (key, side == Side::Client, interface);
        let (kind, number) = (stream & 3, stream >> 2);
        let piece = |repeated, late, whole| Piece {
            stream,
            offset,
            length,
            repeated,
            late,
            whole,
        };
        let whole = self.whole.get(&(place, kind));
        if whole.is_some_and(|whole| whole.contains(number)) {
            return piece(length, false, true);
        }
        let known = self.streams.contains_key(&(place, stream));
        if !known && self.streams.len() >= MOST_STREAMS {
            return piece(0, false, false);
        }
        let seeing = self.streams.entry((place, stream)).or_default();
        let late = offset < seeing.bytes.end();
        let before = seeing.bytes.count();
        let end = offset.saturating_add(length);
        let repeated = seeing.bytes.insert(offset, end);
        if fin {
            seeing.end = Some(end);
        }
        self.ranges = self.ranges + seeing.bytes.count() - before;
        while self.ranges > MOST_RANGES && seeing.bytes.count() > 1 {
            seeing.bytes.close_first_gap();
            self.ranges -= 1;
        }
        let done = seeing
            .end
            .is_some_and(|end| seeing.bytes.contiguous() >= end);
        if done {
            self.ranges -= seeing.bytes.count();
            self.streams.remove(&(place, stream));
            let whole = self.whole.entry((place, kind)).or_default();
            whole.insert(number, number + 1);
        }
        piece(repeated, late, done)
    }
}

#[cfg(test)]
mod tests {
    use super::{Coverage, Key, MOST_RANGES, MOST_STREAMS, Piece, Side};

    const PLACE: (Key, Side, u32) = (
        Key {
            protocol: "quic",
            connection: 0,
        },
        Side::Client,
        0,
    );

    fn add(seen: &mut Coverage, stream: u64, offset: u64, length: u64, fin: bool) -> Piece {
        seen.add(PLACE, stream, (offset, length, fin))
    }

    #[test]
    fn a_stream_that_is_whole_takes_no_memory_and_is_known() {
        let seen = &mut Coverage::default();
        for stream in 0..1000 {
            let first = add(seen, stream, 500, 500, true);
            let second = add(seen, stream, 0, 500, false);
            assert!(!first.whole && second.whole && second.late);
        }
        assert_eq!((seen.streams.len(), seen.ranges), (0, 0));
        let whole: usize = seen.whole.values().map(crate::ranges::Ranges::count).sum();
        assert_eq!(whole, 4);
        assert_eq!(add(seen, 70, 100, 300, false).repeated, 300);
        assert!(add(seen, 1000, 0, 0, true).whole);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let seen = &mut Coverage::default();
        for stream in 0..2 * MOST_STREAMS as u64 {
            add(seen, stream, 0, 1, false);
        }
        assert_eq!(seen.streams.len(), MOST_STREAMS);
        for at in 0..2 * MOST_RANGES as u64 {
            add(seen, 3, 2 * at, 1, false);
        }
        assert!(seen.ranges <= MOST_RANGES, "{}", seen.ranges);
        assert_eq!(add(seen, 3, 0, 7, false).repeated, 7);
        assert_eq!(add(seen, 3, 4 * MOST_RANGES as u64, 7, false).repeated, 0);
    }
}

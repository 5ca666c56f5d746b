//! TCP connections by their sequence numbers; nothing is decrypted.

use std::collections::HashMap;
use std::net::SocketAddr;

use crate::quic::Side;

/// A segment and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Which connection, from 0 on.
    pub connection: u32,
    /// Who sent it.
    pub side: Side,
    /// SYN, FIN, RST, PSH, ACK, ECE and CWR, by their first letters; ECE is `E`, CWR `W`.
    pub flags: String,
    /// Sequence number of its first byte of data, relative to the first one of its side that was seen; what comes
    /// before that one is left out.
    pub offset: u64,
    /// What it acknowledges, relative to the other side's first byte of data.
    pub ack: Option<u64>,
    /// Bytes of data.
    pub length: u64,
    /// Whether it ends its side.
    pub fin: bool,
}

/// Connections that are followed: each takes 2 KB with its summary.
const MOST_CONNECTIONS: usize = 1 << 14;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// The connections of one trace.
#[derive(Default)]
pub struct Tracker {
    /// By addresses, client's first: the latest one.
    connections: HashMap<(SocketAddr, SocketAddr), State>,
    count: u32,
}

struct State {
    number: u32,
    /// The byte after SYN of client and server, and how far each has come.
    ends: [Option<Half>; 2],
}

#[derive(Clone, Copy)]
struct Half {
    first: u32,
    /// Relative to `first`; what comes is within 2 GiB of it.
    latest: u64,
}

impl Half {
    /// How far sequence number `number` is from the first, the nearest to the latest; and how far before it, if it
    /// is.
    fn whole(&self, number: u32) -> (u64, u64) {
        let relative = number.wrapping_sub(self.first);
        let base = self.latest & !0xffff_ffff;
        let candidate = base | u64::from(relative);
        if candidate + (1 << 31) < self.latest {
            (candidate + (1 << 32), 0)
        } else if candidate > self.latest + (1 << 31) {
            let earlier = candidate.checked_sub(1 << 32);
            earlier.map_or((0, (1 << 32) - candidate), |earlier| (earlier, 0))
        } else {
            (candidate, 0)
        }
    }
}

impl Tracker {
    /// The segment `bytes`, of `len` bytes on the wire; `None` if it has no header, or
    /// more connections were seen than are followed.
    pub fn segment(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        bytes: &[u8],
        len: u32,
    ) -> Option<Segment> {
        let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (sequence, acknowledged) = (number(4)?, number(8)?);
        let head = u32::from(*bytes.get(12)? >> 4) * 4;
        let flags = *bytes.get(13)?;
        let data = u64::from(len.checked_sub(head)?);
        let (key, side) = if self.connections.contains_key(&(to, from)) {
            ((to, from), Side::Server)
        } else {
            ((from, to), Side::Client)
        };
        // A SYN without ACK begins a connection, also where the ports were used before.
        let begins = flags & (SYN | ACK) == SYN;
        let again = self.connections.get(&key).is_some_and(|state| {
            let first = state.ends[side as usize].map(|half| half.first);
            begins && side == Side::Client && first != Some(sequence.wrapping_add(1))
        });
        if again {
            self.connections.remove(&key);
        }
        if !self.connections.contains_key(&key) {
            if self.connections.len() >= MOST_CONNECTIONS {
                return None;
            }
            // Without its SYN, who sends from the higher port is taken for the client.
            let client_first = begins || from.port() >= to.port();
            let key = if client_first { (from, to) } else { (to, from) };
            let number = self.count;
            self.count += 1;
            let ends = [None; 2];
            self.connections.insert(key, State { number, ends });
        }
        let (key, side) = if self.connections.contains_key(&(to, from)) {
            ((to, from), Side::Server)
        } else {
            (key, Side::Client)
        };
        let state = self.connections.get_mut(&key)?;
        let syn = u32::from(flags & SYN != 0);
        let half = state.ends[side as usize].get_or_insert(Half {
            first: sequence.wrapping_add(syn),
            latest: 0,
        });
        let (offset, before) = half.whole(sequence.wrapping_add(syn));
        let data = data.saturating_sub(before);
        half.latest = half.latest.max(offset + data);
        let ack = state.ends[side.peer() as usize]
            .filter(|_| flags & ACK != 0)
            .map(|peer| peer.whole(acknowledged).0);
        let letters = ["F", "S", "R", "P", "A", "U", "E", "W"];
        let names = letters.iter().enumerate();
        Some(Segment {
            connection: state.number,
            side,
            flags: names
                .filter(|(bit, _)| flags >> bit & 1 != 0)
                .map(|(_, letter)| *letter)
                .collect(),
            offset,
            ack,
            length: if flags & RST == 0 { data } else { 0 },
            fin: flags & FIN != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Tracker;

    /// Offset, length and ACK of a client's segment with so many bytes.
    fn seen(tracker: &mut Tracker, sequence: u32, len: u32) -> (u64, u64) {
        let mut head = [0; 20];
        head[4..8].copy_from_slice(&sequence.to_be_bytes());
        (head[12], head[13]) = (5 << 4, super::ACK);
        let ends = (
            "192.0.2.1:5000".parse().expect("an address"),
            "192.0.2.2:80".parse().expect("an address"),
        );
        let segment = tracker.segment(ends, &head, 20 + len).expect("a segment");
        (segment.offset, segment.length)
    }

    #[test]
    fn what_comes_before_the_first_segment_moves_nothing() {
        for first in [10_000, 1000, u32::MAX - 500] {
            let tracker = &mut Tracker::default();
            let at = |relative: i32| first.wrapping_add_signed(relative);
            assert_eq!(seen(tracker, at(0), 1000), (0, 1000));
            assert_eq!(seen(tracker, at(-2000), 1000), (0, 0));
            assert_eq!(seen(tracker, at(-400), 1000), (0, 600));
            assert_eq!(seen(tracker, at(1000), 1000), (1000, 1000));
        }
    }

    #[test]
    fn numbers_go_on_when_they_come_round() {
        let tracker = &mut Tracker::default();
        let mut total = 0;
        for round in 0..20u32 {
            let expected = (u64::from(round) << 30, 1000);
            assert_eq!(seen(tracker, round.wrapping_mul(1 << 30), 1000), expected);
            total = expected.0;
        }
        assert_eq!(
            seen(
                tracker,
                (19u32.wrapping_mul(1 << 30)).wrapping_sub(5000),
                1000
            )
            .0,
            total - 5000
        );
    }
}

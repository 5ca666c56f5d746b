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
    /// Sequence number of its first byte of data, relative to the first one of its side.
    pub offset: u64,
    /// What it acknowledges, relative to the other side's first byte of data.
    pub ack: Option<u64>,
    /// Bytes of data.
    pub length: u64,
    /// Whether it ends its side.
    pub fin: bool,
}

/// Connections that are followed.
const MOST_CONNECTIONS: usize = 1_000_000;

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
    /// The whole number of sequence number `number`, the nearest to the latest.
    fn whole(&self, number: u32) -> u64 {
        let relative = number.wrapping_sub(self.first);
        let base = self.latest & !0xffff_ffff;
        let candidate = base | u64::from(relative);
        if candidate + (1 << 31) < self.latest {
            candidate + (1 << 32)
        } else if candidate > self.latest + (1 << 31) && candidate >= 1 << 32 {
            candidate - (1 << 32)
        } else {
            candidate
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
        let offset = half.whole(sequence.wrapping_add(syn));
        half.latest = half.latest.max(offset + data);
        let ack = state.ends[side.peer() as usize]
            .filter(|_| flags & ACK != 0)
            .map(|peer| peer.whole(acknowledged));
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

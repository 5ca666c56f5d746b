//! Datagrams attributed to connections, and their packets opened.

use std::net::SocketAddr;

use super::connection::{Connection, Half, Side, Space};
use super::frames::{Frame, Frames};
use super::header::{self, Id, Kind, Long};
use super::keys::{Keys, Suite, packet_number};
use super::owners::{Ends, Owner, Owners};
use crate::keylog::KeyLog;

/// A UDP datagram of the capture.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    /// Its place among the capture's packets, from 1 on, as Wireshark counts.
    pub frame: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// On which interface of the file.
    pub interface: u32,
    /// From where.
    pub from: SocketAddr,
    /// To where.
    pub to: SocketAddr,
    /// The ECN field.
    pub ecn: u8,
    /// Its payload.
    pub payload: &'a [u8],
    /// Whether the capture has all of it.
    pub whole: bool,
}

impl Datagram<'_> {
    fn ends(&self) -> Ends {
        (self.from, self.to)
    }
}

/// One QUIC packet of a datagram.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    /// The connection that it belongs to.
    pub connection: &'a Connection,
    /// Who sent it.
    pub side: Side,
    /// What kind it is.
    pub kind: Kind,
    /// Its number, where it could be read.
    pub number: Option<u64>,
    /// Bytes of the datagram that are this packet.
    pub size: usize,
    /// Its place in the datagram.
    pub place: usize,
    /// The key phase bit of a 1-RTT packet.
    pub key_phase: Option<bool>,
    /// Its frames, or why they cannot be read.
    pub frames: Result<Frames<'a>, Undecryptable>,
}

/// Why a packet's content is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Undecryptable {
    /// The capture begins after the ClientHello, so no secret can be found.
    NoHello,
    /// The key log has nothing of this connection: it is another run's, or incomplete.
    NoSecrets,
    /// There are keys, but its authentication tag does not fit.
    Failed,
    /// The capture cut it, or it is shorter than a packet can be.
    Cut,
    /// Retry and Version Negotiation have no frames.
    NoFrames,
}

impl Undecryptable {
    /// In words.
    pub const fn why(self) -> &'static str {
        match self {
            Self::NoHello => "the capture has no ClientHello of this connection",
            Self::NoSecrets => "the key log has no secrets of this connection",
            Self::Failed => "the authentication tag does not fit",
            Self::Cut => "cut or too short",
            Self::NoFrames => "no frames in packets of this kind",
        }
    }
}

/// Who looks at packets.
pub trait Visitor {
    /// A packet, in the order of the capture.
    fn packet(&mut self, datagram: &Datagram<'_>, packet: &Packet<'_>);
}

/// Connections that are followed: with all keys each takes 9 KB, its summary 3.
const MOST_CONNECTIONS: usize = 1 << 13;

/// The connections of one trace.
pub struct Tracker<'l> {
    log: &'l KeyLog,
    connections: Vec<Connection>,
    owners: Owners,
    scratch: Vec<u8>,
    /// UDP datagrams that belong to no connection.
    pub strangers: u64,
}

impl<'l> Tracker<'l> {
    /// With the secrets of `log`.
    pub fn new(log: &'l KeyLog) -> Self {
        Self {
            log,
            connections: Vec::new(),
            owners: Owners::default(),
            scratch: Vec::new(),
            strangers: 0,
        }
    }

    /// All connections so far.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// Follows a datagram and shows its packets to `visitor`.
    pub fn datagram(&mut self, datagram: &Datagram<'_>, visitor: &mut impl Visitor) {
        let mut rest = datagram.payload;
        let mut place = 0;
        let mut last = None;
        while let Some(first) = rest.first() {
            // Zeros behind a packet are padding of the datagram, not a packet.
            if place > 0 && rest.iter().all(|byte| *byte == 0) {
                break;
            }
            let used = if header::is_long(*first) {
                self.long(datagram, rest, place, visitor, &mut last)
            } else {
                self.short(datagram, rest, place, visitor, last)
            };
            let Some(used) = used.filter(|used| *used > 0) else {
                if place == 0 {
                    self.strangers += 1;
                }
                break;
            };
            rest = &rest[used..];
            place += 1;
        }
    }

    /// A packet with a long header; how many bytes it has.
    fn long(
        &mut self,
        datagram: &Datagram<'_>,
        rest: &[u8],
        place: usize,
        visitor: &mut impl Visitor,
        last: &mut Option<Owner>,
    ) -> Option<usize> {
        let head = header::long(rest).filter(|head| head.whole || !datagram.whole)?;
        let (number, side) = self.attribute(datagram, &head)?;
        *last = Some((number, side));
        self.owners.sent((number, side), datagram.ends());
        self.owners.give(head.source, (number, side));
        let connection = &mut self.connections[number];
        let mut packet = Opened {
            number: None,
            key_phase: None,
            payload: Err(Undecryptable::NoFrames),
        };
        match head.kind {
            _ if !head.whole => packet = Opened::failed(Undecryptable::Cut),
            Kind::Retry if side == Side::Server => connection.on_retry(head.version, head.source),
            Kind::Retry | Kind::VersionNegotiation | Kind::OneRtt => {}
            Kind::Initial | Kind::ZeroRtt | Kind::Handshake => {
                connection.on_version(side, head.version);
                self.scratch.clear();
                self.scratch.extend_from_slice(&rest[..head.len]);
                packet = open_long(
                    (connection, side),
                    datagram.interface,
                    &head,
                    &mut self.scratch,
                    rest,
                );
            }
        }
        self.show(
            datagram,
            (number, side),
            head.kind,
            (head.len, place),
            packet,
            visitor,
        );
        Some(head.len)
    }

    /// A 1-RTT packet; it reaches to the end of the datagram.
    fn short(
        &mut self,
        datagram: &Datagram<'_>,
        rest: &[u8],
        place: usize,
        visitor: &mut impl Visitor,
        last: Option<Owner>,
    ) -> Option<usize> {
        let ends = datagram.ends();
        let ((number, side), id_len) = self.owners.short_sender(&rest[1..], ends, last)?;
        self.owners.sent((number, side), ends);
        let connection = &mut self.connections[number];
        let half = connection.half(side);
        let here = half.largest.at(datagram.interface, Space::Application);
        let anywhere = half.largest.anywhere(Space::Application);
        let mut packet = Opened::failed(Undecryptable::NoSecrets);
        // An interface that was captured later than others knows the numbers from them.
        for largest in [Some(here), Some(anywhere).filter(|other| *other != here)] {
            let (Some(largest), Err(_)) = (largest, &packet.payload) else {
                break;
            };
            self.scratch.clear();
            self.scratch.extend_from_slice(rest);
            packet = open_short(half, largest, 1 + id_len, &mut self.scratch);
        }
        let size = (rest.len(), place);
        self.show(
            datagram,
            (number, side),
            Kind::OneRtt,
            size,
            packet,
            visitor,
        );
        Some(rest.len())
    }

    /// Learns from the packet in the scratch buffer and shows it.
    fn show(
        &mut self,
        datagram: &Datagram<'_>,
        (number, side): (usize, Side),
        kind: Kind,
        (size, place): (usize, usize),
        opened: Opened,
        visitor: &mut impl Visitor,
    ) {
        let scratch = std::mem::take(&mut self.scratch);
        let frames = opened.payload.map(|range| Frames::new(&scratch[range]));
        if let (Ok(frames), Some(space)) = (frames, Space::of(kind)) {
            let half = self.connections[number].half(side);
            half.largest.seen(datagram.interface, space, opened.number);
            for frame in frames.map_while(Result::ok) {
                self.learn(number, side, kind, &frame);
            }
        }
        let why = match (frames, &self.connections[number]) {
            (Err(Undecryptable::NoSecrets), connection) if connection.client_random.is_none() => {
                Err(Undecryptable::NoHello)
            }
            (frames, _) => frames,
        };
        let cut = !datagram.whole && why.is_err();
        let packet = Packet {
            connection: &self.connections[number],
            side,
            kind,
            number: opened.number,
            size,
            place,
            key_phase: opened.key_phase,
            frames: if cut { Err(Undecryptable::Cut) } else { why },
        };
        visitor.packet(datagram, &packet);
        self.scratch = scratch;
    }

    fn learn(&mut self, number: usize, side: Side, kind: Kind, frame: &Frame<'_>) {
        match *frame {
            Frame::Crypto { offset, data } if kind == Kind::Initial => {
                self.connections[number].on_initial_crypto(side, offset, data, self.log);
            }
            Frame::Crypto { offset, data } if kind == Kind::Handshake && side == Side::Server => {
                self.connections[number].on_server_handshake_crypto(offset, data);
            }
            Frame::NewConnectionId { id, .. } => {
                if let Some(id) = Id::new(id) {
                    self.owners.give(id, (number, side));
                }
            }
            _ => {}
        }
    }

    /// Whose packet it is, and who sent it. An Initial packet of nobody begins a connection.
    fn attribute(&mut self, datagram: &Datagram<'_>, head: &Long<'_>) -> Option<Owner> {
        let ends = datagram.ends();
        if let Some(owner) = self.owners.sender(&head.destination, ends) {
            return Some(owner);
        }
        let known = self.owners.by_addresses(ends);
        if let Some((number, side)) = known
            && (side == Side::Server || head.kind != Kind::Initial)
        {
            return Some((number, side));
        }
        // A client's IDs have at least eight bytes (RFC 9000, section 7.2).
        let begins = head.kind == Kind::Initial && head.destination.as_bytes().len() >= 8;
        if !begins || self.connections.len() >= MOST_CONNECTIONS {
            return None;
        }
        let number = self.connections.len();
        self.connections.push(Connection::new(
            u32::try_from(number).ok()?,
            head.version,
            head.destination,
            ends,
        ));
        self.owners.begin(ends);
        self.owners.give(head.destination, (number, Side::Server));
        Some((number, Side::Client))
    }
}

/// What became of the packet in the scratch buffer.
struct Opened {
    number: Option<u64>,
    key_phase: Option<bool>,
    /// Where its frames are.
    payload: Result<std::ops::Range<usize>, Undecryptable>,
}

impl Opened {
    fn failed(why: Undecryptable) -> Self {
        Self {
            number: None,
            key_phase: None,
            payload: Err(why),
        }
    }

    /// `plain`: how many bytes behind `payload_at` have been decrypted, if they were.
    fn of(plain: Option<usize>, payload_at: usize, number: u64, key_phase: Option<bool>) -> Self {
        Self {
            number: plain.map(|_| number),
            key_phase,
            payload: plain
                .map(|len| payload_at..payload_at + len)
                .ok_or(Undecryptable::Failed),
        }
    }
}

fn open_long(
    (connection, side): (&mut Connection, Side),
    interface: u32,
    head: &Long<'_>,
    scratch: &mut [u8],
    original: &[u8],
) -> Opened {
    let space = Space::of(head.kind).expect("it has a number");
    let half = connection.half(side);
    let largest = half.largest.at(interface, space);
    let keys = match head.kind {
        Kind::Initial => Some(&half.initial),
        Kind::ZeroRtt => half.zero_rtt.as_deref(),
        _ => half.handshake.as_deref(),
    };
    let Some(keys) = keys else {
        return Opened::failed(Undecryptable::NoSecrets);
    };
    let opened = open_with(keys, scratch, head.number_at, largest);
    let other = match (head.kind, side) {
        _ if opened.payload.is_ok() => None,
        // A Retry that the capture does not have, or another version: the client's keys then
        // follow from where it sends to.
        (Kind::Initial, Side::Client) => {
            Some(Keys::initial(head.version, head.destination.as_bytes()).0)
        }
        // The suite is that of the ticket, of which the capture has the length of its hash alone.
        (Kind::ZeroRtt, _) => keys.with_suite(Suite::ChaCha20Poly1305),
        _ => None,
    };
    let Some(other) = other else { return opened };
    scratch.copy_from_slice(&original[..head.len]);
    let again = open_with(&other, scratch, head.number_at, largest);
    if again.payload.is_ok() {
        match head.kind {
            Kind::Initial => connection.set_initial_keys(head.version, head.destination),
            _ => half.zero_rtt = Some(Box::new(other)),
        }
    }
    again
}

fn open_with(keys: &Keys, packet: &mut [u8], number_at: usize, largest: Option<u64>) -> Opened {
    let Some(head) = keys.unprotect(packet, number_at) else {
        return Opened::failed(Undecryptable::Cut);
    };
    let number = packet_number(largest, head.truncated, head.number_len);
    let payload_at = number_at + head.number_len;
    let plain = keys.open(packet, payload_at, number).map(<[u8]>::len);
    Opened::of(plain, payload_at, number, None)
}

fn open_short(
    half: &mut Half,
    largest: Option<u64>,
    number_at: usize,
    packet: &mut [u8],
) -> Opened {
    let Some(one_rtt) = &mut half.one_rtt else {
        return Opened::failed(Undecryptable::NoSecrets);
    };
    let Some(head) = one_rtt.keys.unprotect(packet, number_at) else {
        return Opened::failed(Undecryptable::Cut);
    };
    let number = packet_number(largest, head.truncated, head.number_len);
    let payload_at = number_at + head.number_len;
    let phase = head.first & 4 != 0;
    let plain = one_rtt.open(packet, payload_at, number, phase);
    Opened::of(plain, payload_at, number, Some(phase))
}

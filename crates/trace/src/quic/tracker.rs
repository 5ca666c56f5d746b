//! Datagrams attributed to connections, and their packets opened.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;

use super::connection::{Connection, Side, Space};
use super::frames::{Frame, Frames};
use super::header::{self, Id, Kind, LONGEST_ID, Long};
use super::keys::{Keys, packet_number};
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

/// Connections that are followed; each costs about 2 KB.
const MOST_CONNECTIONS: usize = 1_000_000;
/// Connection IDs of one connection that are remembered.
const MOST_IDS: u32 = 10_000;

/// The connections of one trace.
#[derive(Default)]
pub struct Tracker {
    log: KeyLog,
    connections: Vec<Connection>,
    /// Who gave out an ID, and in which connection.
    ids: HashMap<Id, (usize, Side)>,
    ids_of: HashMap<usize, u32>,
    /// Lengths of the IDs there are, without zero.
    id_lengths: BTreeSet<usize>,
    /// The latest connection between two addresses, client's first.
    by_address: HashMap<(SocketAddr, SocketAddr), usize>,
    scratch: Vec<u8>,
    /// UDP datagrams that belong to no connection.
    pub strangers: u64,
}

impl Tracker {
    /// With the secrets of `log`.
    pub fn new(log: KeyLog) -> Self {
        Self {
            log,
            ..Self::default()
        }
    }

    /// More secrets have come.
    pub fn add_secrets(&mut self, lines: &[u8]) {
        self.log.add(lines);
        for connection in &mut self.connections {
            connection.look_up(&self.log);
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
        last: &mut Option<(usize, Side)>,
    ) -> Option<usize> {
        let head = header::long(rest)?;
        let (number, side) = self.attribute(datagram, &head)?;
        *last = Some((number, side));
        self.register(head.source, number, side);
        let connection = &mut self.connections[number];
        let mut packet = Opened {
            number: None,
            key_phase: None,
            payload: Err(Undecryptable::NoFrames),
        };
        match head.kind {
            Kind::Retry if side == Side::Server => connection.on_retry(head.version, head.source),
            Kind::Retry | Kind::VersionNegotiation | Kind::OneRtt => {}
            Kind::Initial | Kind::ZeroRtt | Kind::Handshake => {
                connection.on_version(side, head.version);
                self.scratch.clear();
                self.scratch.extend_from_slice(&rest[..head.len]);
                packet = open_long(connection, side, &head, &mut self.scratch, rest);
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
        last: Option<(usize, Side)>,
    ) -> Option<usize> {
        let (number, side, id_len) = self.attribute_short(datagram, rest, last)?;
        let connection = &mut self.connections[number];
        self.scratch.clear();
        self.scratch.extend_from_slice(rest);
        let packet = open_short(connection, side, 1 + id_len, &mut self.scratch);
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
            let largest = &mut half.largest[space as usize];
            *largest = (*largest).max(opened.number);
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
                self.connections[number].on_initial_crypto(side, offset, data, &self.log);
            }
            Frame::Crypto { offset, data } if kind == Kind::Handshake && side == Side::Server => {
                self.connections[number].on_server_handshake_crypto(offset, data);
            }
            Frame::NewConnectionId { id, .. } => {
                if let Some(id) = Id::new(id) {
                    self.register(id, number, side);
                }
            }
            _ => {}
        }
    }

    /// `side` of connection `number` is reached by `id`.
    fn register(&mut self, id: Id, number: usize, side: Side) {
        if id.is_empty() || self.ids.contains_key(&id) {
            return;
        }
        let count = self.ids_of.entry(number).or_default();
        if *count < MOST_IDS {
            *count += 1;
            self.ids.insert(id, (number, side));
            self.id_lengths.insert(id.as_bytes().len());
        }
    }

    /// Whose packet it is, and who sent it. An Initial packet of nobody begins a connection.
    fn attribute(&mut self, datagram: &Datagram<'_>, head: &Long<'_>) -> Option<(usize, Side)> {
        if let Some(&(number, receiver)) = self.ids.get(&head.destination) {
            return Some((number, receiver.peer()));
        }
        let known = self.by_addresses(datagram);
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
        let ends = (datagram.from, datagram.to);
        self.connections.push(Connection::new(
            u32::try_from(number).ok()?,
            head.version,
            head.destination,
            ends,
        ));
        self.by_address.insert(ends, number);
        self.register(head.destination, number, Side::Server);
        Some((number, Side::Client))
    }

    /// Connection, sender, and length of the ID that the packet has.
    fn attribute_short(
        &self,
        datagram: &Datagram<'_>,
        rest: &[u8],
        last: Option<(usize, Side)>,
    ) -> Option<(usize, Side, usize)> {
        for &len in self.id_lengths.iter().rev() {
            let id = rest.get(1..1 + len).and_then(Id::new);
            if let Some(&(number, receiver)) = id.and_then(|id| self.ids.get(&id)) {
                return Some((number, receiver.peer(), len));
            }
        }
        debug_assert!(self.id_lengths.iter().all(|len| *len <= LONGEST_ID));
        let (number, side) = last.or_else(|| self.by_addresses(datagram))?;
        Some((number, side, 0))
    }

    fn by_addresses(&self, datagram: &Datagram<'_>) -> Option<(usize, Side)> {
        let (from, to) = (datagram.from, datagram.to);
        if let Some(&number) = self.by_address.get(&(from, to)) {
            return Some((number, Side::Client));
        }
        Some((*self.by_address.get(&(to, from))?, Side::Server))
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
}

fn open_long(
    connection: &mut Connection,
    side: Side,
    head: &Long<'_>,
    scratch: &mut [u8],
    original: &[u8],
) -> Opened {
    let space = Space::of(head.kind).expect("it has a number");
    let half = connection.half(side);
    let largest = half.largest[space as usize];
    let keys = match head.kind {
        Kind::Initial => Some(&half.initial),
        Kind::ZeroRtt => half.zero_rtt.as_ref(),
        _ => half.handshake.as_ref(),
    };
    let Some(keys) = keys else {
        return Opened::failed(Undecryptable::NoSecrets);
    };
    let opened = open_with(keys, scratch, head.number_at, largest);
    if opened.payload.is_ok() || head.kind != Kind::Initial {
        return opened;
    }
    // A Retry that the capture does not have, or another version: the client's keys then
    // follow from where it sends to.
    let (from_client, _) = Keys::initial(head.version, head.destination.as_bytes());
    scratch.copy_from_slice(&original[..head.len]);
    let again = match side {
        Side::Client => open_with(&from_client, scratch, head.number_at, largest),
        Side::Server => return opened,
    };
    if again.payload.is_ok() {
        connection.set_initial_keys(head.version, head.destination);
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
    Opened {
        number: plain.map(|_| number),
        key_phase: None,
        payload: plain
            .map(|len| payload_at..payload_at + len)
            .ok_or(Undecryptable::Failed),
    }
}

fn open_short(
    connection: &mut Connection,
    side: Side,
    number_at: usize,
    packet: &mut [u8],
) -> Opened {
    let half = connection.half(side);
    let largest = half.largest[Space::Application as usize];
    let Some(one_rtt) = &mut half.one_rtt else {
        return Opened::failed(Undecryptable::NoSecrets);
    };
    let Some(head) = one_rtt.keys.unprotect(packet, number_at) else {
        return Opened::failed(Undecryptable::Cut);
    };
    let number = packet_number(largest, head.truncated, head.number_len);
    let payload_at = number_at + head.number_len;
    let phase = head.first & 4 != 0;
    let plain = if phase == one_rtt.phase {
        one_rtt
            .keys
            .open(packet, payload_at, number)
            .map(<[u8]>::len)
    } else if largest.is_some_and(|largest| number < largest)
        && let Some(previous) = &one_rtt.previous
    {
        previous.open(packet, payload_at, number).map(<[u8]>::len)
    } else {
        let plain = one_rtt
            .next
            .open(packet, payload_at, number)
            .map(<[u8]>::len);
        if plain.is_some() {
            one_rtt.update();
        }
        plain
    };
    Opened {
        number: plain.map(|_| number),
        key_phase: Some(phase),
        payload: plain
            .map(|len| payload_at..payload_at + len)
            .ok_or(Undecryptable::Failed),
    }
}

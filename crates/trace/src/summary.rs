//! What the connections of a trace did.
//!
//! A direction is summed up where it was seen first: of a capture that has a packet at
//! several points of its way, only the first counts.

mod patterns;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::Serialize;

pub use self::patterns::Pattern;
use self::patterns::patterns;
use crate::quic::frames::Ack;
use crate::quic::tls::TransportParameters;
use crate::quic::{Connection, Frame, Side};
use crate::ranges::Ranges;

/// One connection. Times are seconds since its first packet.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ConnectionSummary {
    /// Its number among those of its protocol.
    pub connection: u32,
    /// `quic` or `tcp`.
    pub protocol: &'static str,
    /// QUIC's version, hexadecimal.
    pub version: Option<String>,
    /// The application protocol (ALPN) that the server chose.
    pub application_protocol: Option<String>,
    /// Where the client was first.
    pub client: SocketAddr,
    /// Where the server was first.
    pub server: SocketAddr,
    /// Nanoseconds since 1970 of its first packet.
    pub begun_ns: u64,
    /// From first to last packet.
    pub duration_s: f64,
    /// From the client's first packet until it sends with 1-RTT keys (of TCP: its first ACK).
    pub handshake_s: Option<f64>,
    /// Until the server's HANDSHAKE_DONE.
    pub confirmed_s: Option<f64>,
    /// Until the server's first byte of a stream that the client opened for both directions.
    pub first_byte_s: Option<f64>,
    /// Until the server's last new byte of such a stream.
    pub last_byte_s: Option<f64>,
    /// Goodput of the server's stream bytes, bit/s.
    pub goodput: Goodput,
    /// Whether the server answered with a Retry.
    pub retried: bool,
    /// Changes of the client's address.
    pub migrations: u32,
    /// Packets whose content is not known, by reason.
    pub undecrypted: BTreeMap<&'static str, u64>,
    /// Frames that are unknown or cut: how many packets had one.
    pub unknown_frames: u64,
    /// How it was closed, if it was.
    pub close: Option<Close>,
    /// What the client sent.
    pub client_sent: DirectionSummary,
    /// What the server sent.
    pub server_sent: DirectionSummary,
}

/// Goodput by the definitions that are in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Goodput {
    /// From the connection's first packet to the last new byte: what a user waits for.
    pub whole_bit_s: Option<f64>,
    /// Between the server's first and last 1-RTT packet, as the QUIC interop runner counts.
    pub server_packets_bit_s: Option<f64>,
    /// From the client's first stream byte to the last new byte of the answer.
    pub request_bit_s: Option<f64>,
}

/// A CONNECTION_CLOSE, or TCP's RST.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Close {
    /// Who closed.
    pub by: &'static str,
    /// Whether the application did, not the transport.
    pub application: bool,
    /// With which code.
    pub code: u64,
    /// In words.
    pub reason: String,
}

/// What one side sent.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct DirectionSummary {
    /// The transport parameters that it announced, windows among them.
    pub transport_parameters: Option<TransportParameters>,
    /// QUIC packets or TCP segments.
    pub packets: u64,
    /// Bytes of UDP payload, or of TCP segments.
    pub bytes: u64,
    /// Bytes of streams, each counted once.
    pub stream_bytes: u64,
    /// Bytes of streams that had been sent before.
    pub repeated_bytes: u64,
    /// Of these, those whose first packet was acknowledged after they had been repeated.
    pub spurious_bytes: u64,
    /// New bytes that came after later ones of the same stream.
    pub late_bytes: u64,
    /// Packets with a number below one that was seen before.
    pub reordered_packets: u64,
    /// Packets with the CE mark.
    pub ce_marked: u64,
    /// ACK frames, or segments that only acknowledge.
    pub acks: u64,
    /// Packets of the other side for one ACK frame.
    pub packets_per_ack: Option<f64>,
    /// DATA_BLOCKED and STREAM_DATA_BLOCKED frames: flow control held it back.
    pub blocked: u64,
    /// From a packet to the first acknowledgement that has it as the largest, milliseconds:
    /// the round trip from where both were seen to the receiver and back.
    pub rtt_ms: Option<Spread>,
    /// The longest time without a packet between its first and last stream bytes.
    pub longest_pause: Option<Pause>,
    /// Seconds that the last 5 % of its stream bytes took.
    pub last_five_percent_s: Option<f64>,
    /// Changes of 1-RTT keys.
    pub key_updates: u64,
    /// Seconds (of the connection) in which bytes were repeated: second, bytes.
    pub repeated_at: Vec<(u32, u64)>,
    /// New stream bytes in each second of the connection.
    pub bytes_per_second: Vec<u64>,
    /// Shapes of the transfer that have a name.
    pub patterns: Vec<Pattern>,
}

/// Least, median, 95th percentile and largest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// The least.
    pub least: f64,
    /// Half are below.
    pub median: f64,
    /// 95 % are below.
    pub p95: f64,
    /// The largest.
    pub largest: f64,
    /// How many there are.
    pub count: u64,
}

/// A time without packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Pause {
    /// When it began.
    pub at_s: f64,
    /// How long it was.
    pub for_s: f64,
}

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

/// Sent packets that wait for their acknowledgement; older ones are forgotten.
const MOST_UNACKNOWLEDGED: usize = 1 << 17;
/// The kind of a stream in the last two bits of its ID (RFC 9000, section 2.1); TCP's one
/// stream is 0.
const CLIENT_BIDIRECTIONAL: u64 = 0;
/// Seconds of a connection for which rates are kept.
const MOST_SECONDS: u64 = 1 << 17;

#[derive(Debug)]
struct State {
    client: SocketAddr,
    server: SocketAddr,
    version: Option<u32>,
    protocol: Option<String>,
    begun: u64,
    ended: u64,
    handshake: Option<u64>,
    confirmed: Option<u64>,
    retried: bool,
    migrations: u32,
    latest_client: SocketAddr,
    undecrypted: BTreeMap<&'static str, u64>,
    unknown_frames: u64,
    close: Option<Close>,
    directions: [Direction; 2],
}

#[derive(Debug, Default)]
struct Direction {
    /// Where it was seen first.
    interface: Option<u32>,
    summary: DirectionSummary,
    largest: Option<u64>,
    first_one_rtt: Option<u64>,
    last_one_rtt: Option<u64>,
    first_byte: Option<u64>,
    last_byte: Option<u64>,
    latest_packet: Option<u64>,
    key_phase: bool,
    rtt_us: Vec<u32>,
    /// Packets of the application's space, and the pieces of streams in them.
    unacknowledged: BTreeMap<u64, Unacknowledged>,
    /// Which packet had the bytes of a stream that begin here.
    carriers: HashMap<(u64, u64), u64>,
    /// Every time at which new bytes were sent, thinned out: total bytes and moment.
    progress: Progress,
}

#[derive(Debug)]
struct Unacknowledged {
    sent: u64,
    pieces: Vec<Piece>,
    repeated: u64,
}

/// Totals over time, as many as are needed to find when 95 % had been sent.
#[derive(Debug, Default)]
struct Progress {
    points: Vec<(u64, u64)>,
    every: u64,
}

impl Progress {
    const MOST: usize = 4096;

    fn add(&mut self, at: u64, total: u64) {
        if self
            .points
            .last()
            .is_some_and(|(_, last)| total < last + self.every)
        {
            return;
        }
        self.points.push((at, total));
        if self.points.len() == Self::MOST {
            self.every = (total / (Self::MOST as u64 / 2)).max(1);
            let mut place = 0;
            self.points.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
    }

    /// When `total` had been sent.
    fn reached(&self, total: u64) -> Option<u64> {
        let at = self.points.partition_point(|(_, sent)| *sent < total);
        self.points.get(at).map(|(at, _)| *at)
    }
}

/// The connections of a trace while it is read.
#[derive(Debug, Default)]
pub struct Summary {
    states: BTreeMap<Key, State>,
}

impl Summary {
    /// A packet of `key` has been seen; whether it counts here. `ends`: client and server.
    pub fn packet(&mut self, key: Key, ends: (SocketAddr, SocketAddr), seen: &Seen) -> bool {
        let state = self.states.entry(key).or_insert_with(|| State {
            client: ends.0,
            server: ends.1,
            version: None,
            protocol: None,
            begun: seen.time_ns,
            ended: seen.time_ns,
            handshake: None,
            confirmed: None,
            retried: false,
            migrations: 0,
            latest_client: ends.0,
            undecrypted: BTreeMap::new(),
            unknown_frames: 0,
            close: None,
            directions: [Direction::default(), Direction::default()],
        });
        let direction = &mut state.directions[seen.side as usize];
        if *direction.interface.get_or_insert(seen.interface) != seen.interface {
            return false;
        }
        state.ended = state.ended.max(seen.time_ns);
        if seen.side == Side::Client {
            if seen.one_rtt {
                state.handshake.get_or_insert(seen.time_ns);
            }
            if seen.from != state.latest_client {
                state.latest_client = seen.from;
                state.migrations += 1;
            }
        }
        direction.packet(state.begun, seen);
        true
    }

    /// What the ends of a QUIC connection have agreed on so far.
    pub fn agreed(&mut self, key: Key, connection: &Connection) {
        if let Some(state) = self.states.get_mut(&key) {
            state.version = Some(connection.version);
            state.retried = connection.retried;
            if state.protocol.is_none() {
                state.protocol.clone_from(&connection.protocol);
            }
            for (direction, said) in state.directions.iter_mut().zip(connection.parameters) {
                direction.summary.transport_parameters = said;
            }
        }
    }

    /// The content of a packet is not known.
    pub fn undecrypted(&mut self, key: Key, why: &'static str) {
        if let Some(state) = self.states.get_mut(&key) {
            *state.undecrypted.entry(why).or_default() += 1;
        }
    }

    /// A packet had a frame that could not be read.
    pub fn unknown_frame(&mut self, key: Key) {
        if let Some(state) = self.states.get_mut(&key) {
            state.unknown_frames += 1;
        }
    }

    /// TCP's handshake is complete, or a side has reset it.
    pub fn tcp(&mut self, key: Key, seen: &Seen, established: bool, reset: bool) {
        let Some(state) = self.states.get_mut(&key) else {
            return;
        };
        if established {
            state.handshake.get_or_insert(seen.time_ns);
        }
        if reset {
            state.close.get_or_insert_with(|| Close {
                by: seen.side.name(),
                application: false,
                code: 0,
                reason: "RST".into(),
            });
        }
    }

    /// A frame of a packet that counts.
    pub fn frame(&mut self, key: Key, seen: &Seen, frame: &Frame<'_>) {
        let Some(state) = self.states.get_mut(&key) else {
            return;
        };
        let direction = &mut state.directions[seen.side as usize];
        match frame {
            Frame::Ack(ack) => {
                direction.summary.acks += 1;
                if seen.application {
                    state.directions[seen.side.peer() as usize].acknowledged(seen.time_ns, ack);
                }
            }
            Frame::DataBlocked(_) | Frame::StreamDataBlocked { .. } => {
                direction.summary.blocked += 1;
            }
            Frame::HandshakeDone => {
                state.confirmed.get_or_insert(seen.time_ns);
            }
            Frame::ConnectionClose {
                application,
                code,
                reason,
            } => {
                state.close.get_or_insert_with(|| Close {
                    by: seen.side.name(),
                    application: *application,
                    code: *code,
                    reason: String::from_utf8_lossy(reason).into_owned(),
                });
            }
            _ => {}
        }
    }

    /// The pieces of streams in a packet that counts.
    pub fn pieces(&mut self, key: Key, seen: &Seen, pieces: &[Piece]) {
        let Some(state) = self.states.get_mut(&key) else {
            return;
        };
        let begun = state.begun;
        state.directions[seen.side as usize].pieces(begun, seen, pieces);
    }

    /// An acknowledgement of TCP: all before `ack` has arrived.
    pub fn tcp_ack(&mut self, key: Key, seen: &Seen, ack: u64, data: bool) {
        let Some(state) = self.states.get_mut(&key) else {
            return;
        };
        if !data {
            state.directions[seen.side as usize].summary.acks += 1;
        }
        state.directions[seen.side.peer() as usize].acknowledged_before(seen.time_ns, ack);
    }

    /// What came of all connections.
    pub fn finish(self) -> Vec<ConnectionSummary> {
        self.states
            .into_iter()
            .map(|(key, state)| state.finish(key))
            .collect()
    }
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

impl Direction {
    fn packet(&mut self, begun: u64, seen: &Seen) {
        let summary = &mut self.summary;
        summary.packets += 1;
        summary.bytes += u64::from(seen.bytes);
        summary.ce_marked += u64::from(seen.ecn == 3);
        if seen.one_rtt {
            self.first_one_rtt.get_or_insert(seen.time_ns);
            self.last_one_rtt = Some(seen.time_ns);
        }
        if let Some(phase) = seen.key_phase.filter(|_| seen.number.is_some()) {
            summary.key_updates += u64::from(phase != self.key_phase);
            self.key_phase = phase;
        }
        if let (Some(number), true) = (seen.number, seen.application) {
            summary.reordered_packets += u64::from(self.largest > Some(number));
            self.largest = self.largest.max(Some(number));
        }
        if let (Some(latest), true) = (self.latest_packet, self.first_byte.is_some()) {
            let pause = Pause {
                at_s: seconds(begun, latest),
                for_s: seconds(latest, seen.time_ns),
            };
            if summary
                .longest_pause
                .is_none_or(|longest| pause.for_s > longest.for_s)
            {
                summary.longest_pause = Some(pause);
            }
        }
        self.latest_packet = Some(seen.time_ns);
    }

    fn pieces(&mut self, begun: u64, seen: &Seen, pieces: &[Piece]) {
        let second = seen.time_ns.saturating_sub(begun) / 1_000_000_000;
        for piece in pieces {
            let new = piece.length - piece.repeated;
            self.summary.stream_bytes += new;
            self.summary.repeated_bytes += piece.repeated;
            if new > 0 {
                // Requests and their answers; HTTP/3's control streams are others.
                if piece.stream % 4 == CLIENT_BIDIRECTIONAL {
                    self.first_byte.get_or_insert(seen.time_ns);
                    self.last_byte = Some(seen.time_ns);
                }
                self.summary.late_bytes += if piece.late { new } else { 0 };
                self.progress.add(seen.time_ns, self.summary.stream_bytes);
                if second < MOST_SECONDS {
                    let second = usize::try_from(second).expect("few");
                    let rates = &mut self.summary.bytes_per_second;
                    if rates.len() <= second {
                        rates.resize(second + 1, 0);
                    }
                    rates[second] += new;
                }
            }
            if piece.repeated > 0 {
                let second = u32::try_from(second).unwrap_or(u32::MAX);
                match self.summary.repeated_at.last_mut() {
                    Some((last, bytes)) if *last == second => *bytes += piece.repeated,
                    _ => self.summary.repeated_at.push((second, piece.repeated)),
                }
                let carrier = self.carriers.get(&(piece.stream, piece.offset)).copied();
                if let Some(packet) = carrier.and_then(|n| self.unacknowledged.get_mut(&n)) {
                    packet.repeated += piece.repeated;
                }
            }
        }
        let Some(number) = seen.number else { return };
        let packet = Unacknowledged {
            sent: seen.time_ns,
            pieces: pieces.to_vec(),
            repeated: 0,
        };
        for piece in pieces {
            self.carriers.insert((piece.stream, piece.offset), number);
        }
        self.unacknowledged.insert(number, packet);
        if self.unacknowledged.len() > MOST_UNACKNOWLEDGED
            && let Some((number, packet)) = self.unacknowledged.pop_first()
        {
            self.forget(number, &packet);
        }
    }

    fn forget(&mut self, number: u64, packet: &Unacknowledged) {
        for piece in &packet.pieces {
            let place = (piece.stream, piece.offset);
            if self.carriers.get(&place) == Some(&number) {
                self.carriers.remove(&place);
            }
        }
    }

    fn arrived(&mut self, number: u64, packet: &Unacknowledged) {
        self.summary.spurious_bytes += packet.repeated;
        self.forget(number, packet);
    }

    fn acknowledged(&mut self, now: u64, ack: &Ack<'_>) {
        if let Some(packet) = self.unacknowledged.get(&ack.largest) {
            let micros = now.saturating_sub(packet.sent) / 1000;
            self.rtt_us.push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
        for (first, last) in ack.acknowledged() {
            while let Some((&number, _)) = self.unacknowledged.range(first..=last).next() {
                let packet = self.unacknowledged.remove(&number).expect("it was found");
                self.arrived(number, &packet);
            }
            if self
                .unacknowledged
                .first_key_value()
                .is_none_or(|(oldest, _)| *oldest > last)
            {
                break;
            }
        }
    }

    fn acknowledged_before(&mut self, now: u64, ack: u64) {
        let mut latest = None;
        while let Some(entry) = self.unacknowledged.first_entry() {
            let (number, packet) = (*entry.key(), entry.get());
            let end = packet
                .pieces
                .iter()
                .map(|piece| piece.offset + piece.length)
                .max();
            if end.unwrap_or(number) > ack {
                break;
            }
            let packet = entry.remove();
            // Karn's rule: what was repeated says nothing about the round trip.
            let repeated = packet.repeated > 0 || packet.pieces.iter().any(|p| p.repeated > 0);
            latest = (!repeated).then_some(packet.sent);
            self.forget(number, &packet);
        }
        if let Some(sent) = latest {
            let micros = now.saturating_sub(sent) / 1000;
            self.rtt_us.push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
    }

    fn finish(
        mut self,
        begun: u64,
        peer_packets: u64,
    ) -> (DirectionSummary, Option<u64>, Option<u64>) {
        let summary = &mut self.summary;
        summary.rtt_ms = spread(&mut self.rtt_us);
        if summary.acks > 0 {
            summary.packets_per_ack = Some(peer_packets as f64 / summary.acks as f64);
        }
        let ninety_five = summary.stream_bytes - summary.stream_bytes / 20;
        if let (Some(from), Some(last)) = (self.progress.reached(ninety_five), self.last_byte) {
            summary.last_five_percent_s = Some(seconds(from, last));
        }
        if let (Some(first), Some(last)) = (self.first_byte, self.last_byte) {
            summary.patterns = patterns(summary, seconds(begun, first), seconds(begun, last));
        }
        (self.summary, self.first_byte, self.last_byte)
    }
}

fn spread(micros: &mut [u32]) -> Option<Spread> {
    micros.sort_unstable();
    let at = |percent: usize| {
        let place = ((micros.len() - 1) * percent + 50) / 100;
        f64::from(micros[place]) / 1000.0
    };
    (!micros.is_empty()).then(|| Spread {
        least: at(0),
        median: at(50),
        p95: at(95),
        largest: at(100),
        count: micros.len() as u64,
    })
}

impl State {
    fn finish(self, key: Key) -> ConnectionSummary {
        let begun = self.begun;
        let since = |at: Option<u64>| at.map(|at| seconds(begun, at));
        let [client, server] = self.directions;
        let (from_client, from_server) = (client.summary.packets, server.summary.packets);
        let server_packets = server.first_one_rtt.zip(server.last_one_rtt);
        let (server_sent, first_byte, last_byte) = server.finish(begun, from_client);
        let (client_sent, request, _) = client.finish(begun, from_server);
        let bits = server_sent.stream_bytes as f64 * 8.0;
        let rate = |from: Option<u64>, to: Option<u64>| {
            let time = seconds(from?, to?);
            (time > 0.0 && bits > 0.0).then(|| bits / time)
        };
        ConnectionSummary {
            connection: key.connection,
            protocol: key.protocol,
            version: self.version.map(|version| format!("{version:08x}")),
            application_protocol: self.protocol,
            client: self.client,
            server: self.server,
            begun_ns: begun,
            duration_s: seconds(begun, self.ended),
            handshake_s: since(self.handshake),
            confirmed_s: since(self.confirmed),
            first_byte_s: since(first_byte),
            last_byte_s: since(last_byte),
            goodput: Goodput {
                whole_bit_s: rate(Some(begun), last_byte),
                server_packets_bit_s: server_packets
                    .and_then(|(first, last)| rate(Some(first), Some(last))),
                request_bit_s: rate(request, last_byte),
            },
            retried: self.retried,
            migrations: self.migrations,
            undecrypted: self.undecrypted,
            unknown_frames: self.unknown_frames,
            close: self.close,
            client_sent,
            server_sent,
        }
    }
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

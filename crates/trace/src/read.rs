//! A trace from its files to rows and summaries.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::capture::{CaptureError, Packet as Captured, Reader};
use crate::http3::{self, Http3Frame, StreamKey};
use crate::ip::{self, Body, Link, Transport};
use crate::keylog::KeyLog;
use crate::quic::header::Kind;
use crate::quic::{Datagram, Frame, Packet, Side, Space, Tracker, Visitor};
use crate::rows::{Http3Row, PacketRow, Sink, StreamRow};
use crate::summary::{ConnectionSummary, Coverage, Key, Piece, Seen, Summary};
use crate::tcp;

/// What a trace amounts to.
#[derive(Debug)]
pub struct Trace {
    /// Packets of the capture.
    pub packets: u64,
    /// Its bytes, uncompressed.
    pub bytes: u64,
    /// UDP datagrams that belong to no connection.
    pub strangers: u64,
    /// Packets that are neither UDP nor TCP.
    pub others: u64,
    /// Of these, those below a link type that is not read, by its number.
    pub unknown_links: BTreeMap<u32, u64>,
    /// Each connection.
    pub connections: Vec<ConnectionSummary>,
    /// Why reading ended before the end of the file, if it did. What came before is there.
    pub damage: Option<CaptureError>,
}

/// Why a trace could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError<E: std::error::Error> {
    /// The capture cannot be opened, or is none.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The rows could not be written.
    #[error(transparent)]
    Sink(E),
}

/// Key log lines in the capture itself, wherever they stand in it.
pub fn secrets_of(capture: &Path) -> Result<KeyLog, CaptureError> {
    let mut reader = Reader::open(capture)?;
    let mut log = KeyLog::default();
    if !reader.may_hold_secrets() {
        return Ok(log);
    }
    // Damage is told by whoever reads the packets.
    while let Ok(Some(_)) = reader.next() {
        log.add(&reader.take_secrets());
    }
    log.add(&reader.take_secrets());
    Ok(log)
}

/// Reads `capture` with the secrets of `log` and gives each row to `sink`.
///
/// A damaged or truncated capture is read up to the damage.
pub fn read<S: Sink>(
    capture: &Path,
    log: &KeyLog,
    sink: &mut S,
) -> Result<Trace, ReadError<S::Error>>
where
    S::Error: std::error::Error,
{
    let mut reader = Reader::open(capture)?;
    let mut quic = Tracker::new(log);
    let mut tcp = tcp::Tracker::default();
    let mut rows = Rows::new(sink);
    let (mut packets, mut others) = (0, 0);
    let mut unknown_links = BTreeMap::new();
    let damage = loop {
        let packet = match reader.next() {
            Ok(Some(packet)) => packet,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        packets += 1;
        match ip::decode(packet.link_type, packet.data) {
            Some(transport) => match transport.body {
                Body::Udp(payload) => {
                    let datagram = Datagram {
                        frame: packets,
                        time_ns: packet.time_ns,
                        interface: packet.interface,
                        from: transport.from,
                        to: transport.to,
                        ecn: transport.ecn,
                        payload,
                        whole: packet.data.len() >= packet.original_len as usize,
                    };
                    quic.datagram(&datagram, &mut rows);
                }
                Body::Tcp(bytes, len) => {
                    let ends = (transport.from, transport.to);
                    match tcp.segment(ends, bytes, len) {
                        Some(segment) => rows.segment(packets, &packet, &transport, &segment, len),
                        None => others += 1,
                    }
                }
            },
            None => {
                others += 1;
                if Link::of(packet.link_type).is_none() {
                    *unknown_links.entry(packet.link_type.0).or_default() += 1;
                }
            }
        }
        if let Some(error) = rows.failed.take() {
            return Err(ReadError::Sink(error));
        }
    };
    Ok(Trace {
        packets,
        bytes: reader.bytes(),
        strangers: quic.strangers,
        others,
        unknown_links,
        connections: rows.finish(),
        damage,
    })
}

/// Turns packets into rows.
pub(crate) struct Rows<'s, S: Sink> {
    sink: &'s mut S,
    /// The first row that was not taken.
    pub failed: Option<S::Error>,
    summary: Summary,
    coverage: Coverage,
    pieces: Vec<Piece>,
    http3: http3::Streams,
    http3_frames: Vec<Http3Frame>,
    /// Names of the frames of a packet, by which there are.
    names: HashMap<u32, String>,
}

impl<'s, S: Sink> Rows<'s, S> {
    pub fn new(sink: &'s mut S) -> Self {
        Self {
            sink,
            failed: None,
            summary: Summary::default(),
            coverage: Coverage::default(),
            pieces: Vec::new(),
            http3: http3::Streams::default(),
            http3_frames: Vec::new(),
            names: HashMap::new(),
        }
    }

    /// What came of all connections.
    pub fn finish(self) -> Vec<ConnectionSummary> {
        self.summary.finish()
    }

    fn keep(&mut self, result: Result<(), S::Error>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    /// An HTTP/3 frame.
    pub(crate) fn http3_row(&mut self, row: &Http3Row<'_>) {
        let result = self.sink.http3(row);
        self.keep(result);
    }

    /// HTTP/3 frames that are whole with a piece of a stream.
    fn http3(&mut self, datagram: &Datagram<'_>, packet: &Packet<'_>, piece: &Piece, data: &[u8]) {
        let key = StreamKey {
            connection: packet.connection.number,
            side: packet.side,
            interface: datagram.interface,
            stream: piece.stream,
        };
        let mut found = std::mem::take(&mut self.http3_frames);
        if piece.repeated < piece.length {
            self.http3.add(key, piece.offset, data, &mut found);
        }
        if piece.whole {
            self.http3.forget(key);
        }
        for frame in &found {
            self.http3_row(&Http3Row {
                frame: datagram.frame,
                time_ns: datagram.time_ns,
                interface: datagram.interface,
                connection: key.connection,
                from_client: key.side == Side::Client,
                stream: piece.stream,
                http3: frame,
            });
        }
        found.clear();
        self.http3_frames = found;
    }

    fn segment(
        &mut self,
        frame: u64,
        captured: &Captured<'_>,
        transport: &Transport<'_>,
        segment: &tcp::Segment,
        len: u32,
    ) {
        let key = Key {
            protocol: "tcp",
            connection: segment.connection,
        };
        let seen = Seen {
            time_ns: captured.time_ns,
            interface: captured.interface,
            from: transport.from,
            to: transport.to,
            side: segment.side,
            number: (segment.length > 0).then_some(segment.offset),
            application: segment.length > 0,
            one_rtt: segment.length > 0,
            bytes: len,
            ecn: transport.ecn,
            key_phase: None,
        };
        let ends = match segment.side {
            Side::Client => (transport.from, transport.to),
            Side::Server => (transport.to, transport.from),
        };
        let counts = self.summary.packet(key, ends, &seen);
        let place = (key, segment.side, captured.interface);
        let piece = (segment.length > 0)
            .then(|| (self.coverage).add(place, 0, (segment.offset, segment.length, false)));
        if counts {
            let established = segment.side == Side::Client && segment.flags.contains('A');
            self.summary
                .tcp(key, &seen, established, segment.flags.contains('R'));
            if let Some(ack) = segment.ack {
                self.summary.tcp_ack(key, &seen, ack, segment.length > 0);
            }
            self.summary.pieces(key, &seen, piece.as_slice());
        }
        let row = PacketRow {
            frame,
            time_ns: captured.time_ns,
            interface: captured.interface,
            connection: segment.connection,
            protocol: "tcp",
            from_client: segment.side == Side::Client,
            kind: &segment.flags,
            number: Some(segment.offset),
            size: len,
            datagram: 0,
            place: 0,
            ecn: transport.ecn,
            key_phase: None,
            frames: "",
            ack: segment.ack,
            ack_delay_us: None,
            stream_bytes: u32::try_from(segment.length).unwrap_or(u32::MAX),
            error: None,
        };
        let result = self.sink.packet(&row);
        self.keep(result);
        if let Some(piece) = piece {
            let result = self.sink.stream(&StreamRow {
                frame,
                time_ns: captured.time_ns,
                interface: captured.interface,
                connection: segment.connection,
                protocol: "tcp",
                from_client: segment.side == Side::Client,
                number: segment.offset,
                stream: 0,
                offset: piece.offset,
                length: piece.length,
                fin: segment.fin,
                repeated: piece.repeated,
            });
            self.keep(result);
        }
    }
}

impl<S: Sink> Visitor for Rows<'_, S> {
    fn packet(&mut self, datagram: &Datagram<'_>, packet: &Packet<'_>) {
        let connection = packet.connection;
        let key = Key {
            protocol: "quic",
            connection: connection.number,
        };
        let seen = Seen {
            time_ns: datagram.time_ns,
            interface: datagram.interface,
            from: datagram.from,
            to: datagram.to,
            side: packet.side,
            number: packet.number,
            application: matches!(packet.kind, Kind::OneRtt | Kind::ZeroRtt),
            one_rtt: packet.kind == Kind::OneRtt,
            bytes: u32::try_from(packet.size).unwrap_or(u32::MAX),
            ecn: datagram.ecn,
            key_phase: packet.key_phase,
        };
        let ends = (connection.client, connection.server);
        let counts = self.summary.packet(key, ends, &seen);
        self.summary.agreed(key, connection);
        let mut row = PacketRow {
            frame: datagram.frame,
            time_ns: datagram.time_ns,
            interface: datagram.interface,
            connection: connection.number,
            protocol: "quic",
            from_client: packet.side == Side::Client,
            kind: packet.kind.name(),
            number: packet.number,
            size: seen.bytes,
            datagram: u32::try_from(datagram.payload.len()).unwrap_or(u32::MAX),
            place: u32::try_from(packet.place).unwrap_or(u32::MAX),
            ecn: datagram.ecn,
            key_phase: packet.key_phase,
            frames: "",
            ack: None,
            ack_delay_us: None,
            stream_bytes: 0,
            error: None,
        };
        self.pieces.clear();
        let mut there = 0u32;
        let frames = match packet.frames {
            Ok(frames) => frames,
            Err(why) => {
                row.error =
                    Some(why.why()).filter(|_| packet.number.is_some() || has_number(packet.kind));
                if counts && row.error.is_some() {
                    self.summary.undecrypted(key, why.why());
                }
                let result = self.sink.packet(&row);
                return self.keep(result);
            }
        };
        let space = Space::of(packet.kind).unwrap_or(Space::Initial);
        let mut elicits = false;
        for frame in frames {
            let Ok(frame) = frame else {
                self.summary.unknown_frame(key);
                row.error = Some("a frame that is unknown or cut");
                break;
            };
            there |= 1 << bit(&frame);
            elicits |= frame.elicits_ack();
            match frame {
                Frame::Ack(ack) => {
                    row.ack = Some(ack.largest);
                    row.ack_delay_us = Some(connection.ack_delay_us(packet.side, space, ack.delay));
                }
                Frame::Stream {
                    stream,
                    offset,
                    data,
                    fin,
                } => {
                    let length = data.len() as u64;
                    let place = (key, packet.side, datagram.interface);
                    let piece = self.coverage.add(place, stream, (offset, length, fin));
                    row.stream_bytes += u32::try_from(length).unwrap_or(u32::MAX);
                    self.pieces.push(piece);
                    let result = self.sink.stream(&StreamRow {
                        frame: datagram.frame,
                        time_ns: datagram.time_ns,
                        interface: datagram.interface,
                        connection: connection.number,
                        protocol: "quic",
                        from_client: packet.side == Side::Client,
                        number: packet.number.unwrap_or(0),
                        stream,
                        offset,
                        length,
                        fin,
                        repeated: piece.repeated,
                    });
                    self.keep(result);
                    if connection.spoken() == Some(http3::PROTOCOL) {
                        self.http3(datagram, packet, &piece, data);
                    }
                }
                _ => {}
            }
            if counts {
                self.summary.frame(key, &seen, &frame);
            }
        }
        if counts && seen.application && elicits {
            self.summary.pieces(key, &seen, &self.pieces);
        }
        let names = self.names.entry(there).or_insert_with(|| names(there));
        row.frames = names;
        let result = self.sink.packet(&row);
        self.keep(result);
    }
}

const fn has_number(kind: Kind) -> bool {
    !matches!(kind, Kind::Retry | Kind::VersionNegotiation)
}

/// Every frame's name, in the order of their bits.
const NAMES: [&str; 24] = [
    "padding",
    "ping",
    "ack",
    "reset_stream",
    "stop_sending",
    "crypto",
    "new_token",
    "stream",
    "max_data",
    "max_stream_data",
    "max_streams",
    "data_blocked",
    "stream_data_blocked",
    "streams_blocked",
    "new_connection_id",
    "retire_connection_id",
    "path_challenge",
    "path_response",
    "connection_close",
    "handshake_done",
    "datagram",
    "ack_frequency",
    "immediate_ack",
    "time_stamp",
];

fn bit(frame: &Frame<'_>) -> usize {
    let name = frame.name();
    NAMES.iter().position(|known| *known == name).unwrap_or(31)
}

fn names(there: u32) -> String {
    let present = NAMES
        .iter()
        .enumerate()
        .filter(|(bit, _)| there >> bit & 1 != 0);
    let names: Vec<_> = present.map(|(_, name)| *name).collect();
    names.join(",")
}

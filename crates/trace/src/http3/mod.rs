//! HTTP/3 frames (RFC 9114, section 7) of the streams of a trace.
//!
//! A stream is read as far as it is there without a gap. The content of DATA frames is passed
//! over, so that what is held is the beginnings of frames, what came too early, and QPACK's dynamic
//! tables.

mod huffman;
mod qpack;
mod static_table;

pub use qpack::MOST as MOST_OF_FIELDS;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use self::qpack::Table;
use crate::quic::Side;
use crate::quic::bytes::Input;

/// The application protocol (ALPN) whose streams are read.
pub const PROTOCOL: &str = "h3";
/// Bytes of a frame, other than DATA, that is read.
const MOST_OF_A_FRAME: usize = 64 << 10;
/// Bytes that are held: of all streams together what is not whole or came too early, and all dynamic tables.
const MOST_HELD: usize = 16 << 20;
/// What a piece that came too early takes beside its bytes.
const PIECE: usize = 64;
/// Streams that are followed at one time.
const MOST_STREAMS: usize = 1 << 17;

/// A stream of a connection, as one side sends it past one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// Number of the QUIC connection.
    pub connection: u32,
    /// Who sends.
    pub side: Side,
    /// Where it was seen.
    pub interface: u32,
    /// Stream ID.
    pub stream: u64,
}

/// A frame, or the type of a unidirectional stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http3Frame {
    /// Where it begins in its stream; None where a qlog leaves that out.
    pub offset: Option<u64>,
    /// Its type: `data`, `headers`, `settings`, ...; of a unidirectional stream `stream control`,
    /// `stream push`, `stream qpack encoder`, `stream qpack decoder`; a number for what is unknown.
    pub kind: Cow<'static, str>,
    /// Bytes of its content; None where a qlog leaves that out.
    pub length: Option<u64>,
    /// Its field lines or settings, one a line; identifiers; None where it has none, or where they
    /// cannot be read.
    pub fields: Option<String>,
}

/// The streams of a trace while it is read.
#[derive(Debug, Default)]
pub struct Streams {
    streams: HashMap<StreamKey, Stream>,
    /// The dynamic tables of client and server, by connection and interface.
    tables: HashMap<(u32, u32), [Table; 2]>,
    held: usize,
}

/// The dynamic tables as the sender of a stream has them.
struct Tables<'t> {
    /// What it has inserted, for the sections that it sends.
    own: &'t mut Table,
    /// What its peer has.
    peers: &'t mut Table,
}

impl Streams {
    /// `data` has been seen at `offset`; the frames that are whole now go to `found`.
    pub fn add(&mut self, key: StreamKey, offset: u64, data: &[u8], found: &mut Vec<Http3Frame>) {
        if !self.streams.contains_key(&key) && self.streams.len() >= MOST_STREAMS {
            return;
        }
        let stream = self.streams.entry(key).or_insert_with(|| Stream {
            is: if key.stream & 2 == 0 {
                Is::Frames
            } else {
                Is::Untyped
            },
            ..Stream::default()
        });
        let [client, server] = (self.tables)
            .entry((key.connection, key.interface))
            .or_default();
        let (own, peers) = match key.side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        let before = stream.held() + own.size();
        let mut tables = Tables { own, peers };
        stream.add(offset, data, found, &mut tables);
        self.held = self.held + stream.held() + tables.own.size() - before;
        if self.held > MOST_HELD {
            self.held -= stream.held() + tables.own.size();
            stream.give_up();
            *tables.own = Table::default();
        }
    }

    /// A stream has been seen to its end: nothing of it comes any more.
    pub fn forget(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.remove(&key) {
            self.held -= stream.held();
        }
    }
}

/// What a stream has.
#[derive(Debug, Default, PartialEq, Eq)]
enum Is {
    /// It is unidirectional, and its type has not come.
    #[default]
    Untyped,
    /// Frames.
    Frames,
    /// Instructions of QPACK's encoder.
    Instructions,
    /// Something else, or too much of it came too early: it is not read.
    Unread,
}

#[derive(Debug, Default)]
struct Stream {
    is: Is,
    /// Where the buffer begins.
    position: u64,
    /// What is there without a gap and not read.
    buffer: Vec<u8>,
    /// What came too early.
    early: BTreeMap<u64, Vec<u8>>,
    early_bytes: usize,
}

impl Stream {
    fn add(
        &mut self,
        offset: u64,
        data: &[u8],
        found: &mut Vec<Http3Frame>,
        tables: &mut Tables<'_>,
    ) {
        if self.is == Is::Unread {
            return;
        }
        let next = self.position + self.buffer.len() as u64;
        let Some(new) = after(offset, data, next) else {
            return;
        };
        if offset > next {
            self.hold(offset, data);
            return;
        }
        self.buffer.extend_from_slice(new);
        loop {
            while self.read(found, tables).is_some() {}
            if !self.take_early() {
                break;
            }
        }
    }

    /// Bytes that it takes.
    fn held(&self) -> usize {
        self.early_bytes + self.early.len() * PIECE + self.buffer.len()
    }

    fn hold(&mut self, offset: u64, data: &[u8]) {
        let place = self.early.entry(offset).or_default();
        if place.len() < data.len() {
            self.early_bytes += data.len() - place.len();
            *place = data.to_vec();
        }
    }

    /// Moves what was held to the buffer, as far as it follows; whether there was some.
    fn take_early(&mut self) -> bool {
        let mut took = false;
        while let Some(first) = self.early.first_entry() {
            let next = self.position + self.buffer.len() as u64;
            if *first.key() > next {
                break;
            }
            let (offset, data) = first.remove_entry();
            self.early_bytes -= data.len();
            if let Some(new) = after(offset, &data, next) {
                self.buffer.extend_from_slice(new);
                took = true;
            }
        }
        took
    }

    fn give_up(&mut self) {
        *self = Self {
            is: Is::Unread,
            ..Self::default()
        };
    }

    /// Reads one thing off the buffer; None when it is not all there.
    fn read(&mut self, found: &mut Vec<Http3Frame>, tables: &mut Tables<'_>) -> Option<()> {
        match self.is {
            Is::Untyped => self.read_type(found),
            Is::Frames => self.read_frame(found, tables),
            Is::Instructions => self.read_instruction(tables.own),
            Is::Unread => None,
        }
    }

    fn read_type(&mut self, found: &mut Vec<Http3Frame>) -> Option<()> {
        let mut input = Input(&self.buffer);
        let number = input.varint()?;
        let (kind, fields) = match number {
            0 => ("stream control".into(), None),
            1 => ("stream push".into(), Some(input.varint()?.to_string())),
            2 => ("stream qpack encoder".into(), None),
            3 => ("stream qpack decoder".into(), None),
            _ => (Cow::from(format!("stream {}", unknown(number))), None),
        };
        let used = (self.buffer.len() - input.0.len()) as u64;
        found.push(Http3Frame {
            offset: Some(self.position),
            kind,
            length: Some(0),
            fields,
        });
        self.pass(used);
        match number {
            0 | 1 => self.is = Is::Frames,
            2 => self.is = Is::Instructions,
            _ => self.give_up(),
        }
        Some(())
    }

    fn read_instruction(&mut self, table: &mut Table) -> Option<()> {
        let mut input = Input(&self.buffer);
        match table.instruction(&mut input) {
            Some(Ok(())) => {
                let used = self.buffer.len() - input.0.len();
                self.pass(used as u64);
            }
            None if self.buffer.len() <= MOST_OF_A_FRAME => return None,
            // The entries that would follow are unknown, and so is what points to them.
            None | Some(Err(_)) => {
                *table = Table::default();
                self.give_up();
            }
        }
        Some(())
    }

    fn read_frame(&mut self, found: &mut Vec<Http3Frame>, tables: &mut Tables<'_>) -> Option<()> {
        let mut input = Input(&self.buffer);
        let (number, length) = (input.varint()?, input.varint()?);
        let head = (self.buffer.len() - input.0.len()) as u64;
        let fields = match number {
            0 => None,
            _ if length > MOST_OF_A_FRAME as u64 => None,
            _ => fields(number, input.take(usize::try_from(length).ok()?)?, tables),
        };
        found.push(Http3Frame {
            offset: Some(self.position),
            kind: name(number),
            length: Some(length),
            fields,
        });
        self.pass(head + length);
        Some(())
    }

    /// Passes over so many bytes, there or not.
    fn pass(&mut self, bytes: u64) {
        self.position = self.position.saturating_add(bytes);
        match usize::try_from(bytes) {
            Ok(bytes) if bytes < self.buffer.len() => drop(self.buffer.drain(..bytes)),
            _ => self.buffer.clear(),
        }
        if self.buffer.capacity() > MOST_OF_A_FRAME && self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
    }
}

/// What of `data` at `offset` lies behind `next`; None when nothing does.
fn after(offset: u64, data: &[u8], next: u64) -> Option<&[u8]> {
    let known = usize::try_from(next.saturating_sub(offset)).ok()?;
    data.get(known..).filter(|new| !new.is_empty())
}

fn name(number: u64) -> Cow<'static, str> {
    match number {
        0x0 => "data".into(),
        0x1 => "headers".into(),
        0x3 => "cancel_push".into(),
        0x4 => "settings".into(),
        0x5 => "push_promise".into(),
        0x7 => "goaway".into(),
        0xd => "max_push_id".into(),
        0xf_0700 | 0xf_0701 => "priority_update".into(),
        _ => unknown(number).into(),
    }
}

/// Numbers that mean nothing and are sent to see whether they are ignored (RFC 9114, section 7.2.8),
/// and those that are not known here.
fn unknown(number: u64) -> String {
    if number
        .checked_sub(0x21)
        .is_some_and(|beyond| beyond.is_multiple_of(0x1f))
    {
        "reserved".into()
    } else {
        format!("{number:#x}")
    }
}

fn fields(number: u64, content: &[u8], tables: &mut Tables<'_>) -> Option<String> {
    let mut input = Input(content);
    match number {
        0x1 => qpack::lines(content, tables.own),
        0x4 => settings(input, tables.peers),
        0x5 => {
            let push = input.varint()?;
            Some(format!(
                "push: {push}\n{}",
                qpack::lines(input.0, tables.own)?
            ))
        }
        0x3 | 0x7 | 0xd => Some(input.varint()?.to_string()),
        0xf_0700 | 0xf_0701 => {
            let element = input.varint()?;
            Some(format!("{element}: {}", String::from_utf8_lossy(input.0)))
        }
        _ => None,
    }
}

/// Settings, one of which says how large the peer's dynamic table may be.
fn settings(mut input: Input<'_>, peers: &mut Table) -> Option<String> {
    let mut text = String::new();
    while !input.is_empty() {
        let (number, value) = (input.varint()?, input.varint()?);
        if number == 0x1 {
            peers.allow(value);
        }
        let name = match number {
            0x1 => "QPACK_MAX_TABLE_CAPACITY".into(),
            0x6 => "MAX_FIELD_SECTION_SIZE".into(),
            0x7 => "QPACK_BLOCKED_STREAMS".into(),
            0x8 => "ENABLE_CONNECT_PROTOCOL".into(),
            0x33 => "H3_DATAGRAM".into(),
            _ => unknown(number),
        };
        text.push_str(&format!("{name}: {value}\n"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Http3Frame, StreamKey, Streams};
    use crate::quic::Side;

    fn key(stream: u64) -> StreamKey {
        StreamKey {
            connection: 0,
            side: Side::Client,
            interface: 0,
            stream,
        }
    }

    /// GET /index.html, then 3000 bytes in two DATA frames, then trailers.
    fn request() -> Vec<u8> {
        let mut bytes = b"\x01\x10\x00\x00\xd1\x51\x0b/index.html".to_vec();
        for length in [1000u16, 2000] {
            bytes.push(0);
            bytes.extend((length | 0x4000).to_be_bytes());
            bytes.extend(vec![1; usize::from(length)]);
        }
        bytes.extend(b"\x01\x03\x00\x00\xd9\x21\x02ab");
        bytes
    }

    fn read(pieces: &[(u64, &[u8])], stream: u64) -> Vec<Http3Frame> {
        let (mut streams, mut found) = (Streams::default(), Vec::new());
        for (offset, data) in pieces {
            streams.add(key(stream), *offset, data, &mut found);
        }
        assert!(streams.held <= super::MOST_HELD);
        found
    }

    #[test]
    fn a_request_has_its_field_lines_and_its_data_is_passed_over() {
        let whole = request();
        let found = read(&[(0, &whole)], 0);
        let kinds: Vec<_> = found
            .iter()
            .map(|frame| (&*frame.kind, frame.length.unwrap()))
            .collect();
        assert_eq!(
            kinds,
            [
                ("headers", 16),
                ("data", 1000),
                ("data", 2000),
                ("headers", 3),
                ("reserved", 2)
            ]
        );
        assert_eq!(
            found[0].fields.as_deref(),
            Some(":method: GET\n:path: /index.html\n")
        );
        assert_eq!(found[2].offset, Some(18 + 1003));
    }

    #[test]
    fn a_control_stream_has_its_type_and_its_settings() {
        let found = read(
            &[
                (0, b"\x00\x04\x05\x06\x40\x64\x33"),
                (7, b"\x01\x07\x01\x04"),
            ],
            2,
        );
        assert_eq!(
            found[1].fields.as_deref(),
            Some("MAX_FIELD_SECTION_SIZE: 100\nH3_DATAGRAM: 1\n")
        );
        assert_eq!(
            (&*found[2].kind, found[2].fields.as_deref()),
            ("goaway", Some("4"))
        );
    }

    /// The server's settings allow the client a table, which its encoder's stream fills, also when
    /// that comes in pieces; what was sent before them stays unknown.
    #[test]
    fn a_request_may_name_what_the_encoders_stream_has_inserted() {
        let (mut streams, mut found) = (Streams::default(), Vec::new());
        let server = StreamKey {
            side: Side::Server,
            ..key(3)
        };
        let request = [0x01, 4, 0x03, 0x81, 0x10, 0x11];
        streams.add(key(0), 0, &request, &mut found);
        streams.add(server, 0, b"\x00\x04\x03\x01\x40\xdc", &mut found);
        let inserted = b"\x02\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path";
        streams.add(key(2), 0, &inserted[..9], &mut found);
        streams.add(key(2), 9, &inserted[9..], &mut found);
        streams.add(key(4), 0, &request, &mut found);
        let lines: Vec<_> = (found.iter().filter(|frame| frame.kind == "headers"))
            .map(|frame| frame.fields.as_deref().unwrap())
            .collect();
        assert_eq!(
            lines,
            [
                "(dynamic): (dynamic)\n(dynamic): (dynamic)\n",
                ":authority: www.example.com\n:path: /sample/path\n"
            ]
        );
        assert_eq!(streams.held, 57 + 49);
    }

    proptest! {
        #[test]
        fn the_order_of_the_pieces_does_not_matter(
            cuts in prop::collection::btree_set(1usize..3040, 0..12),
            seed in any::<u64>(),
            again in 0usize..4,
        ) {
            let whole = request();
            let mut ends: Vec<_> = cuts.into_iter().filter(|cut| *cut < whole.len()).collect();
            ends.push(whole.len());
            let mut from = 0;
            let mut pieces: Vec<(u64, &[u8])> = Vec::new();
            for end in ends {
                pieces.push((from as u64, &whole[from..end]));
                from = end;
            }
            for place in 0..again.min(pieces.len()) {
                pieces.push(pieces[place]);
            }
            let mut state = seed;
            pieces.sort_by_key(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state >> 33
            });
            prop_assert_eq!(read(&pieces, 0), read(&[(0, &whole)], 0));
        }

        #[test]
        fn whatever_comes_is_read_without_a_panic(
            pieces in prop::collection::vec((0u64..300, prop::collection::vec(any::<u8>(), 0..80)), 0..20),
            stream in 0u64..4,
        ) {
            let pieces: Vec<_> = pieces.iter().map(|(offset, data)| (*offset, &data[..])).collect();
            read(&pieces, stream);
        }
    }
}

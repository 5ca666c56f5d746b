//! qlogs (draft-ietf-quic-qlog-main-schema and its predecessors) as the same rows and summaries
//! that captures become.
//!
//! A packet's frames are written as the bytes that they describe, with zeros for what a qlog
//! leaves out, and read like those of a capture. Times are since 1970 where the log says when its
//! time began as a number, otherwise since its beginning.

mod document;
mod frames;
mod http3;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use serde_json::Value;

use self::document::{Head, nanoseconds};
use crate::capture::{CaptureError, decompressed};
use crate::quic::frames::Frames;
use crate::quic::header::{Id, Kind};
use crate::quic::{Connection, Datagram, Packet, Side, Visitor};
use crate::read::{ReadError, Rows, Trace};
use crate::rows::{Http3Row, Sink};

/// The longest event.
const LONGEST_EVENT: u64 = 4 << 20;
/// What stands before each record of a JSON text sequence (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// Whether the file begins as qlogs do: with an object, or a record of a JSON text sequence.
pub fn begins_like_one(path: &Path) -> Result<bool, CaptureError> {
    let mut first = [0];
    let read = decompressed(File::open(path)?)?.read(&mut first)?;
    Ok(read == 1 && matches!(first[0], b'{' | RECORD_SEPARATOR))
}

/// Reads the qlog at `path` and gives each row to `sink`. A damaged or truncated one is read up to
/// the damage.
pub fn read<S: Sink>(path: &Path, sink: &mut S) -> Result<Trace, ReadError<S::Error>>
where
    S::Error: std::error::Error,
{
    let open = || {
        let file = decompressed(File::open(path)?)?;
        Ok::<_, CaptureError>(BufReader::new(file))
    };
    let mut events = Events {
        rows: Rows::new(sink),
        side: Side::Client,
        origin_ns: 0,
        unit_ns: 1e6,
        connection: None,
        count: 0,
        number: 0,
        others: 0,
        payload: Vec::new(),
    };
    let mut source = open()?;
    let sequence = source.fill_buf().map_err(CaptureError::Io)?.first() == Some(&RECORD_SEPARATOR)
        || is_sequence(&mut open()?);
    let ended = if sequence {
        read_sequence(source, &mut events)
    } else {
        read_document(open, &mut events)
    };
    let damage = match ended {
        Ok(()) => None,
        Err(CaptureError::Damaged { at, why, .. }) => Some(CaptureError::Damaged {
            at,
            why,
            packets: events.number,
        }),
        // A compressed file that is cut or damaged.
        Err(error) => Some(error),
    };
    let Events {
        mut rows,
        number,
        others,
        ..
    } = events;
    if let Some(error) = rows.failed.take() {
        return Err(ReadError::Sink(error));
    }
    Ok(Trace {
        packets: number,
        bytes: std::fs::metadata(path).map_or(0, |data| data.len()),
        strangers: 0,
        others,
        unknown_links: BTreeMap::new(),
        connections: rows.finish(),
        damage,
    })
}

/// Whether the first line is an object by itself, the head of a sequence without separators.
fn is_sequence(source: &mut impl BufRead) -> bool {
    let mut line = Vec::new();
    let read = source.take(LONGEST_EVENT).read_until(b'\n', &mut line);
    read.is_ok()
        && serde_json::from_slice::<Value>(&line)
            .is_ok_and(|head| head.get("trace").is_some() && head.get("traces").is_none())
}

fn damaged(at: u64, why: impl ToString) -> CaptureError {
    CaptureError::Damaged {
        at,
        why: why.to_string(),
        packets: 0,
    }
}

/// A head, then an event a line.
fn read_sequence<S: Sink>(
    mut source: impl BufRead,
    events: &mut Events<'_, S>,
) -> Result<(), CaptureError> {
    let (mut at, mut line, mut headed) = (0, Vec::new(), false);
    loop {
        line.clear();
        let read = (&mut source)
            .take(LONGEST_EVENT)
            .read_until(b'\n', &mut line)? as u64;
        if read == 0 {
            return Ok(());
        }
        let text = line.trim_ascii();
        let text = text.strip_prefix(&[RECORD_SEPARATOR]).unwrap_or(text);
        if !text.is_empty() {
            let value: Value = serde_json::from_slice(text).map_err(|error| damaged(at, error))?;
            if headed {
                events.event(&value);
            } else {
                events.begin(&Head::of_sequence(&value));
                headed = true;
            }
        }
        at += read;
    }
}

/// One object with traces, each with its events. It is read twice: what a trace is of may stand
/// behind its events.
fn read_document<S: Sink, R: Read>(
    open: impl Fn() -> Result<R, CaptureError>,
    events: &mut Events<'_, S>,
) -> Result<(), CaptureError> {
    let heads = document::heads(open()?);
    let mut place = 0;
    let mut each = |trace: usize, value: &Value| {
        if trace + 1 > place {
            place = trace + 1;
            events.begin(heads.get(trace).unwrap_or(&Head::default()));
        }
        events.event(value);
    };
    document::events(open()?, &mut each).map_err(|error| {
        let before = open().map_or(0, |source| lines_bytes(source, error.line()));
        damaged(before + error.column() as u64, error)
    })
}

/// Bytes of the lines before line `number`, which counts from 1.
fn lines_bytes(source: impl Read, number: usize) -> u64 {
    let mut ends = (BufReader::new(source)
        .bytes()
        .map_while(Result::ok)
        .zip(1..))
    .filter_map(|(byte, at)| (byte == b'\n').then_some(at));
    match number {
        0 | 1 => 0,
        _ => ends.nth(number - 2).unwrap_or(0),
    }
}

/// Turns events into packets.
struct Events<'s, S: Sink> {
    rows: Rows<'s, S>,
    /// Whose log it is.
    side: Side,
    origin_ns: u64,
    unit_ns: f64,
    connection: Option<Connection>,
    /// Traces so far.
    count: u32,
    /// Packets so far.
    number: u64,
    /// Events that are neither of packets nor of HTTP/3.
    others: u64,
    payload: Vec<u8>,
}

impl<S: Sink> Events<'_, S> {
    /// A trace begins: the log of one connection.
    fn begin(&mut self, head: &Head) {
        self.side = head.side;
        self.unit_ns = head.unit_ns;
        self.origin_ns = head.origin_ns;
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let ends = (nowhere, nowhere);
        let id = Id::new(&[]).expect("an ID may be empty");
        self.connection = Some(Connection::new(self.count, 1, id, ends));
        self.count += 1;
    }

    fn event(&mut self, event: &Value) {
        let Some((time, name, data)) = parts(event) else {
            self.others += 1;
            return;
        };
        let time_ns = (self.origin_ns).saturating_add(nanoseconds(time, self.unit_ns));
        let name = name.rsplit(':').next().unwrap_or(name);
        let sent = match name {
            "packet_sent" => true,
            "packet_received" => false,
            _ => {
                match http3::read(name, data) {
                    Some(logged) => self.http3(time_ns, &logged),
                    None => self.others += 1,
                }
                return;
            }
        };
        let Some(connection) = self.connection.take() else {
            return;
        };
        let text = |of: &Value, name: &str| of.get(name)?.as_str().map(str::to_owned);
        let header = data.get("header").unwrap_or(&Value::Null);
        let kind = text(header, "packet_type").or_else(|| text(data, "packet_type"));
        if let Some(kind) = kind.as_deref().and_then(kind_of) {
            self.number += 1;
            self.payload.clear();
            let listed = data.get("frames").and_then(Value::as_array);
            for frame in listed.into_iter().flatten() {
                frames::write(&mut self.payload, frame, self.unit_ns);
            }
            let size = data
                .pointer("/raw/length")
                .or_else(|| header.get("packet_size"))
                .and_then(Value::as_u64)
                .unwrap_or(0);
            let datagram = Datagram {
                frame: self.number,
                time_ns,
                interface: 0,
                from: connection.client,
                to: connection.server,
                ecn: ecn(data),
                payload: &[],
                whole: true,
            };
            let packet = Packet {
                connection: &connection,
                side: if sent { self.side } else { self.side.peer() },
                kind,
                number: header.get("packet_number").and_then(Value::as_u64),
                size: usize::try_from(size).unwrap_or(usize::MAX),
                place: 0,
                key_phase: None,
                frames: Ok(Frames::new(&self.payload)),
            };
            self.rows.packet(&datagram, &packet);
        }
        self.connection = Some(connection);
    }

    fn http3(&mut self, time_ns: u64, logged: &http3::Logged) {
        let Some(connection) = &self.connection else {
            return;
        };
        let from = if logged.sent {
            self.side
        } else {
            self.side.peer()
        };
        self.rows.http3_row(&Http3Row {
            frame: self.number,
            time_ns,
            interface: 0,
            connection: connection.number,
            from_client: from == Side::Client,
            stream: logged.stream,
            http3: &logged.frame,
        });
    }
}

/// Time, name and data of an event: an object, or a row of time, category, name and data.
fn parts(event: &Value) -> Option<(f64, &str, &Value)> {
    match event {
        Value::Object(fields) => Some((
            fields.get("time")?.as_f64()?,
            fields.get("name")?.as_str()?,
            fields.get("data")?,
        )),
        Value::Array(row) => Some((
            row.first()?.as_f64()?,
            row.iter().filter_map(Value::as_str).next_back()?,
            row.last().filter(|data| data.is_object())?,
        )),
        _ => None,
    }
}

fn kind_of(name: &str) -> Option<Kind> {
    Some(match name {
        "initial" => Kind::Initial,
        "0RTT" => Kind::ZeroRtt,
        "handshake" => Kind::Handshake,
        "1RTT" => Kind::OneRtt,
        "retry" => Kind::Retry,
        "version_negotiation" => Kind::VersionNegotiation,
        _ => return None,
    })
}

fn ecn(data: &Value) -> u8 {
    match data.get("ecn").and_then(Value::as_str) {
        Some("ECT(1)") => 1,
        Some("ECT(0)") => 2,
        Some("CE") => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{begins_like_one, read};
    use crate::read::Trace;
    use crate::rows::Nothing;

    fn read_text(name: &str, text: &str) -> Trace {
        let file = std::env::temp_dir().join(format!("{}-{name}", std::process::id()));
        std::fs::write(&file, text).expect("a file in the temporary directory");
        assert!(begins_like_one(&file).expect("it is there"));
        let trace = read(&file, &mut Nothing).expect("it is a qlog");
        std::fs::remove_file(&file).expect("it was there");
        trace
    }

    const SENT: &str = r#"{"time": 12.5, "name": "transport:packet_sent", "data": {"header":
        {"packet_type": "1RTT", "packet_number": 1}, "raw": {"length": 1300}, "frames":
        [{"frame_type": "stream", "stream_id": 0, "offset": 0, "length": 1200, "fin": true}]}}"#;

    fn of_server(trace: &Trace) -> (u64, u64) {
        let connection = &trace.connections[0];
        (
            connection.server_sent.stream_bytes,
            connection.server_sent.bytes,
        )
    }

    #[test]
    fn whose_log_a_document_is_may_stand_behind_its_events() {
        let text = format!(
            r#"{{"qlog_version": "0.3", "traces": [{{"events": [{SENT}], "vantage_point": {{"type": "server"}}}}]}}"#
        );
        let trace = read_text("whole.qlog", &text);
        assert!(trace.damage.is_none(), "{:?}", trace.damage);
        assert_eq!(of_server(&trace), (1200, 1300));
    }

    #[test]
    fn rows_with_their_units_and_an_early_end_are_read() {
        let row = r#"[12500, "transport", "packet_sent", {"packet_type": "1RTT", "header":
            {"packet_number": 1, "packet_size": 1300}, "frames": [{"frame_type": "stream", "id": 0,
            "offset": 0, "length": 1200}]}]"#;
        let text = format!(
            r#"{{"traces": [{{"vantage_point": {{"type": "server"}}, "configuration": {{"time_units": "us"}},
            "events": [{row}, [125"#
        );
        let trace = read_text("cut.qlog", &text);
        assert_eq!(of_server(&trace), (1200, 1300));
        assert!(trace.damage.is_some());
        assert_eq!(trace.connections[0].begun_ns, 12_500_000);
    }

    #[test]
    fn a_sequence_is_read_with_and_without_separators() {
        let head = r#"{"qlog_format": "JSON-SEQ", "trace": {"vantage_point": {"type": "server"}}}"#;
        let event = SENT.replace('\n', " ");
        for separator in ["\u{1e}", ""] {
            let text = format!("{separator}{head}\n{separator}{event}\n{separator}{event}\n");
            let trace = read_text(&format!("sequence{}", separator.len()), &text);
            assert!(trace.damage.is_none());
            assert_eq!((trace.packets, of_server(&trace).0), (2, 1200));
            let cut = read_text(&format!("cut{}", separator.len()), &text[..text.len() - 9]);
            assert_eq!(cut.packets, 1);
            assert!(cut.damage.is_some());
        }
    }
}

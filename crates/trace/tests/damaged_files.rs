//! Recorded captures and qlogs with damage of every kind: what can be read of them is read, the rest is told with its
//! place, and neither the rows nor the memory grow beyond the file.
//!
//! `PROPTEST_CASES=20000 cargo test --test damaged_files` looks for longer.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bentpipe_trace::capture::CaptureError;
use bentpipe_trace::keylog::KeyLog;
use bentpipe_trace::qlog;
use bentpipe_trace::read::{ReadError, Trace, read, secrets_of};
use bentpipe_trace::rows::{Http3Row, PacketRow, Sink, StreamRow};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Numbers at which formats and types change.
const EDGES: [&str; 16] = [
    "0",
    "1",
    "63",
    "64",
    "16384",
    "1073741824",
    "4294967296",
    "9007199254740993",
    "4611686018427387903",
    "4611686018427387904",
    "9223372036854775808",
    "18446744073709551615",
    "-1",
    "1e308",
    "0.1",
    "\"7\"",
];
/// The most rows that come of a file of no bytes.
const FEW_ROWS: usize = 64;
/// The most memory of this process, kB; what is read is some 40 kB.
const RESIDENT_KB: u64 = 512 << 10;

/// Counts rows.
#[derive(Debug, Default)]
struct Counted(usize);

impl Sink for Counted {
    type Error = std::convert::Infallible;

    fn packet(&mut self, _row: &PacketRow<'_>) -> Result<(), Self::Error> {
        self.0 += 1;
        Ok(())
    }

    fn stream(&mut self, _row: &StreamRow) -> Result<(), Self::Error> {
        self.0 += 1;
        Ok(())
    }

    fn http3(&mut self, _row: &Http3Row<'_>) -> Result<(), Self::Error> {
        self.0 += 1;
        Ok(())
    }
}

/// One damage to a file.
#[derive(Debug, Clone)]
enum Damage {
    Byte(Index, u8),
    Bit(Index, u8),
    /// A field of four bytes, in either order.
    Word(Index, [u8; 4]),
    Truncated(Index),
    Removed(Index, usize),
    Twice(Index, usize),
    /// A piece is exchanged for another one.
    Exchanged(Index, Index, usize),
}

impl Damage {
    fn apply(&self, file: &mut Vec<u8>) {
        if file.is_empty() {
            return;
        }
        let len = file.len();
        let piece = |at: &Index, length: usize| {
            let start = at.index(len);
            start..(start + length).min(len)
        };
        match self {
            Self::Byte(at, value) => file[at.index(len)] = *value,
            Self::Bit(at, bit) => file[at.index(len)] ^= 1 << (bit % 8),
            Self::Word(at, word) => {
                let place = piece(at, 4);
                let count = place.len();
                file[place].copy_from_slice(&word[..count]);
            }
            Self::Truncated(at) => file.truncate(at.index(len)),
            Self::Removed(at, length) => drop(file.drain(piece(at, *length))),
            Self::Twice(at, length) => {
                let place = piece(at, *length);
                let again = file[place.clone()].to_vec();
                file.splice(place.start..place.start, again);
            }
            Self::Exchanged(one, other, length) => {
                let (one, other) = (one.index(len), other.index(len));
                for step in 0..*length {
                    if one + step < len && other + step < len {
                        file.swap(one + step, other + step);
                    }
                }
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let word = prop_oneof![
        any::<[u8; 4]>(),
        select(vec![
            [0; 4],
            [0xff; 4],
            [0, 0, 0, 0x80],
            [0x7f, 0xff, 0xff, 0xff],
            [0, 0, 0, 1],
            [4, 0, 0, 0]
        ]),
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Damage::Byte(at, value)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, bit)| Damage::Bit(at, bit)),
        (any::<Index>(), word).prop_map(|(at, word)| Damage::Word(at, word)),
        any::<Index>().prop_map(Damage::Truncated),
        (any::<Index>(), 1..2000_usize).prop_map(|(at, length)| Damage::Removed(at, length)),
        (any::<Index>(), 1..2000_usize).prop_map(|(at, length)| Damage::Twice(at, length)),
        (any::<Index>(), any::<Index>(), 1..1500_usize)
            .prop_map(|(one, other, length)| Damage::Exchanged(one, other, length)),
    ]
}

/// Where the recorded captures are.
fn captures() -> Vec<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<_> = std::fs::read_dir(root.join("../../e2e/captures"))
        .expect("the directory of captures")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "pcapng"))
        .collect();
    found.sort();
    found
}

/// A file with some content while it lasts.
struct Written(PathBuf);

impl Written {
    fn new(content: &[u8]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("bentpipe-damaged-{}-{number}", std::process::id()));
        std::fs::write(&path, content).expect("room for a file");
        Self(path)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The most memory that this process has had, kB.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status of this process");
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.parse().ok())
        .expect("a number of kB")
}

/// What a damage says names its place, which is in the file.
fn told(damage: &CaptureError, len: usize) {
    match damage {
        CaptureError::Truncated { at, .. } | CaptureError::Damaged { at, .. } => {
            assert!(*at <= len as u64, "{damage}, of {len} bytes");
        }
        CaptureError::NoCapture(_) | CaptureError::Io(_) => {}
    }
    assert!(!damage.to_string().is_empty());
}

fn read_damaged(
    content: &[u8],
    by: impl Fn(&Path, &mut Counted) -> Result<Trace, ReadError<std::convert::Infallible>>,
) {
    let file = Written::new(content);
    let mut rows = Counted::default();
    match by(&file.0, &mut rows) {
        Ok(trace) => {
            if let Some(damage) = &trace.damage {
                told(damage, content.len());
            }
            let summary = serde_json::to_string(&trace.connections);
            assert!(summary.is_ok(), "{summary:?}");
        }
        Err(ReadError::Capture(error)) => told(&error, content.len()),
        Err(ReadError::Sink(never)) => match never {},
    }
    assert!(
        rows.0 <= FEW_ROWS + content.len(),
        "{} rows of {} bytes",
        rows.0,
        content.len()
    );
    assert!(resident_kb() < RESIDENT_KB, "{} kB", resident_kb());
}

fn capture(path: &Path, rows: &mut Counted) -> Result<Trace, ReadError<std::convert::Infallible>> {
    let log = secrets_of(path).unwrap_or_else(|_| KeyLog::default());
    read(path, &log, rows)
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (0..2000_u32).prop_map(|small| small.to_string()),
        1 => select(EDGES.to_vec()).prop_map(str::to_owned),
    ]
}

fn frame() -> impl Strategy<Value = String> {
    let kinds = vec![
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
        "connection_close",
        "handshake_done",
        "datagram",
        "immediate_ack",
        "unknown",
    ];
    (select(kinds), prop::collection::vec(number(), 8), any::<bool>()).prop_map(|(kind, n, fin)| {
        format!(
            r#"{{"frame_type":"{kind}","stream_id":{},"offset":{},"length":{},"maximum":{},"limit":{},"fin":{fin},"error_code":{},"acked_ranges":[[{},{}],[{},{}]],"ack_delay":{},"final_size":{}}}"#,
            n[0], n[1], n[2], n[3], n[3], n[4], n[5], n[6], n[6], n[7], n[7], n[1],
        )
    })
}

fn event() -> impl Strategy<Value = String> {
    let names = vec![
        "transport:packet_sent",
        "transport:packet_received",
        "quic:packet_sent",
        "quic:packet_received",
        "transport:parameters_set",
        "http3:frame_created",
        "http3:frame_parsed",
        "recovery:metrics_updated",
    ];
    let kinds = vec![
        "initial",
        "handshake",
        "0RTT",
        "1RTT",
        "retry",
        "version_negotiation",
        "other",
    ];
    let frames = prop::collection::vec(frame(), 0..4);
    (number(), select(names), select(kinds), number(), number(), frames).prop_map(|(at, name, kind, pn, len, frames)| {
        format!(
            r#"{{"time":{at},"name":"{name}","data":{{"header":{{"packet_type":"{kind}","packet_number":{pn}}},"raw":{{"length":{len}}},"stream_id":{pn},"length":{len},"frame":{{"frame_type":"data"}},"frames":[{}]}}}}"#,
            frames.join(",")
        )
    })
}

/// A qlog: a sequence of records, or a document on one line or on several.
fn log() -> impl Strategy<Value = String> {
    let origin = (number(), select(vec!["client", "server", "network"]));
    (origin, prop::collection::vec(event(), 0..30), 0..3_u8).prop_map(|((origin, side), events, form)| {
        let trace = format!(
            r#""vantage_point":{{"type":"{side}"}},"common_fields":{{"time_format":"relative","reference_time":{origin}}}"#
        );
        match form {
            0 => {
                let mut text = format!("\u{1e}{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\"trace\":{{{trace}}}}}\n");
                for event in events {
                    text += &format!("\u{1e}{event}\n");
                }
                text
            }
            1 => format!(r#"{{"qlog_version":"0.3","traces":[{{{trace},"events":[{}]}}]}}"#, events.join(",")),
            _ => format!(
                "{{\n\"qlog_version\":\"0.3\",\n\"traces\":[\n{{{trace},\n\"events\":[\n{}\n]}}]}}",
                events.join(",\n")
            ),
        }
    })
}

#[test]
fn damage_in_a_document_of_several_lines_is_told_by_its_byte() {
    let text = "{\"qlog_version\":\"0.3\",\n\"traces\":[{\"events\":[\n\n  {\"time\":1,?\n]}]}";
    let file = Written::new(text.as_bytes());
    let trace = qlog::read(&file.0, &mut Counted::default()).expect("what is before the damage");
    let damage = trace.damage.expect("damage").to_string();
    let at = text.find('?').expect("the damage") + 1;
    assert!(
        damage.starts_with(&format!("damaged at byte {at}: ")),
        "{damage}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_capture_is_read_up_to_the_damage(
        which in any::<Index>(),
        damages in prop::collection::vec(damage(), 1..8),
    ) {
        let captures = captures();
        let mut file = std::fs::read(&captures[which.index(captures.len())]).expect("a capture");
        for damage in &damages {
            damage.apply(&mut file);
        }
        read_damaged(&file, capture);
    }

    #[test]
    fn a_qlog_may_hold_any_numbers(text in log()) {
        read_damaged(text.as_bytes(), qlog::read);
    }

    #[test]
    fn a_damaged_qlog_is_read_up_to_the_damage(
        text in log(),
        damages in prop::collection::vec(damage(), 1..5),
    ) {
        let mut file = text.into_bytes();
        for damage in &damages {
            damage.apply(&mut file);
        }
        read_damaged(&file, qlog::read);
    }
}

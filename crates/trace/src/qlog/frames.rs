//! Frames of a qlog as bytes (RFC 9000, section 19), with zeros for what it leaves out.

use serde_json::Value;

use super::document::nanoseconds;

/// The longest piece of data that a frame is given.
const MOST: u64 = 1 << 16;
/// Ranges of an ACK frame that are written.
const MOST_RANGES: usize = 1024;

/// Appends one frame. `unit_ns` is the log's unit of time. A frame that is not known is left out.
pub(super) fn write(out: &mut Vec<u8>, frame: &Value, unit_ns: f64) {
    let Some(kind) = frame.get("frame_type").and_then(Value::as_str) else {
        return;
    };
    let number = |name: &str| frame.get(name).and_then(Value::as_u64).unwrap_or(0);
    let length = frame
        .get("length")
        .or_else(|| frame.pointer("/raw/payload_length"))
        .or_else(|| frame.pointer("/raw/length"))
        .and_then(Value::as_u64)
        .unwrap_or(0)
        .min(MOST);
    let stream = frame.get("stream_id").or_else(|| frame.get("id"));
    let stream = stream.and_then(Value::as_u64).unwrap_or(0);
    let bidirectional = frame.get("stream_type").and_then(Value::as_str) != Some("unidirectional");
    match kind {
        "padding" => out.push(0),
        "ping" => out.push(1),
        "ack" => ack(out, frame, unit_ns),
        "reset_stream" => all(
            out,
            4,
            &[stream, number("error_code"), number("final_size")],
        ),
        "stop_sending" => all(out, 5, &[stream, number("error_code")]),
        "crypto" => {
            all(out, 6, &[number("offset"), length]);
            zeros(out, length);
        }
        "new_token" => all(out, 7, &[1, 0]),
        "stream" => {
            let fin = frame.get("fin").and_then(Value::as_bool) == Some(true);
            all(
                out,
                0x0e | u64::from(fin),
                &[stream, number("offset"), length],
            );
            zeros(out, length);
        }
        "max_data" => all(out, 0x10, &[number("maximum")]),
        "max_stream_data" => all(out, 0x11, &[stream, number("maximum")]),
        "max_streams" => all(out, 0x12 | u64::from(!bidirectional), &[number("maximum")]),
        "data_blocked" => all(out, 0x14, &[number("limit")]),
        "stream_data_blocked" => all(out, 0x15, &[stream, number("limit")]),
        "streams_blocked" => all(out, 0x16 | u64::from(!bidirectional), &[number("limit")]),
        "new_connection_id" => {
            all(
                out,
                0x18,
                &[number("sequence_number"), number("retire_prior_to"), 1],
            );
            zeros(out, 1 + 16);
        }
        "retire_connection_id" => all(out, 0x19, &[number("sequence_number")]),
        "path_challenge" => {
            out.push(0x1a);
            zeros(out, 8);
        }
        "path_response" => {
            out.push(0x1b);
            zeros(out, 8);
        }
        "connection_close" => close(out, frame),
        "handshake_done" => out.push(0x1e),
        "datagram" => {
            all(out, 0x31, &[length]);
            zeros(out, length);
        }
        "immediate_ack" => out.push(0x1f),
        _ => {}
    }
}

fn varint(out: &mut Vec<u8>, value: u64) {
    let value = value.min((1 << 62) - 1);
    let (length, mark) = match value {
        0..0x40 => (1, 0),
        0x40..0x4000 => (2, 0x4000),
        0x4000..0x4000_0000 => (4, 0x8000_0000),
        _ => (8, 0xc000_0000_0000_0000),
    };
    out.extend_from_slice(&(value | mark).to_be_bytes()[8 - length..]);
}

fn all(out: &mut Vec<u8>, kind: u64, fields: &[u64]) {
    varint(out, kind);
    for field in fields {
        varint(out, *field);
    }
}

fn zeros(out: &mut Vec<u8>, length: u64) {
    out.resize(out.len() + usize::try_from(length).unwrap_or(0), 0);
}

/// Ranges may stand in any order, as pairs or as single numbers.
fn ack(out: &mut Vec<u8>, frame: &Value, unit_ns: f64) {
    let listed = frame.get("acked_ranges").and_then(Value::as_array);
    let mut ranges: Vec<(u64, u64)> = listed
        .into_iter()
        .flatten()
        .filter_map(|range| {
            let first = range.get(0)?.as_u64()?;
            let last = range.get(1).map_or(Some(first), Value::as_u64)?;
            (first <= last).then_some((first, last))
        })
        .collect();
    ranges.sort_unstable_by(|a, b| b.cmp(a));
    let Some(&(first, last)) = ranges.first() else {
        return;
    };
    let delay = frame
        .get("ack_delay")
        .and_then(Value::as_f64)
        .unwrap_or(0.0);
    // In units of eight microseconds, the default (RFC 9000, section 18.2).
    let delay = nanoseconds(delay, unit_ns) / 8000;
    let (mut smallest, mut further) = (first, Vec::new());
    for &(first, last) in ranges.iter().skip(1).take(MOST_RANGES) {
        let Some(gap) = smallest.checked_sub(last.saturating_add(2)) else {
            continue;
        };
        further.extend([gap, last - first]);
        smallest = first;
    }
    all(
        out,
        2,
        &[last, delay, further.len() as u64 / 2, last - first],
    );
    for field in further {
        varint(out, field);
    }
}

fn close(out: &mut Vec<u8>, frame: &Value) {
    let application = frame.get("error_space").and_then(Value::as_str) != Some("transport");
    let code = frame
        .get("raw_error_code")
        .or_else(|| frame.get("error_code"))
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let reason = frame.get("reason").and_then(Value::as_str).unwrap_or("");
    varint(out, 0x1c | u64::from(application));
    varint(out, code);
    if !application {
        varint(out, 0);
    }
    varint(out, reason.len() as u64);
    out.extend_from_slice(reason.as_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::write;
    use crate::quic::frames::{Frame, Frames};

    #[test]
    fn what_is_written_is_read_again() {
        let mut bytes = Vec::new();
        for frame in [
            json!({"frame_type": "stream", "stream_id": 4, "offset": 70_000, "length": 3, "fin": true}),
            json!({"frame_type": "ack", "ack_delay": 0.8, "acked_ranges": [[0, 3], [7], [10, 12]]}),
            json!({"frame_type": "from_the_future"}),
            json!({"frame_type": "connection_close", "error_space": "transport", "error_code": 7, "reason": "x"}),
        ] {
            write(&mut bytes, &frame, 1e6);
        }
        let read: Vec<_> = Frames::new(&bytes)
            .map(|frame| frame.expect("a frame"))
            .collect();
        assert_eq!(
            read[0],
            Frame::Stream {
                stream: 4,
                offset: 70_000,
                data: &[0; 3],
                fin: true
            }
        );
        let Frame::Ack(ack) = read[1] else {
            panic!("{:?}", read[1])
        };
        assert_eq!((ack.delay, ack.largest), (100, 12));
        assert_eq!(
            ack.acknowledged().collect::<Vec<_>>(),
            [(10, 12), (7, 7), (0, 3)]
        );
        assert_eq!(
            read[2],
            Frame::ConnectionClose {
                application: false,
                code: 7,
                reason: b"x"
            }
        );
        assert_eq!(read.len(), 3);
    }
}

//! HTTP/3 events (draft-ietf-quic-qlog-h3-events and its predecessors) as the frames that they
//! describe.

use serde_json::Value;

use crate::http3::{Http3Frame, MOST_OF_FIELDS};

/// An HTTP/3 frame, or the type of a unidirectional stream, that an end logged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// Stream ID.
    pub stream: u64,
    /// Whether the end that logged it sent it.
    pub sent: bool,
    /// What it is.
    pub frame: Http3Frame,
}

/// What the event `name`, without its namespace, says; None when it is not of HTTP/3, or names no
/// stream.
pub(super) fn read(name: &str, data: &Value) -> Option<Logged> {
    let sent = match name {
        "frame_created" => true,
        "frame_parsed" => false,
        "stream_type_set" => ["initiator", "owner"].iter().any(|by| data[*by] == "local"),
        _ => return None,
    };
    let (kind, content) = match name {
        "stream_type_set" => {
            let mut known = ["stream_type", "new"].iter();
            let known = known.find_map(|of| data[*of].as_str());
            (stream_kind(known?).to_owned(), &Value::Null)
        }
        _ => (frame_kind(&data["frame"])?, &data["frame"]),
    };
    let lengths = [
        data.get("length"),
        content.pointer("/raw/payload_length"),
        content.get("length"),
        content.pointer("/raw/length"),
    ];
    Some(Logged {
        stream: data["stream_id"].as_u64()?,
        sent,
        frame: Http3Frame {
            offset: None,
            length: lengths.into_iter().flatten().find_map(Value::as_u64),
            fields: fields(content),
            kind: kind.into(),
        },
    })
}

/// The name that the same has in a capture.
fn stream_kind(name: &str) -> &str {
    match name {
        "qpack_encode" | "qpack_encoder" => "stream qpack encoder",
        "qpack_decode" | "qpack_decoder" => "stream qpack decoder",
        "control" => "stream control",
        "push" => "stream push",
        "request" => "stream request",
        _ => "stream reserved",
    }
}

fn frame_kind(frame: &Value) -> Option<String> {
    match frame["frame_type"].as_str()? {
        "unknown" => {
            let mut numbers = ["frame_type_bytes", "frame_type_value"].iter();
            let number = numbers.find_map(|of| frame[*of].as_u64());
            Some(number.map_or("unknown".into(), |number| format!("{number:#x}")))
        }
        known => Some(known.to_ascii_lowercase()),
    }
}

/// Field lines, settings, or the one number of a frame.
fn fields(frame: &Value) -> Option<String> {
    let mut lists = ["headers", "settings"].iter();
    let Some(pairs) = lists.find_map(|of| frame[*of].as_array()) else {
        let mut numbers = ["push_id", "id", "stream_id"].iter();
        let number = numbers.find_map(|of| frame[*of].as_u64());
        return number.map(|number| number.to_string());
    };
    let mut text = String::new();
    for pair in pairs {
        let name = pair["name"].as_str().unwrap_or("(bytes)");
        let setting = name
            .strip_prefix("settings_")
            .or_else(|| name.strip_prefix("SETTINGS_"));
        let name = setting.map_or(name.to_owned(), str::to_ascii_uppercase);
        let value = match &pair["value"] {
            Value::String(text) => text.clone(),
            Value::Null => "(bytes)".to_owned(),
            other => other.to_string(),
        };
        if text.len() + name.len() + value.len() > MOST_OF_FIELDS {
            text.push_str("(more)\n");
            break;
        }
        text.push_str(&format!("{name}: {value}\n"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::read;

    #[test]
    fn frames_have_the_names_and_lines_that_a_capture_gives_them() {
        for (name, data, sent, kind, length, lines) in [
            (
                "frame_created",
                json!({"stream_id": 0, "length": 25, "frame": {"frame_type": "headers",
                    "headers": [{"name": ":method", "value": "GET"}, {"name": "x", "value": ""}]}}),
                true,
                "headers",
                Some(25),
                Some(":method: GET\nx: \n"),
            ),
            (
                "frame_parsed",
                json!({"stream_id": 3, "frame": {"frame_type": "settings", "settings":
                    [{"name": "settings_qpack_blocked_streams", "value": 16}]}}),
                false,
                "settings",
                None,
                Some("QPACK_BLOCKED_STREAMS: 16\n"),
            ),
            (
                "frame_parsed",
                json!({"stream_id": 3, "frame": {"frame_type": "goaway", "id": 4}}),
                false,
                "goaway",
                None,
                Some("4"),
            ),
            (
                "frame_parsed",
                json!({"stream_id": 0, "frame": {"frame_type": "data", "raw": {"length": 9}}}),
                false,
                "data",
                Some(9),
                None,
            ),
            (
                "stream_type_set",
                json!({"owner": "local", "stream_id": 2, "new": "control"}),
                true,
                "stream control",
                None,
                None,
            ),
        ] {
            let logged = read(name, &data).expect("it is of HTTP/3");
            assert_eq!((logged.sent, &*logged.frame.kind), (sent, kind));
            assert_eq!(logged.frame.length, length, "{kind}");
            assert_eq!(logged.frame.fields.as_deref(), lines, "{kind}");
        }
    }

    #[test]
    fn what_names_no_stream_or_frame_is_passed_over() {
        for (name, data) in [
            ("frame_created", json!({"frame": {"frame_type": "data"}})),
            ("frame_created", json!({"stream_id": 0, "frame": "headers"})),
            ("frame_parsed", json!(null)),
            ("stream_type_set", json!({"stream_id": 0})),
            ("parameters_set", json!({"stream_id": 0})),
        ] {
            assert_eq!(read(name, &data), None, "{name} {data}");
        }
    }
}

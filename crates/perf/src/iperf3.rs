//! A report in the shape of iperf3's JSON, for programs that read that.
//!
//! The fields are those that iperf3 3.12 writes for a test over TCP, with what a report knows;
//! what it does not know is left out. As in iperf3, only a sender has a window and
//! retransmissions.

use serde_json::{Value, json};

use crate::report::{Interval, Report, Sender};

/// Bytes between two moments, as iperf3 writes them.
fn amount(from_ns: u64, to_ns: u64, bytes: u64, sender: bool) -> Value {
    let seconds = to_ns.saturating_sub(from_ns) as f64 / 1e9;
    let rate = if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    };
    json!({
        "start": from_ns as f64 / 1e9,
        "end": to_ns as f64 / 1e9,
        "seconds": seconds,
        "bytes": bytes,
        "bits_per_second": rate,
        "omitted": false,
        "sender": sender,
    })
}

/// `object` with a sender's figures; `before` is the same sender an interval earlier.
fn with_sender(mut object: Value, sender: &Sender, before: Option<&Sender>) -> Value {
    let packet = sender.packet_bytes.unwrap_or(1).max(1);
    let resent = |of: &Sender| of.lost_packets.unwrap_or(0);
    let micros = |nanos: Option<u64>| nanos.map(|nanos| nanos / 1_000);
    object["socket"] = json!(sender.connection + 1);
    object["retransmits"] = json!(resent(sender).saturating_sub(before.map_or(0, resent)));
    object["snd_cwnd"] = json!(sender.window_bytes);
    object["rtt"] = json!(micros(sender.smoothed_rtt_ns));
    object["pmtu"] = json!(packet);
    object
}

fn interval(interval: &Interval, before: Option<&Interval>, sends: bool) -> Value {
    let bytes = if sends {
        interval.sent_bytes
    } else {
        interval.received_bytes
    };
    let all = amount(interval.from_ns, interval.to_ns, bytes, sends);
    let streams: Vec<_> = if sends && interval.senders.len() == 1 {
        let earlier = before.and_then(|before| before.senders.first());
        vec![with_sender(all.clone(), &interval.senders[0], earlier)]
    } else {
        vec![all.clone()]
    };
    json!({ "streams": streams, "sum": all })
}

/// `report` as iperf3 would have written it.
pub fn document(report: &Report) -> Value {
    let sends = report.sent_bytes > report.received_bytes;
    let before = std::iter::once(None).chain(report.intervals.iter().map(Some));
    let intervals: Vec<_> = (report.intervals.iter().zip(before))
        .map(|(now, before)| interval(now, before, sends))
        .collect();
    let end = report.duration_ns;
    let bytes = if sends {
        report.sent_bytes
    } else {
        report.received_bytes
    };
    let streams: Vec<_> = (report.connections.iter())
        .map(|one| {
            let bytes = if sends {
                one.sent_bytes
            } else {
                one.received_bytes
            };
            let sender = amount(0, end, bytes, sends);
            let sender = if sends {
                with_sender(sender, &one.sender, None)
            } else {
                sender
            };
            json!({ "sender": sender, "receiver": amount(0, end, bytes, sends) })
        })
        .collect();
    let mut document = json!({
        "start": {
            "connected": [],
            "version": format!("bentpipe {}", env!("CARGO_PKG_VERSION")),
            "connecting_to": { "host": report.peer },
            "test_start": {
                "protocol": report.transport.name(),
                "num_streams": report.connections.len(),
                "reverse": u8::from(!sends),
                "bytes": 0,
                "duration": report.duration_ns / 1_000_000_000,
            },
        },
        "intervals": intervals,
        "end": {
            "streams": streams,
            "sum_sent": amount(0, end, bytes, sends),
            "sum_received": amount(0, end, bytes, sends),
        },
    });
    if let Some(controller) = &report.parameters.controller {
        document["end"]["sender_tcp_congestion"] = json!(controller);
    }
    if let Some(error) = &report.error {
        document["error"] = json!(error);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{ParametersReport, Role, SCHEMA, TransportKind};

    #[test]
    fn intervals_and_sums_are_where_readers_of_iperf3_look() {
        let interval = |from_ns, bytes, lost_packets| Interval {
            from_ns,
            to_ns: from_ns + 1_000_000_000,
            received_bytes: 0,
            sent_bytes: bytes,
            senders: vec![Sender {
                window_bytes: Some(14_720),
                lost_packets: Some(lost_packets),
                smoothed_rtt_ns: Some(600_000_000),
                ..Sender::default()
            }],
        };
        let report = Report {
            schema: SCHEMA.into(),
            role: Role::Client,
            transport: TransportKind::Quic,
            peer: "192.0.2.1:4433".into(),
            parameters: ParametersReport::default(),
            workload: None,
            ok: true,
            error: None,
            duration_ns: 2_000_000_000,
            received_bytes: 0,
            sent_bytes: 3_000_000,
            connections: Vec::new(),
            intervals: vec![
                interval(0, 1_000_000, 3),
                interval(1_000_000_000, 2_000_000, 7),
            ],
            intervals_omitted: 0,
            requests: None,
            datagrams: None,
        };
        let document = document(&report);
        let second = &document["intervals"][1];
        assert_eq!(second["sum"]["bits_per_second"], 16e6);
        assert_eq!(second["streams"][0]["retransmits"], 4);
        assert_eq!(second["streams"][0]["rtt"], 600_000);
        assert_eq!(document["end"]["sum_sent"]["bytes"], 3_000_000);
        assert_eq!(document["end"]["sum_sent"]["bits_per_second"], 12e6);
    }
}

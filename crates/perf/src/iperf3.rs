//! A report in the shape of iperf3's JSON, for programs that read that.
//!
//! The fields are those that iperf3 3.12 writes for a test over TCP; what a report does not know of them is null, because
//! readers look for them without asking. As in iperf3, a stream is a connection, only a sender has a window and
//! retransmissions, and where bytes went both ways the direction with fewer is the one with `bidir_reverse` in its name.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::report::{Carried, ConnectionReport, Interval, Report, Sender};

/// Which bytes are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Sent,
    Received,
}

impl Way {
    fn of(self, sent: u64, received: u64) -> u64 {
        match self {
            Self::Sent => sent,
            Self::Received => received,
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Sent => Self::Received,
            Self::Received => Self::Sent,
        }
    }

    fn in_interval(self, interval: &Interval) -> u64 {
        self.of(interval.sent_bytes, interval.received_bytes)
    }

    fn carried(self, by: &Carried) -> u64 {
        self.of(by.sent_bytes, by.received_bytes)
    }

    fn of_connection(self, connection: &ConnectionReport) -> u64 {
        self.of(connection.sent_bytes, connection.received_bytes)
    }

    fn of_all(self, report: &Report) -> u64 {
        self.of(report.sent_bytes, report.received_bytes)
    }
}

/// Bytes between two moments, as iperf3 writes them.
fn amount((from_ns, to_ns): (u64, u64), bytes: u64, sender: bool) -> Value {
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

fn micros(nanos: Option<u64>) -> Option<u64> {
    nanos.map(|nanos| nanos / 1_000)
}

fn lost(sender: &Sender) -> u64 {
    sender.lost_packets.unwrap_or(0)
}

/// Iperf3's number of a connection; its sockets are numbers of files, of which the first are taken.
fn socket(connection: u32) -> u32 {
    connection + 5
}

/// Packets that were sent again in an interval, of all connections.
fn resent(now: &Interval, before: Option<&Interval>) -> u64 {
    let all = |interval: &Interval| interval.senders.iter().map(lost).sum::<u64>();
    all(now).saturating_sub(before.map_or(0, all))
}

fn interval(now: &Interval, before: Option<&Interval>, way: Way, both: bool) -> Value {
    let at = (now.from_ns, now.to_ns);
    let sends = way == Way::Sent;
    let streams: Vec<_> = (now.connections.iter().zip(&now.senders).enumerate())
        .map(|(index, (carried, sender))| {
            let mut stream = amount(at, way.carried(carried), sends);
            stream["socket"] = json!(socket(carried.connection));
            if sends {
                let earlier = before.and_then(|before| before.senders.get(index));
                stream["retransmits"] = json!(lost(sender).saturating_sub(earlier.map_or(0, lost)));
                stream["snd_cwnd"] = json!(sender.window_bytes);
                stream["rtt"] = json!(micros(sender.smoothed_rtt_ns));
                stream["rttvar"] = Value::Null;
                stream["pmtu"] = json!(sender.packet_bytes);
            }
            stream
        })
        .collect();
    let mut sum = amount(at, way.in_interval(now), sends);
    if sends {
        sum["retransmits"] = json!(resent(now, before));
    }
    let mut all = json!({ "streams": streams, "sum": sum });
    if both {
        let other = way.other();
        all["sum_bidir_reverse"] = amount(at, other.in_interval(now), other == Way::Sent);
    }
    all
}

/// A connection at the end.
fn stream(one: &ConnectionReport, end: u64, way: Way) -> Value {
    let bytes = way.of_connection(one);
    let [mut sender, mut receiver] = [(); 2].map(|()| amount((0, end), bytes, way == Way::Sent));
    for side in [&mut sender, &mut receiver] {
        side["socket"] = json!(socket(one.connection));
    }
    if way == Way::Sent {
        sender["retransmits"] = json!(lost(&one.sender));
        sender["max_snd_cwnd"] = Value::Null;
        sender["max_rtt"] = Value::Null;
        sender["min_rtt"] = json!(micros(one.sender.least_rtt_ns));
        sender["mean_rtt"] = json!(micros(one.sender.smoothed_rtt_ns));
    }
    json!({ "sender": sender, "receiver": receiver })
}

/// `report`, of a measurement that began so long after 1970, as iperf3 would have written it.
pub fn document(report: &Report, began: Duration) -> Value {
    let way = match report.sent_bytes > report.received_bytes {
        true => Way::Sent,
        false => Way::Received,
    };
    let both = way.other().of_all(report) > 0;
    let before = std::iter::once(None).chain(report.intervals.iter().map(Some));
    let intervals: Vec<_> = (report.intervals.iter().zip(before))
        .map(|(now, before)| interval(now, before, way, both))
        .collect();
    let end = report.duration_ns;
    let all = |way: Way| amount((0, end), way.of_all(report), way == Way::Sent);
    let streams: Vec<_> = (report.connections.iter())
        .map(|one| stream(one, end, way))
        .collect();
    let peer = report.peer.parse::<SocketAddr>().ok();
    let (host, port) = (peer.map(|peer| peer.ip()), peer.map(|peer| peer.port()));
    let connected: Vec<_> = (report.connections.iter())
        .map(|one| {
            json!({
                "socket": socket(one.connection),
                "local_host": null,
                "local_port": null,
                "remote_host": host,
                "remote_port": port,
            })
        })
        .collect();
    let mut sum_sent = all(way);
    sum_sent["retransmits"] = match way {
        Way::Sent => json!(
            report
                .connections
                .iter()
                .map(|one| lost(&one.sender))
                .sum::<u64>()
        ),
        Way::Received => Value::Null,
    };
    let controller = &report.parameters.controller;
    let (sender, receiver) = match way {
        Way::Sent => (json!(controller), Value::Null),
        Way::Received => (Value::Null, json!(controller)),
    };
    let mut document = json!({
        "start": {
            "connected": connected,
            "version": format!("bentpipe {}", env!("CARGO_PKG_VERSION")),
            "system_info": null,
            "timestamp": {
                "time": httpdate::fmt_http_date(std::time::UNIX_EPOCH + began),
                "timesecs": began.as_secs(),
            },
            "connecting_to": { "host": host, "port": port },
            "cookie": null,
            "tcp_mss_default": report.connections.first().and_then(|one| one.sender.packet_bytes),
            "test_start": {
                "protocol": report.transport.name(),
                "num_streams": report.connections.len(),
                "blksize": null,
                "omit": 0,
                "duration": report.duration_ns / 1_000_000_000,
                "bytes": 0,
                "blocks": 0,
                "reverse": u8::from(way == Way::Received),
                "bidir": u8::from(both),
            },
        },
        "intervals": intervals,
        "end": {
            "streams": streams,
            "sum_sent": sum_sent,
            "sum_received": all(way),
            "cpu_utilization_percent": {
                "host_total": null,
                "host_user": null,
                "host_system": null,
                "remote_total": null,
                "remote_user": null,
                "remote_system": null,
            },
            "sender_tcp_congestion": sender,
            "receiver_tcp_congestion": receiver,
        },
    });
    if both {
        for name in ["sum_sent_bidir_reverse", "sum_received_bidir_reverse"] {
            document["end"][name] = all(way.other());
        }
    }
    if let Some(error) = &report.error {
        document["error"] = json!(error);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Establishment, ParametersReport, Role, SCHEMA, TransportKind};

    fn sender(connection: u32, lost_packets: u64) -> Sender {
        Sender {
            connection,
            window_bytes: Some(14_720),
            lost_packets: Some(lost_packets),
            smoothed_rtt_ns: Some(600_000_000),
            ..Sender::default()
        }
    }

    /// Two connections, of which the second carries a third of the first, for two seconds.
    fn report(received_bytes: u64) -> Report {
        let interval = |from_ns, bytes, lost_packets| Interval {
            from_ns,
            to_ns: from_ns + 1_000_000_000,
            received_bytes: received_bytes / 2,
            sent_bytes: bytes,
            connections: [(0, 3 * bytes / 4), (1, bytes / 4)]
                .map(|(connection, sent_bytes)| Carried {
                    connection,
                    sent_bytes,
                    received_bytes: 0,
                })
                .to_vec(),
            senders: vec![sender(0, lost_packets), sender(1, 1)],
        };
        let connection = |connection, sent_bytes| ConnectionReport {
            connection,
            establishment: Establishment::default(),
            first_byte_ns: None,
            last_byte_ns: None,
            received_bytes: 0,
            sent_bytes,
            sender: sender(connection, 7),
        };
        Report {
            schema: SCHEMA.into(),
            role: Role::Client,
            transport: TransportKind::Quic,
            peer: "[2001:db8::1]:4433".into(),
            parameters: ParametersReport::default(),
            workload: None,
            ok: true,
            error: None,
            duration_ns: 2_000_000_000,
            received_bytes,
            sent_bytes: 3_000_000,
            connections: vec![connection(0, 2_250_000), connection(1, 750_000)],
            intervals: vec![
                interval(0, 1_000_000, 3),
                interval(1_000_000_000, 2_000_000, 7),
            ],
            intervals_omitted: 0,
            requests: None,
            datagrams: None,
        }
    }

    #[test]
    fn intervals_and_sums_are_where_readers_of_iperf3_look() {
        let document = document(&report(0), Duration::ZERO);
        let second = &document["intervals"][1];
        assert_eq!(second["sum"]["bits_per_second"], 16e6);
        assert_eq!(second["sum"]["retransmits"], 4);
        assert_eq!(second["streams"][0]["retransmits"], 4);
        assert_eq!(second["streams"][0]["rtt"], 600_000);
        assert_eq!(second["streams"][1]["bytes"], 500_000);
        assert_eq!(document["end"]["sum_sent"]["bytes"], 3_000_000);
        assert_eq!(document["end"]["sum_sent"]["bits_per_second"], 12e6);
        assert_eq!(document["end"]["sum_sent"]["retransmits"], 14);
        assert_eq!(document["start"]["test_start"]["bidir"], 0);
        let connected = &document["start"]["connected"];
        assert_eq!(connected[1]["socket"], second["streams"][1]["socket"]);
        assert_eq!(connected[1]["remote_host"], "2001:db8::1");
        let time = &document["start"]["timestamp"]["time"];
        assert_eq!(time, "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn what_went_the_other_way_is_not_left_out() {
        let document = document(&report(1_000_000), Duration::ZERO);
        assert_eq!(document["start"]["test_start"]["bidir"], 1);
        assert_eq!(document["end"]["sum_sent"]["bytes"], 3_000_000);
        let back = &document["end"]["sum_received_bidir_reverse"];
        assert_eq!(
            (&back["bytes"], &back["sender"]),
            (&json!(1_000_000), &json!(false))
        );
        let back = &document["intervals"][0]["sum_bidir_reverse"];
        assert_eq!(back["bits_per_second"], 4e6);
    }
}

//! qlogs of a measurement, read by somebody else's reader (Cloudflare's `qlog`).

mod support;

use std::collections::BTreeMap;
use std::io::{self, Cursor, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bentpipe_perf::workload::{Amount, Workload};
use bentpipe_quic::Events;
use bentpipe_units::Bytes;
use noq::{ConnectionId, QlogConfig, QlogFactory, Side};
use qlog::VantagePointType;
use qlog::events::EventData;
use qlog::reader::{Event, QlogSeqReader};
use support::{Ends, measure};

/// What was written of a connection.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl QlogFactory for Written {
    fn for_connection(
        &self,
        _: Side,
        _: SocketAddr,
        _: ConnectionId,
        _: Instant,
    ) -> Option<QlogConfig> {
        Some(QlogConfig::new(Box::new(self.clone())))
    }
}

/// What a reader finds in a qlog.
#[derive(Debug, Default)]
struct Found {
    names: BTreeMap<&'static str, u64>,
    last_ms: f64,
    windows: Vec<u64>,
}

fn read(written: &Written, whose: VantagePointType) -> Found {
    let text = std::mem::take(&mut *written.0.lock().expect("no panic"));
    let records = text.iter().filter(|byte| **byte == 0x1e).count() as u64;
    let reader = QlogSeqReader::new(Box::new(Cursor::new(text))).expect("a head");
    assert_eq!(reader.qlog.serialization_format, "JSON-SEQ");
    assert_eq!(
        reader.qlog.file_schema,
        "urn:ietf:params:qlog:file:sequential"
    );
    let from = reader.qlog.trace.vantage_point.as_ref();
    assert_eq!(from.expect("a vantage point").ty, whose);
    let (mut found, mut read) = (Found::default(), 0);
    for event in reader {
        read += 1;
        let event = match event {
            Event::Qlog(event) => event,
            // Timers of multipath and frames of ACK frequency, which the drafts do not have.
            Event::Json(event) => {
                let name = match &*event.name {
                    "quic:packet_sent" => "sent",
                    "quic:packet_received" => "received",
                    "quic:timer_updated" => "others",
                    other => panic!("an event that is not known: {other}"),
                };
                *found.names.entry(name).or_default() += 1;
                continue;
            }
        };
        assert!(event.time >= found.last_ms, "in order");
        found.last_ms = event.time;
        let name = match event.data {
            EventData::QuicPacketSent(packet) => {
                assert!(packet.frames.is_some_and(|frames| !frames.is_empty()));
                "sent"
            }
            EventData::QuicPacketReceived(_) => "received",
            EventData::QuicPacketLost(_) => "lost",
            EventData::QuicMetricsUpdated(metrics) => {
                found.windows.extend(metrics.congestion_window);
                "metrics"
            }
            EventData::QuicParametersSet(_) => "parameters",
            EventData::QuicConnectionStarted(_) => "started",
            _ => "others",
        };
        *found.names.entry(name).or_default() += 1;
    }
    // The last record has no separator behind it, by which this reader ends records.
    assert!(read + 2 >= records, "{read} events of {records} records");
    found
}

#[test]
fn another_reader_finds_what_the_report_says() {
    let [client, server] = [(); 2].map(|()| Written::default());
    let mut ends = Ends::default();
    ends.client.events = Events::to(Arc::new(client.clone()));
    ends.server.events = Events::to(Arc::new(server.clone()));
    let measured = measure(
        "rate = \"20 Mbit/s\"\nloss = \"1 %\"",
        ends,
        Workload::download(Amount::Bytes(Bytes::new(1_000_000))),
    );
    let at_client = read(&client, VantagePointType::Client);
    let at_server = read(&server, VantagePointType::Server);
    println!("client: {at_client:?}\nserver: {:?}", at_server.names);
    let lasted = measured.client.connections[0].last_byte_ns.expect("bytes");
    assert!(at_client.last_ms * 1e6 >= lasted as f64);
    for found in [&at_client, &at_server] {
        assert_eq!(found.names["started"], 1);
        assert!(found.names["parameters"] >= 2, "both ends'");
    }
    let sender = &measured.server[0].connections[0].sender;
    assert_eq!(Some(at_server.names["lost"]), sender.lost_packets);
    assert!(at_server.windows.iter().max() > at_server.windows.first());
    // About one in a hundred is lost on the way.
    let (sent, received) = (at_server.names["sent"], at_client.names["received"]);
    assert!((0.95..1.0).contains(&(received as f64 / sent as f64)));
    assert!(sent > 680, "1 MB in packets of 1472 bytes");
}

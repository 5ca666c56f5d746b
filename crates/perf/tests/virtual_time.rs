//! Measurements in virtual time, over links whose bounds are known to the nanosecond.

mod support;

use std::time::Duration;

use bentpipe_perf::parameters::Parameters;
use bentpipe_perf::workload::{Amount, RequestAmount, Requests, Workload};
use bentpipe_units::{Bytes, Span};
use support::{Ends, UNLIMITED, measure, refused};

const GEO: Span = Span::from_millis(600);

/// Asserts that it took so long, exactly but for the nanosecond that a link takes for a packet.
fn takes(measured: Option<u64>, exactly: Span) {
    let measured = measured.expect("it was measured");
    let exactly = exactly.as_nanos();
    assert!(
        (exactly..exactly + 1_000).contains(&measured),
        "{measured} ns instead of {exactly} ns"
    );
}

fn ms(nanos: Option<u64>) -> f64 {
    nanos.expect("it was measured") as f64 / 1e6
}

#[test]
fn a_connection_takes_one_round_trip_and_a_first_byte_another() {
    let measured = measure(
        UNLIMITED,
        Ends::unpaced(),
        Workload::download(Amount::Bytes(Bytes::new(1))),
    );
    let one = &measured.client.connections[0];
    assert_eq!(one.establishment.begun_ns, 0);
    takes(one.establishment.done_ns, GEO);
    takes(one.first_byte_ns, GEO + GEO);
    // HANDSHAKE_DONE answers the client's Finished.
    takes(one.establishment.confirmed_ns, GEO + GEO);
    assert_eq!(one.establishment.early_data, None);
    // The server has the keys when the client's Finished arrives.
    let seen = &measured.server[0].connections[0].establishment;
    takes(seen.done_ns, GEO);
}

#[test]
fn a_resumed_connection_has_its_first_byte_after_one_round_trip() {
    let ends = Ends {
        resume: true,
        ..Ends::unpaced()
    };
    let measured = measure(
        UNLIMITED,
        ends,
        Workload::download(Amount::Bytes(Bytes::new(1))),
    );
    let one = &measured.client.connections[0];
    assert_eq!(one.establishment.early_data, Some(true));
    takes(one.establishment.done_ns, GEO);
    takes(one.first_byte_ns, GEO);
}

#[test]
fn what_is_asked_for_arrives_and_both_ends_count_the_same() {
    let bytes = 3_000_001;
    let workload = Workload {
        streams: 4,
        upload: Some(Amount::Bytes(Bytes::new(bytes))),
        ..Workload::download(Amount::Bytes(Bytes::new(bytes)))
    };
    let measured = measure("rate = \"20 Mbit/s\"", Ends::default(), workload);
    assert_eq!(measured.client.error, None);
    assert_eq!(measured.client.received_bytes, bytes);
    assert_eq!(measured.client.sent_bytes, bytes);
    let [server] = &measured.server[..] else {
        panic!("one connection has one report");
    };
    assert_eq!(server.received_bytes, bytes);
    assert_eq!(server.sent_bytes, bytes);
    for report in [&measured.client, server] {
        let total: u64 = report.intervals.iter().map(|one| one.received_bytes).sum();
        assert_eq!(total, bytes);
        for pair in report.intervals.windows(2) {
            assert_eq!(pair[0].to_ns, pair[1].from_ns);
        }
    }
}

#[test]
fn a_download_for_a_time_ends_then() {
    let workload = Workload::download(Amount::Time(Span::from_millis(5_000)));
    let measured = measure("rate = \"20 Mbit/s\"", Ends::default(), workload);
    assert!(measured.client.ok, "{:?}", measured.client.error);
    // The connection takes a round trip before the time begins.
    let took = measured.client.duration_ns;
    assert!((5_600_000_000..5_605_000_000).contains(&took), "{took}");
    assert!(measured.client.received_bytes > 1_000_000);
    assert!(measured.server[0].ok, "{:?}", measured.server[0].error);
}

#[test]
fn requests_take_a_round_trip_each() {
    let requests = Requests {
        amount: RequestAmount::Count(7),
        request: Bytes::new(100),
        response: Bytes::new(1_000),
        every: Span::ZERO,
    };
    let measured = measure(UNLIMITED, Ends::unpaced(), Workload::requests(requests));
    let latency = measured.client.requests.expect("requests were measured");
    assert_eq!(latency.count, 7);
    takes(Some(latency.least_ns), GEO);
    takes(Some(latency.most_ns), GEO);
    takes(Some(latency.p50_ns), GEO);
    assert_eq!(measured.server[0].received_bytes, 7 * 92);
}

#[test]
fn a_sender_tells_its_window_its_round_trip_and_its_losses() {
    let workload = Workload::download(Amount::Time(Span::from_millis(10_000)));
    let measured = measure(
        "rate = \"20 Mbit/s\"\nloss = \"0.1 %\"",
        Ends::default(),
        workload,
    );
    let server = &measured.server[0];
    let sender = &server.connections[0].sender;
    assert!((600.0..610.0).contains(&ms(sender.least_rtt_ns)));
    assert!(sender.lost_packets > Some(0));
    assert!(sender.congestion_events > Some(0));
    assert!(sender.retransmitted_bytes >= sender.lost_packets.map(|lost| lost * 1_000));
    let windows: Vec<_> = (server.intervals.iter())
        .map(|interval| interval.senders[0].window_bytes)
        .collect();
    assert!(windows.iter().max() > windows.first());
}

#[test]
fn a_dead_server_is_told_in_time() {
    let error = refused(Ends {
        dead: true,
        ..Ends::default()
    });
    assert!(
        error.contains("no answer from 192.0.2.1:4433 within 5 s"),
        "{error}"
    );
}

#[test]
fn another_key_is_not_trusted() {
    let error = refused(Ends {
        wrong_key: true,
        ..Ends::default()
    });
    assert!(error.contains("not trusted"), "{error}");
    assert!(error.contains("--fingerprint"), "{error}");
}

#[test]
fn a_server_without_the_protocol_is_told() {
    let error = refused(Ends {
        protocol: b"h3",
        ..Ends::default()
    });
    assert!(
        error.contains("does not offer the application protocol \"perf\""),
        "{error}"
    );
}

#[test]
fn each_end_has_parameters_of_its_own() {
    let mut server = Parameters::new(bentpipe_cc::Choice::NewReno);
    server.settings.initial_window = 100;
    let ends = Ends {
        server,
        ..Ends::default()
    };
    let workload = Workload::download(Amount::Bytes(Bytes::new(100_000)));
    let measured = measure(UNLIMITED, ends, workload);
    assert_eq!(
        measured.server[0].parameters.controller.as_deref(),
        Some("newreno")
    );
    assert_eq!(
        measured.client.parameters.controller.as_deref(),
        Some("cubic")
    );
    // A hundred packets hold it all, spread over four fifths of a round trip, after the
    // connection's; the client alone has ten.
    let done = Duration::from_nanos(measured.client.duration_ns);
    assert!(done < Duration::from_millis(1_700), "{done:?}");
}

#[test]
fn the_first_request_of_a_connection_is_paced_behind_its_handshake() {
    let workload = Workload::download(Amount::Bytes(Bytes::new(1)));
    let measured = measure(UNLIMITED, Ends::default(), workload);
    let first_byte = measured.client.connections[0].first_byte_ns;
    // 1.2 kB at ten packets in 333 ms, 1.25 times as fast (RFC 9002, section 7.7).
    let paced = ms(first_byte) - 1_200.0;
    assert!((20.0..23.0).contains(&paced), "{paced} ms");
}

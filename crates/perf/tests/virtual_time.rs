//! Measurements in virtual time, over links whose bounds are known to the nanosecond.

mod support;

use std::time::Duration;

use bentpipe_cc::PathMemory;
use bentpipe_perf::datagrams::Datagrams;
use bentpipe_perf::parameters::Parameters;
use bentpipe_perf::protocol::Application;
use bentpipe_perf::workload::{Amount, RequestAmount, Requests, STALL, Workload};
use bentpipe_units::{Bytes, Rate, Span};
use support::{Ends, Manner, Sessions, UNLIMITED, measure, refused};

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

/// All of it is sent again with the handshake's keys, and counts once at both ends.
#[test]
fn what_a_server_refuses_of_early_data_arrives_once() {
    let bytes = 300_001;
    let transfer = Workload {
        streams: 3,
        upload: Some(Amount::Bytes(Bytes::new(bytes))),
        ..Workload::download(Amount::Bytes(Bytes::new(bytes)))
    };
    let requests = Workload {
        requests: Some(Requests {
            request: Bytes::new(10_008),
            response: Bytes::new(30_000),
            amount: RequestAmount::Count(3),
            every: Span::ZERO,
        }),
        download: None,
        ..Workload::default()
    };
    for (workload, sent, received) in [(transfer, bytes, bytes), (requests, 30_000, 90_000)] {
        let ends = Ends {
            resume: true,
            sessions: Sessions::Forgotten,
            ..Ends::unpaced()
        };
        let measured = measure(UNLIMITED, ends, workload);
        assert_eq!(measured.client.error, None);
        let one = &measured.client.connections[0];
        assert_eq!(one.establishment.early_data, Some(false));
        takes(one.establishment.done_ns, GEO);
        takes(one.first_byte_ns, GEO + GEO);
        let server = &measured.server[0];
        assert_eq!(server.error, None);
        assert_eq!((server.received_bytes, server.sent_bytes), (sent, received));
        let client = &measured.client;
        assert_eq!((client.sent_bytes, client.received_bytes), (sent, received));
    }
}

#[test]
fn files_whose_early_requests_are_refused_arrive_once() {
    for application in [Application::Http3, Application::Http09] {
        let urls = ["https://server.test/1000", "https://server.test/300000"];
        let ends = Ends {
            resume: true,
            sessions: Sessions::Forgotten,
            protocol: application.alpn(),
            files: Some((
                application,
                urls.map(|url| url.parse().expect("a URL")).to_vec(),
            )),
            ..Ends::unpaced()
        };
        let measured = measure(UNLIMITED, ends, Workload::default());
        let report = &measured.client;
        assert_eq!(report.error, None, "{application:?}");
        let one = &report.connections[0];
        assert_eq!(one.establishment.early_data, Some(false));
        takes(one.first_byte_ns, GEO + GEO);
        assert_eq!(report.received_bytes, 301_000);
        assert_eq!(report.requests.as_ref().expect("two").count, 2);
        assert_eq!(measured.server[0].error, None);
    }
}

/// What was measured until then is reported.
#[test]
fn a_measurement_that_is_stopped_is_reported() {
    let ends = Ends {
        stopped: Some(Span::from_millis(5_300)),
        ..Ends::default()
    };
    let workload = Workload::download(Amount::Time(Span::from_millis(60_000)));
    let measured = measure("rate = \"20 Mbit/s\"", ends, workload);
    let report = &measured.client;
    assert_eq!(report.error.as_deref(), Some("stopped before it was done"));
    assert!(!report.ok);
    assert_eq!(report.duration_ns, 5_300_000_000);
    assert!(report.received_bytes > 0);
    assert_eq!(report.intervals.len(), 6);
    assert_eq!(measured.server[0].error, None);
    let too_soon = refused(Ends {
        manner: Manner::Dead,
        stopped: Some(Span::from_millis(1_000)),
        ..Ends::default()
    });
    assert_eq!(too_soon, "stopped before it was done");
}

#[test]
fn a_server_that_gives_no_session_is_told() {
    let error = refused(Ends {
        resume: true,
        sessions: Sessions::None,
        ..Ends::unpaced()
    });
    assert!(
        error.contains("it gave nothing to resume from within"),
        "{error}"
    );
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
fn marks_of_a_queue_are_told_and_are_no_losses() {
    let measured = measure(
        "rate = \"10 Mbit/s\"\nqueue.marking = { limit = \"3 MB\", above = \"100 kB\" }",
        Ends::default(),
        Workload::download(Amount::Bytes(Bytes::new(8 << 20))),
    );
    let sender = &measured.server[0].connections[0].sender;
    assert!(sender.congestion_marks > Some(0));
    assert_eq!(sender.lost_packets, Some(0));
}

#[test]
fn a_dead_server_is_told_in_time() {
    let error = refused(Ends {
        manner: Manner::Dead,
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

#[test]
fn a_server_that_sends_another_number_of_bytes_is_found_out() {
    for (lie, said) in [
        (-1, "asked for 1000 bytes on a stream and sent 999"),
        (1, "sent 1001 or more"),
    ] {
        let ends = Ends {
            manner: Manner::Lies(lie),
            ..Ends::default()
        };
        let workload = Workload::download(Amount::Bytes(Bytes::new(1_000)));
        let error = measure(UNLIMITED, ends, workload).client.error;
        let error = error.expect("it is an error");
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_server_that_breaks_off_is_told_and_what_came_is_reported() {
    for (manner, said) in [
        (
            Manner::Resets,
            "a stream was broken off by the other end (code 77)",
        ),
        (Manner::Closes, "not today"),
    ] {
        let ends = Ends {
            manner,
            ..Ends::default()
        };
        let workload = Workload::download(Amount::Bytes(Bytes::new(1_000)));
        let report = measure(UNLIMITED, ends, workload).client;
        let error = report.error.expect("it is an error");
        assert!(error.contains(said), "{manner:?}: {error}");
        assert!(report.received_bytes <= 500, "{manner:?}");
    }
}

#[test]
fn a_download_without_end_that_ends_is_an_error() {
    let ends = Ends {
        manner: Manner::Lies(1_000),
        ..Ends::default()
    };
    let workload = Workload::download(Amount::Time(Span::from_millis(5_000)));
    let error = measure(UNLIMITED, ends, workload).client.error;
    assert!(error.is_some_and(|error| error.contains("and sent 999")));
}

#[test]
fn an_upload_and_everything_at_once_end_well() {
    let workload = Workload {
        connections: 3,
        streams: 5,
        upload: Some(Amount::Time(Span::from_millis(3_000))),
        download: Some(Amount::Time(Span::from_millis(2_000))),
        requests: Some(Requests {
            amount: RequestAmount::Time(Span::from_millis(3_000)),
            request: Bytes::new(8),
            response: Bytes::new(0),
            every: Span::from_millis(250),
        }),
        interval: Span::from_millis(100),
        stall: STALL,
        changes: true,
        datagrams: None,
    };
    let measured = measure("rate = \"50 Mbit/s\"", Ends::default(), workload);
    assert_eq!(measured.client.error, None);
    let sent: u64 = measured.client.sent_bytes;
    let arrived: u64 = measured.server.iter().map(|one| one.received_bytes).sum();
    assert_eq!(arrived, sent, "an upload that ended well has arrived whole");
    assert!(measured.client.requests.is_some());
}

#[test]
fn a_workload_that_cannot_be_is_refused() {
    let none = Workload {
        download: None,
        ..Workload::default()
    };
    for (workload, said) in [
        (none, "nothing to do"),
        (
            Workload {
                connections: 0,
                ..Workload::default()
            },
            "give 1 to 1000",
        ),
        (
            Workload {
                streams: 1_000,
                ..Workload::default()
            },
            "give 1 to 127",
        ),
        (
            Workload {
                streams: 2,
                requests: Some(Requests {
                    amount: RequestAmount::Count(1),
                    request: Bytes::new(8),
                    response: Bytes::new(8),
                    every: Span::ZERO,
                }),
                download: None,
                ..Workload::default()
            },
            "2 streams without a transfer",
        ),
        (
            Workload {
                interval: Span::ZERO,
                ..Workload::default()
            },
            "at least 1 ms",
        ),
        (
            Workload::download(Amount::Time(Span::ZERO)),
            "1 to 100000 intervals",
        ),
        (
            Workload::download(Amount::Bytes(Bytes::new(1 << 60))),
            "at most 1 PiB",
        ),
    ] {
        let error = workload.check().expect_err("it cannot be").to_string();
        assert!(error.contains(said), "{error}");
    }
}

fn datagrams(rate: u64, size: u64) -> Workload {
    Workload {
        download: None,
        datagrams: Some(Datagrams {
            rate: Rate::from_bits_per_second(rate),
            size,
            time: Span::from_millis(10_000),
        }),
        ..Workload::default()
    }
}

#[test]
fn datagrams_over_a_clean_link_all_come_back_in_order() {
    let measured = measure(
        "rate = \"20 Mbit/s\"",
        Ends::default(),
        datagrams(80_000, 1_000),
    );
    let report = measured.client.datagrams.expect("datagrams were sent");
    assert_eq!(
        (report.sent, report.arrived, report.answered),
        (100, Some(100), 100)
    );
    assert_eq!((report.reordered_there, report.reordered_back), (0, 0));
    let times = report.round_trips.as_ref().expect("answers");
    assert!(
        (600.0..603.0).contains(&ms(Some(times.p50_ns))),
        "{times:?}"
    );
    assert!(ms(Some(report.jitter_there_ns)) < 1.0, "{report:?}");
}

#[test]
fn lost_and_late_datagrams_are_told() {
    let direction =
        "rate = \"20 Mbit/s\"\nloss = \"5 %\"\nreorder = { chance = \"5 %\", by = \"60 ms\" }";
    // A controller that takes losses for congestion would let few datagrams out.
    let mut fixed = Parameters::new(bentpipe_cc::Choice::Fixed);
    fixed.settings.contracted_rate = Some(Rate::from_bits_per_second(10_000_000));
    let ends = Ends {
        client: fixed.clone(),
        server: fixed,
        ..Ends::default()
    };
    let measured = measure(direction, ends, datagrams(400_000, 500));
    let report = measured.client.datagrams.expect("datagrams were sent");
    assert_eq!(report.sent, 1_000);
    let arrived = report.arrived.expect("some were answered");
    assert!((920..980).contains(&arrived), "{report:?}");
    assert!((840..950).contains(&report.answered), "{report:?}");
    assert!(
        report.reordered_there > 0 && report.reordered_back > 0,
        "{report:?}"
    );
    assert!(report.jitter_there_ns > 0, "{report:?}");
}

#[test]
fn datagrams_that_cannot_be_are_refused() {
    let beside = Workload {
        upload: Some(Amount::Bytes(Bytes::new(1))),
        ..datagrams(80_000, 1_000)
    };
    for (workload, said) in [
        (beside, "datagrams beside an upload"),
        (datagrams(80_000, 8), "give 16 to 1400"),
        (datagrams(1, 1_000), "1 kbit/s to 10 Gbit/s"),
    ] {
        let error = workload.check().expect_err("it cannot be").to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_path_that_is_known_is_resumed_carefully() {
    let memory = PathMemory::default();
    let mut client = Parameters::default();
    client.settings.resume = true;
    let upload = || {
        let ends = Ends {
            client: client.clone(),
            memory: memory.clone(),
            ..Ends::default()
        };
        let workload = Workload::upload(Amount::Bytes(Bytes::new(2_000_000)));
        measure("rate = \"20 Mbit/s\"", ends, workload)
            .client
            .duration_ns
    };
    let (fresh, known) = (upload(), upload());
    assert!(memory.get().is_some());
    assert!(
        known + 1_000_000_000 < fresh,
        "{known} ns, at first {fresh} ns"
    );
}

#[test]
fn files_come_whole_by_both_protocols_and_the_first_after_two_round_trips() {
    for application in [Application::Http3, Application::Http09] {
        let sizes = [1, 1_000_000, 300_000];
        let urls = sizes.map(|size| format!("https://server.test/{size}"));
        let ends = Ends {
            protocol: application.alpn(),
            files: Some((
                application,
                urls.map(|url| url.parse().expect("a URL")).to_vec(),
            )),
            ..Ends::unpaced()
        };
        let measured = measure(UNLIMITED, ends, Workload::default());
        let report = &measured.client;
        assert_eq!(report.error, None);
        assert_eq!(report.received_bytes, sizes.iter().sum::<u64>());
        assert_eq!(report.requests.as_ref().expect("three").count, 3);
        takes(report.connections[0].first_byte_ns, GEO + GEO);
        let [server] = &measured.server[..] else {
            panic!("one connection has one report");
        };
        assert_eq!(server.error, None);
        assert_eq!(server.sent_bytes, report.received_bytes);
    }
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    for (application, said) in [(Application::Http3, "404"), (Application::Http09, "reset")] {
        let ends = Ends {
            protocol: application.alpn(),
            files: Some((
                application,
                vec!["https://server.test/x".parse().expect("a URL")],
            )),
            ..Ends::default()
        };
        let error = measure(UNLIMITED, ends, Workload::default()).client.error;
        assert!(
            error.as_ref().is_some_and(|error| error.contains(said)),
            "{error:?}"
        );
    }
}

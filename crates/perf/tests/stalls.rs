//! Measurements in which nothing moves any more, in virtual time.

mod support;

use bentpipe_perf::protocol::Application;
use bentpipe_perf::workload::{Amount, RequestAmount, Requests, Workload};
use bentpipe_units::{Bytes, Span};
use support::{Ends, Manner, UNLIMITED, measure};

fn seconds(seconds: u64) -> Span {
    Span::from_millis(1_000 * seconds)
}

fn behaving(manner: Manner) -> Ends {
    Ends {
        manner,
        ..Ends::default()
    }
}

fn kilobyte() -> Amount {
    Amount::Bytes(Bytes::new(1_000))
}

fn requests(count: u64, every: Span) -> Requests {
    Requests {
        amount: RequestAmount::Count(count),
        request: Bytes::new(100),
        response: Bytes::new(1_000),
        every,
    }
}

/// Whatever is asked of it, and although it keeps the connection open.
#[test]
fn a_server_that_never_answers_is_given_up() {
    for (manner, workload, received) in [
        (Manner::Mute, Workload::download(kilobyte()), 0),
        (Manner::Silent, Workload::download(kilobyte()), 500),
        (
            Manner::Mute,
            Workload::download(Amount::Time(seconds(600))),
            0,
        ),
        (
            Manner::Mute,
            Workload::upload(Amount::Bytes(Bytes::new(500))),
            0,
        ),
        (Manner::Mute, Workload::requests(requests(3, Span::ZERO)), 0),
    ] {
        let workload = Workload {
            stall: seconds(20),
            ..workload
        };
        let what = workload.to_string();
        let report = measure(UNLIMITED, behaving(manner), workload).client;
        let error = report.error.expect("it is an error");
        let said = format!("stalled: nothing has moved for 20 s, after {received} bytes received");
        assert!(error.starts_with(&said), "{what}: {error}");
        assert!(
            (20.0..24.0).contains(&(report.duration_ns as f64 / 1e9)),
            "{what}: {} ns",
            report.duration_ns
        );
    }
}

#[test]
fn files_that_never_come_are_given_up() {
    for application in [Application::Http3, Application::Http09] {
        let ends = Ends {
            files: Some((
                application,
                vec!["https://server.test/1000".parse().expect("a URL")],
            )),
            protocol: application.alpn(),
            ..behaving(Manner::Mute)
        };
        let report = measure(UNLIMITED, ends, Workload::default()).client;
        let error = report.error.expect("it is an error");
        assert!(
            error.starts_with("stalled: nothing has moved for 1 min"),
            "{error}"
        );
    }
}

#[test]
fn a_download_for_a_time_that_brings_nothing_is_an_error() {
    let workload = Workload::download(Amount::Time(seconds(10)));
    let report = measure(UNLIMITED, behaving(Manner::Mute), workload).client;
    assert!(!report.ok);
    let error = report.error.expect("it is an error");
    assert!(error.starts_with("nothing came within 10 s"), "{error}");
}

/// Neither a pause of the workload's own nor a path on which a window takes long is one.
#[test]
fn what_is_slow_is_no_stall() {
    for (direction, workload) in [
        (UNLIMITED, Workload::requests(requests(3, seconds(30)))),
        // 2 MiB are handed over at once, and it takes them three minutes.
        (
            "rate = \"100 kbit/s\"",
            Workload::upload(Amount::Bytes(Bytes::new(2 << 20))),
        ),
    ] {
        let workload = Workload {
            stall: seconds(5),
            ..workload
        };
        let report = measure(direction, Ends::default(), workload).client;
        assert_eq!(report.error, None);
    }
}

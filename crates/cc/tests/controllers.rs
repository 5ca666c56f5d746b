//! What every controller keeps, and worked examples of those that have a specification.

use bentpipe_cc::{
    Acked, AcksDone, Choice, Congestion, Controller, Lost, PathMemory, Sent, Settings,
};
use bentpipe_units::{Rate, Span, Time};
use proptest::prelude::*;

const PACKET: u64 = 1200;
const RTT: Span = Span::from_millis(600);

fn controller(choice: Choice, window: u64) -> Box<dyn Controller> {
    let mut settings = Settings::new(choice);
    settings.contracted_rate = Some(Rate::from_bits_per_second(20_000_000));
    settings.check().expect("settings of a test");
    settings.build(PACKET, window * PACKET, &PathMemory::default())
}

fn ours() -> impl Strategy<Value = Choice> {
    let all = Choice::ALL
        .into_iter()
        .filter(|choice| *choice != Choice::LibraryBbr3);
    prop::sample::select(all.collect::<Vec<_>>())
}

/// A path without a queue on which each packet is acknowledged one round trip after it
/// was sent: sends a window per round, acknowledges it, and gives the windows in packets.
fn rounds(controller: &mut dyn Controller, from: u64, count: u64, app_limited: bool) -> Vec<u64> {
    let mut windows = Vec::new();
    for round in from..from + count {
        let sent = Time::ZERO + Span::from_millis(600 * round);
        let packets = controller.window() / PACKET;
        // Spread over the round, as pacing does.
        let gap = 590_000_000 / packets;
        for index in 0..packets {
            let now = sent + Span::from_nanos(index * gap);
            controller.on_sent(Sent { now, bytes: PACKET });
        }
        for index in 0..packets {
            let sent = sent + Span::from_nanos(index * gap);
            controller.on_acked(&Acked {
                now: sent + RTT,
                sent,
                bytes: PACKET,
                app_limited,
                smoothed_rtt: RTT,
            });
            controller.on_acks_done(AcksDone {
                now: sent + RTT,
                in_flight: (packets - index - 1) * PACKET,
                app_limited,
            });
        }
        windows.push(controller.window() / PACKET);
    }
    windows
}

fn lose(controller: &mut dyn Controller, round: u64, persistent: bool) {
    let now = Time::ZERO + Span::from_millis(600 * round + 599);
    controller.on_lost(Lost { now, bytes: PACKET });
    controller.on_congestion(&Congestion {
        now,
        sent: now,
        persistent,
        marked: false,
        lost: PACKET,
    });
}

/// RFC 9002, section 7.3: doubling, halving, one packet per round.
#[test]
fn newreno_round_by_round() {
    let mut newreno = controller(Choice::NewReno, 10);
    assert_eq!(rounds(&mut *newreno, 1, 3, false), [20, 40, 80]);
    lose(&mut *newreno, 4, false);
    assert_eq!(newreno.window() / PACKET, 40);
    assert_eq!(rounds(&mut *newreno, 5, 4, false), [41, 42, 43, 44]);
    lose(&mut *newreno, 9, true);
    assert_eq!(newreno.window() / PACKET, 2, "section 7.6.2");
    assert_eq!(rounds(&mut *newreno, 10, 3, false), [4, 8, 16]);
}

/// RFC 9438, figure 1 and section 4.2: from 0.7 of 160 packets back to 160 in
/// K = cbrt(160 * 0.3 / 0.4) = 4.93 s, flat there, then faster and faster.
#[test]
fn cubic_round_by_round() {
    let mut cubic = controller(Choice::Cubic, 10);
    assert_eq!(rounds(&mut *cubic, 1, 4, false), [20, 40, 80, 160]);
    lose(&mut *cubic, 5, false);
    assert_eq!(cubic.window() / PACKET, 112);
    let windows = rounds(&mut *cubic, 6, 14, false);
    let k = (160.0_f64 * 0.3 / 0.4).cbrt();
    for (round, window) in windows.iter().enumerate() {
        // The acknowledgements of a round aim one round trip ahead; they come one after
        // the first, which began the curve.
        let t = 0.6 * (round as f64 + 1.0);
        let curve = 0.4 * (t - k).powi(3) + 160.0;
        let error = *window as f64 - curve;
        assert!(
            error.abs() < 4.0,
            "round {round}: {window} against {curve:.1}"
        );
    }
}

/// RFC 9406: a round trip that grows by more than 16 ms ends the doubling.
#[test]
fn hystart_ends_slow_start_when_the_round_trip_grows() {
    let mut cubic = controller(Choice::Cubic, 10);
    let mut now = Time::ZERO + Span::from_millis(1000);
    for round in 0..12u64 {
        let rtt = RTT + Span::from_millis(if round < 3 { 0 } else { 20 * (round - 2) });
        let packets = cubic.window() / PACKET;
        for index in 0..packets {
            let sent = now + Span::from_nanos(index);
            cubic.on_acked(&Acked {
                now: sent + rtt,
                sent,
                bytes: PACKET,
                app_limited: false,
                smoothed_rtt: rtt,
            });
        }
        now = now + rtt + Span::from_millis(1);
    }
    let threshold = cubic.slow_start_threshold().expect("CUBIC has one") / PACKET;
    assert!(
        (80..400).contains(&threshold),
        "left at {threshold} packets"
    );
}

#[test]
fn an_unknown_controller_is_told_the_known_ones() {
    let error = "vegas"
        .parse::<Choice>()
        .expect_err("there is none")
        .to_string();
    assert!(
        error.contains("\"vegas\"") && error.contains("satellite"),
        "{error}"
    );
    let mut settings = Settings::new(Choice::Fixed);
    let error = settings
        .check()
        .expect_err("a contract has a rate")
        .to_string();
    assert!(
        error.contains("fixed") && error.contains("contracted_rate"),
        "{error}"
    );
    settings.controller = Choice::Cubic;
    settings.initial_window = 1;
    let error = settings.check().expect_err("too small").to_string();
    assert!(error.contains("initial_window = 1 packets"), "{error}");
}

#[derive(Debug, Clone)]
enum Step {
    Round(u64),
    Limited(u64),
    Lose { persistent: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..4u64).prop_map(Step::Round),
        1 => (1..3u64).prop_map(Step::Limited),
        2 => prop::bool::weighted(0.2).prop_map(|persistent| Step::Lose { persistent }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_window_is_less_than_two_packets(choice in ours(), steps in prop::collection::vec(step(), 1..12)) {
        let mut controller = controller(choice, 10);
        let mut round = 1;
        for step in steps {
            match step {
                // A window that a path without limits has opened is not simulated further.
                _ if controller.window() > 4000 * PACKET => break,
                Step::Round(count) => { rounds(&mut *controller, round, count, false); round += count; }
                Step::Limited(count) => { rounds(&mut *controller, round, count, true); round += count; }
                Step::Lose { persistent } => lose(&mut *controller, round, persistent),
            }
            round += 2;
            prop_assert!(controller.window() >= 2 * PACKET);
            prop_assert!(controller.pacing_rate().is_none_or(|rate| rate > 0));
        }
    }

    #[test]
    fn nothing_grows_while_the_sender_has_too_little(choice in ours(), before in 1..4u64) {
        let mut controller = controller(choice, 10);
        rounds(&mut *controller, 1, before, false);
        rounds(&mut *controller, 10, 2, true);
        let settled = controller.window();
        rounds(&mut *controller, 20, 4, true);
        prop_assert!(controller.window() <= settled + PACKET, "{} after {settled}", controller.window());
    }

    #[test]
    fn all_recover_from_persistent_congestion(choice in ours()) {
        let mut controller = controller(choice, 10);
        rounds(&mut *controller, 1, 3, false);
        lose(&mut *controller, 4, true);
        let low = controller.window();
        rounds(&mut *controller, 6, 4, false);
        prop_assert!(controller.window() >= low.min(20 * PACKET));
        prop_assert!(controller.window() >= 8 * PACKET);
    }
}

//! What every controller keeps, on any path.

mod line;

use bentpipe_cc::{Choice, Controller, PathMemory, Settings};
use bentpipe_units::{Bytes, Rate};
use line::{Line, PACKET};
use proptest::prelude::*;

/// The configured budget of these tests, packets.
const MOST: u64 = 3000;

fn controller(choice: Choice, rtt: u64) -> Box<dyn Controller> {
    let mut settings = Settings::new(choice);
    settings.know_rate(Rate::from_bits_per_second(20_000_000));
    settings.initial_rtt = bentpipe_units::Span::from_millis(rtt);
    settings.max_window = Bytes::new(MOST * PACKET);
    settings.check().expect("settings of a test");
    settings.build(PACKET, 10 * PACKET, &PathMemory::default())
}

fn ours() -> impl Strategy<Value = Choice> {
    prop::sample::select(Choice::ALL.to_vec())
}

/// Most packets that persistent congestion leaves in the window.
fn minimum_window(choice: Choice) -> Option<u64> {
    match choice {
        // BBR.MinPipeCwnd (draft-ietf-ccwg-bbr, section 2.7).
        Choice::Bbr3 => Some(4),
        // A contract is halved; ours has no answer outside its start.
        Choice::Fixed | Choice::Satellite => None,
        // RFC 9002, section 7.6.2, and RFC 9438, section 4.8.
        _ => Some(2),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Rounds(usize),
    Limited(u64, usize),
    Persistent,
    /// The link's rate from now on, Mbit/s.
    Rate(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..8usize).prop_map(Step::Rounds),
        1 => (1..50u64, 1..4usize).prop_map(|(packets, rounds)| Step::Limited(packets, rounds)),
        1 => Just(Step::Persistent),
        1 => (1..40u64).prop_map(Step::Rate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_window_is_between_two_packets_and_the_budget(
        choice in ours(),
        rtt in prop::sample::select(vec![30u64, 120, 600]),
        bdps in 0.02..2.0f64,
        steps in prop::collection::vec(step(), 1..8),
    ) {
        let mut line = Line::new(controller(choice, rtt), 20_000_000, rtt, bdps);
        for step in steps {
            match step {
                Step::Rounds(count) => { line.rounds(count); }
                Step::Limited(packets, count) => {
                    line.application = Some(packets);
                    line.rounds(count);
                    line.application = None;
                }
                Step::Persistent => line.lose_all(true),
                Step::Rate(mbit) => line.rate = mbit as f64 * 125e3,
            }
            let window = line.controller.window();
            prop_assert!((2 * PACKET..=MOST * PACKET).contains(&window), "{window}");
            prop_assert!(line.controller.pacing_rate().is_none_or(|rate| rate > 0));
            prop_assert!(line.most_in_flight <= MOST * PACKET);
        }
    }

    /// With 20 packets in each round trip of a path that holds 1250.
    #[test]
    fn nothing_grows_while_the_sender_has_too_little(choice in ours(), before in 1..6usize) {
        let mut line = Line::new(controller(choice, 600), 20_000_000, 600, 1.0);
        line.rounds(before);
        line.application = Some(20);
        let settled = line.rounds(6);
        let most = settled.iter().max().expect("six rounds");
        let later = line.rounds(12);
        prop_assert!(later.iter().all(|window| window <= most), "{settled:?}, then {later:?}");
    }

    /// All in flight is lost. What is left of the window is the least there is, and within 40
    /// round trips at least half of the path is used again.
    #[test]
    fn all_recover_from_persistent_congestion(choice in ours(), before in 1..20usize) {
        let mut line = Line::new(controller(choice, 120), 5_000_000, 120, 1.0);
        line.rounds(before);
        let pacing = line.pacing();
        line.lose_all(true);
        if let Some(most) = minimum_window(choice) {
            prop_assert!(line.window() <= most, "{choice}: {} packets", line.window());
        }
        if choice == Choice::Fixed {
            prop_assert!(line.pacing() <= 0.51 * pacing, "{} of {pacing}", line.pacing());
        }
        line.rounds(40);
        // 5 Mbit/s and 120 ms hold 62 packets.
        prop_assert!(line.window() >= 31, "{}", line.window());
        prop_assert!(line.pacing() >= 0.5 * line.rate, "{} of {}", line.pacing(), line.rate);
    }
}

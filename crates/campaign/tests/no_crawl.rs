//! After a disturbance the link is used again soon, whatever the host.

use std::time::Instant;

use bentpipe_campaign::budget::draw::{self, Drawn};
use bentpipe_campaign::budget::never_worst;
use bentpipe_cc::Choice;
use bentpipe_link::Scenario;
use bentpipe_sim::quic::Transfer;
use bentpipe_sim::{Nodes, Records};
use bentpipe_units::{Bytes, Rate, Span};
use bentpipe_vnet::host::HostSpec;
use rand::{Rng, SeedableRng};

/// The scenario `text`, of so many bit/s at best, between two such hosts for so many seconds.
fn drawn(title: impl Into<String>, bits: u64, text: &str, host: HostSpec, seconds: u64) -> Drawn {
    Drawn {
        number: 0,
        title: title.into(),
        bits,
        scenario: Scenario::parse(text).expect("a scenario of this test"),
        host,
        seconds,
    }
}

/// A link of 5 Mbit/s and 120 ms, with `forward` beside.
fn link(forward: &str, host: HostSpec) -> Drawn {
    let text = format!(
        "name = \"disturbed\"\n[forward]\nrate = \"5 Mbit/s\"\ndelay = \"60 ms\"\nqueue = \"75 kB\"\n{forward}\n\
         [return]\nrate = \"1 Mbit/s\"\ndelay = \"60 ms\"\nqueue = \"30 kB\"\n"
    );
    drawn(forward, 5_000_000, &text, host, 12)
}

/// Mbit/s of payload between two moments, seconds.
fn goodput(records: &Records, from: f64, to: f64) -> f64 {
    let at = |seconds: f64| {
        (records.samples.iter())
            .take_while(|sample| sample.at_ns as f64 <= seconds * 1e9)
            .last()
            .map_or(0, |sample| sample.received)
    };
    (at(to) - at(from)) as f64 * 8e-6 / (to - from)
}

/// What is asked twelve round trips after a disturbance, of the link.
const GOAL: f64 = 0.8;

/// Twelve round trips after the end of each, for two seconds.
#[test]
fn eighty_percent_of_the_link_twelve_round_trips_after_a_disturbance() {
    let ends = 6.4;
    let disturbances = [
        r#"outages = [{ from = "6 s", for = "400 ms", packets = "wait" }]"#,
        r#"outages = [{ from = "6 s", for = "400 ms" }]"#,
        r#"change = [{ at = "5 s", rate = "1 Mbit/s" }, { at = "6400 ms", rate = "5 Mbit/s" }]"#,
    ];
    let hosts = [
        HostSpec::IDEAL,
        HostSpec::QUIET,
        HostSpec::BUSY,
        HostSpec::LOADED,
        HostSpec::SLOW,
    ];
    for disturbance in disturbances {
        for host in hosts {
            for seed in 0..3 {
                let plan = never_worst::plan(&link(disturbance, host), Choice::Satellite, seed);
                let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
                let from = ends + 12.0 * 0.12;
                let carried = goodput(&records, from, from + 2.0) / (5.0 * 1437.0 / 1500.0);
                assert!(
                    carried >= GOAL,
                    "{carried:.2} after {disturbance}, seed {seed}, {host:?}"
                );
            }
        }
    }
}

/// An outage that begins at any moment of the start, on either way or both, with packets that are lost or held: what a trial or a slow start was
/// about to show is gone then, and the probes of the outage were taken for what the link carries (0.01 to 0.16 of it from the twelfth round trip on).
#[test]
#[ignore = "takes long: make test-long"]
fn an_outage_at_any_moment_of_the_start_leaves_no_crawl() {
    let links = [
        ("GEO", 20, 300, 1500),
        ("LEO", 50, 20, 250),
        ("slow", 5, 60, 75),
    ];
    let mut case = 0;
    for (name, mbit, delay, queue) in links {
        let rtt = 2 * delay;
        for packets in ["", ", packets = \"wait\""] {
            for round_trips in [1, 3, 8] {
                for ways in ["forward", "return", "both"] {
                    // All quarters of the first six round trips, three for each of these.
                    case += 1;
                    for quarter in [case % 8, 8 + case % 8, 16 + case % 8] {
                        let from = rtt + quarter * rtt / 4;
                        let length = round_trips * rtt;
                        let outage = format!(
                            "outages = [{{ from = \"{from} ms\", for = \"{length} ms\"{packets} }}]"
                        );
                        let way = |name: &str, rate: u64, queue: u64| {
                            let outage = if ways == name || ways == "both" {
                                &outage
                            } else {
                                ""
                            };
                            format!(
                                "[{name}]\nrate = \"{rate} Mbit/s\"\ndelay = \"{delay} ms\"\nqueue = \"{queue} kB\"\n{outage}\n"
                            )
                        };
                        let text = format!(
                            "name = \"{name}\"\n{}{}",
                            way("forward", mbit, queue),
                            way("return", 5, 150)
                        );
                        let begins = from + length + 12 * rtt;
                        let ends = begins + (4 * rtt).max(1000);
                        let link = drawn(
                            &text,
                            mbit * 1_000_000,
                            &text,
                            HostSpec::IDEAL,
                            ends / 1000 + 2,
                        );
                        let plan = never_worst::plan(&link, Choice::Satellite, case);
                        let records =
                            Records::of(&plan, Instant::now()).expect("a plan of this test");
                        let [begins, ends] = [begins, ends].map(|ms| ms as f64 / 1e3);
                        let carried = goodput(&records, begins, ends) / mbit as f64;
                        assert!(carried >= GOAL, "{carried:.2} after\n{text}");
                    }
                }
            }
        }
    }
}

/// GEO with a queue of one bandwidth-delay product, `forward` beside.
fn geo(rate: &str, forward: &str, host: HostSpec, seconds: u64) -> Drawn {
    let text = format!(
        "name = \"geo\"\n[forward]\nrate = \"{rate}\"\ndelay = \"300 ms\"\nqueue = \"1500 kB\"\n{forward}\n\
         [return]\nrate = \"5 Mbit/s\"\ndelay = \"300 ms\"\nqueue = \"150 kB\"\n"
    );
    drawn("GEO", 20_000_000, &text, host, seconds)
}

/// What is held does not count as a fall of the rate, however long it is held.
#[test]
fn packets_that_are_held_are_no_fall_of_the_rate() {
    for length in [70, 130, 300] {
        let held = format!(
            r#"outages = [{{ from = "3 s", for = "{length} ms", every = "5 s", packets = "wait" }}]"#
        );
        let geo = geo("20 Mbit/s", &held, HostSpec::IDEAL, 20);
        let plan = never_worst::plan(&geo, Choice::Satellite, 1);
        let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
        let carried = goodput(&records, 4.0, 19.0) / (20.0 * 1437.0 / 1500.0);
        assert!(carried >= 0.9, "{carried:.2} of the link, {length} ms");
    }
}

/// The rate rises from 5 to 20 Mbit/s while the application is quiet; a train finds that out in the
/// first round trip of what follows.
#[test]
fn a_rate_that_rose_while_the_application_was_quiet_is_found_at_once() {
    let change = r#"change = [{ at = "10 s", rate = "20 Mbit/s" }]"#;
    let geo = geo("5 Mbit/s", change, HostSpec::IDEAL, 30);
    let mut plan = never_worst::plan(&geo, Choice::Satellite, 1);
    if let Nodes::Quic(flows) = &mut plan.nodes {
        let later = Transfer::at(Span::from_millis(20_000), Bytes::new(10_000_000));
        flows[0].transfers = vec![Transfer::now(Bytes::new(4_000_000)), later];
    }
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let seconds = (records.transfers.last())
        .and_then(|transfer| transfer.seconds())
        .expect("it is done");
    // 4.2 s on the link and one round trip.
    assert!(seconds < 6.0, "{seconds:.2} s");
}

/// GEO between two busy machines: a tenth of the rate was believed where a train came back late, or four times the rate; and the quarter of a round
/// trip in which a host stood still, while the queue of slow start ran off (0.68 of the link, the middle of 24 seeds 0.90).
#[test]
fn a_busy_machine_does_not_make_a_new_session_crawl() {
    let geo = geo("20 Mbit/s", "", HostSpec::BUSY, 11);
    let mut carried: Vec<_> = (1..=24)
        .map(|seed| {
            let plan = never_worst::plan(&geo, Choice::Satellite, seed);
            let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
            goodput(&records, 6.0, 11.0) / (20.0 * 1437.0 / 1500.0)
        })
        .collect();
    carried.sort_by(f64::total_cmp);
    assert!(carried[0] >= GOAL, "{carried:.2?} of the link");
    assert!(carried[12] >= 0.92, "{carried:.2?} of the link");
}

/// The rate falls to a fifth and comes back, between machines that stand still: each stall counted as a pause of the application, and nothing was
/// measured behind it for a round trip (0.65 of the link at worst, twelve round trips later).
#[test]
#[ignore = "takes long: make test-long"]
fn a_rate_that_comes_back_is_found_by_a_busy_machine() {
    let change =
        r#"change = [{ at = "5 s", rate = "1 Mbit/s" }, { at = "6400 ms", rate = "5 Mbit/s" }]"#;
    for host in [HostSpec::BUSY, HostSpec::LOADED] {
        for seed in 0..40 {
            let plan = never_worst::plan(&link(change, host), Choice::Satellite, seed);
            let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
            let carried = goodput(&records, 7.84, 9.84) / (5.0 * 1437.0 / 1500.0);
            assert!(
                carried >= GOAL,
                "{carried:.2} of the link, seed {seed}, {host:?}"
            );
        }
    }
}

/// A link of at most 300 kbit/s that ten packets fill, and its round trip, seconds. The rate is a quarter to a half of it from the sixteenth second
/// to the twentieth.
fn slow_link_whose_rate_comes_back(seed: u64) -> (Drawn, f64) {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let kbit = rng.random_range(64..=300);
    let rtt_ms = rng.random_range(30..=(120_000 / kbit).min(700));
    let fallen = kbit / rng.random_range(2..=4);
    let queue = (rng.random_range(1..=4) * kbit * rtt_ms / 8).max(6_000);
    let change = format!(
        "change = [{{ at = \"16 s\", rate = \"{fallen} kbit/s\" }}, {{ at = \"20 s\", rate = \"{kbit} kbit/s\" }}]"
    );
    (slow_link(kbit, rtt_ms, queue, &change), rtt_ms as f64 / 1e3)
}

/// Forty seconds of a slow link with this queue, and `change` in the forward direction.
fn slow_link(kbit: u64, rtt_ms: u64, queue: u64, change: &str) -> Drawn {
    let way = |queue: u64| {
        let half = rtt_ms as f64 / 2.0;
        format!("rate = \"{kbit} kbit/s\"\ndelay = \"{half} ms\"\nqueue = \"{queue} B\"\n")
    };
    let (forward, back) = (way(queue), way(15_000));
    let text = format!("name = \"slow\"\n[forward]\n{forward}{change}\n[return]\n{back}");
    drawn(
        format!("{kbit} kbit/s, {rtt_ms} ms, {queue} B, {change}"),
        1_000 * kbit,
        &text,
        HostSpec::QUIET,
        40,
    )
}

/// Of forty drawn links each; of the first 120 one in 360 runs misses it (0.65 over 288 kbit/s and 354 ms; docs/limitations.md), and five did before.
#[test]
fn a_slow_link_whose_rate_comes_back_is_used_again_soon() {
    for number in 0..40 {
        let (link, rtt) = slow_link_whose_rate_comes_back(number);
        for seed in 0..3 {
            let plan = never_worst::plan(&link, Choice::Satellite, seed);
            let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
            // A packet's time on the link is part of a round trip there.
            let from = 20.0 + 12.0 * (rtt + 12_000.0 / link.bits as f64);
            let carried = goodput(&records, from, from + 5.0) * 1e6;
            let share = carried / (link.bits as f64 * 1437.0 / 1500.0);
            assert!(share >= GOAL, "{share:.2} of {}, seed {seed}", link.title);
        }
    }
}

/// The rate falls, and again while the queue of the first fall stands: the second was never measured, half of what had been measured was sent for
/// good, as much as the link carried by then, and the queue was taken for somebody else's (up to 0.41 lost, CUBIC up to 0.29).
#[test]
fn a_slow_link_whose_rate_falls_twice_is_not_flooded() {
    for rates in [
        [270, 136, 60],
        [200, 100, 45],
        [150, 72, 30],
        [300, 136, 60],
    ] {
        for later_ms in [300, 600, 1000] {
            for rtt_ms in [60, 150, 300] {
                let [bits, first, second] = rates;
                let link = slow_link(
                    bits,
                    rtt_ms,
                    18_000,
                    &format!(
                        "change = [{{ at = \"10 s\", rate = \"{first} kbit/s\" }}, {{ at = \"{} ms\", rate = \"{second} kbit/s\" }}]",
                        10_000 + later_ms
                    ),
                );
                for seed in 0..2 {
                    let lost = |choice| {
                        let plan = never_worst::plan(&link, choice, seed);
                        let records =
                            Records::of(&plan, Instant::now()).expect("a plan of this test");
                        records.flows[0].lost as f64 / records.flows[0].sent as f64
                    };
                    let (ours, cubic) = (lost(Choice::Satellite), lost(Choice::Cubic));
                    assert!(
                        ours <= 0.5 * cubic,
                        "{ours:.3} lost, CUBIC {cubic:.3}, seed {seed}, {}",
                        link.title
                    );
                }
            }
        }
    }
}

/// A rate that steps every few seconds, over and over. One packet in the time of two, as behind a long queue, was taken for an application's pause,
/// behind which nothing is measured: 0.64 of CUBIC's goodput.
#[test]
fn a_slow_link_whose_rate_steps_is_followed() {
    let text = r#"name = "steps"
[forward]
rate.trace = { points = [["0 s", "288 kbit/s"], ["3400 ms", "73 kbit/s"], ["6800 ms", "172 kbit/s"], ["10200 ms", "288 kbit/s"]], at_end = "loop" }
delay = "299 ms"
queue.marking = { limit = "57 kB", above = "11 kB" }
[return]
rate = "100 kbit/s"
delay = "299 ms"
queue = "15 kB"
"#;
    let link = drawn("steps", 288_000, text, HostSpec::IDEAL, 40);
    for seed in 0..3 {
        let carried = |choice| {
            let plan = never_worst::plan(&link, choice, seed);
            let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
            goodput(&records, 0.0, link.seconds as f64)
        };
        let (ours, cubic) = (carried(Choice::Satellite), carried(Choice::Cubic));
        assert!(
            ours >= GOAL * cubic,
            "{ours:.4} Mbit/s, CUBIC {cubic:.4}, seed {seed}"
        );
    }
}

/// The two acknowledgements of a train, a stall between them: 3 to 7 of 20 Mbit/s were taken for the rate, and grew by a hundredth a round.
#[test]
fn a_train_that_a_stall_has_stretched_is_no_slow_link() {
    let geo = geo("20 Mbit/s", "", HostSpec::LOADED, 9);
    let carried: Vec<f64> = (1..=20)
        .map(|seed| {
            let plan = never_worst::plan(&geo, Choice::Satellite, seed);
            let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
            goodput(&records, 0.0, 8.6)
        })
        .collect();
    assert!(carried.iter().all(|mbit| *mbit > 7.9), "{carried:.1?}");
}

/// LEO between machines that stall: the link idled behind each stall, and a stall passed for a queue, so that nothing grew (24.7 to 33 Mbit/s).
#[test]
fn a_busy_machine_leaves_a_short_way_filled() {
    let text = "name = \"leo\"
        [forward]\nrate = \"50 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"1 BDP\"
        [return]\nrate = \"5 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"1 BDP\"";
    let carried: Vec<f64> = (1..=5)
        .map(|seed| {
            let link = drawn("LEO", 50_000_000, text, HostSpec::BUSY, 6);
            let plan = never_worst::plan(&link, Choice::Satellite, seed);
            let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
            goodput(&records, 1.0, 6.0)
        })
        .collect();
    assert!(carried.iter().all(|mbit| *mbit > 40.0), "{carried:.1?}");
}

/// A link of `rate` and 200 ms with a queue of a few packets, `forward` beside.
fn shallow(rate: &str, bits: u64, queue: &str, forward: &str, seconds: u64) -> Drawn {
    let text = format!(
        "name = \"shallow\"\n[forward]\nrate = \"{rate}\"\ndelay = \"100 ms\"\nqueue = \"{queue}\"\n{forward}\n\
         [return]\nrate = \"10 Mbit/s\"\ndelay = \"100 ms\"\nqueue = \"150 kB\"\n"
    );
    drawn(forward, bits, &text, HostSpec::IDEAL, seconds)
}

/// Of a train that a short queue has cut, the last acknowledgement waits for a timer: that is no slow link.
#[test]
fn a_train_that_a_short_queue_has_cut_is_no_slow_link() {
    let link = shallow("200 Mbit/s", 200_000_000, "15 kB", "", 4);
    let plan = never_worst::plan(&link, Choice::Satellite, 1);
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let carried = goodput(&records, 2.0, 4.0) / 200.0;
    assert!(carried >= 0.4, "{carried:.3} of the link");
}

/// What is sent while packets are held finds a short queue full and is lost: that says nothing of the
/// rate, neither in slow start nor later.
#[test]
#[ignore = "takes long: make test-long"]
fn what_is_lost_behind_a_short_queue_while_packets_are_held_is_no_fall_of_the_rate() {
    // Whatever of slow start the first of them hits.
    for from in (500..2200).step_by(100) {
        let held = format!(
            r#"outages = [{{ from = "{from} ms", for = "220 ms", every = "1700 ms", packets = "wait" }}]"#
        );
        let link = shallow("20 Mbit/s", 20_000_000, "15 kB", &held, 20);
        let plan = never_worst::plan(&link, Choice::Satellite, 1);
        let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
        // An eighth of the time nothing leaves, and the first packets then are those that were held.
        let carried = goodput(&records, 4.0, 20.0) / 20.0;
        assert!(carried >= 0.6, "{carried:.2} of the link, from {from} ms");
    }
}

/// A packet that the radio takes before a train is out does not end the start: 580 Mbit/s, 597 ms and 0.8 % of loss had carried
/// 1.5 Mbit/s.
#[test]
fn one_packet_lost_before_the_train_does_not_end_the_start() {
    let drawn = draw::draw(987_001, 26);
    let plan = never_worst::plan(&drawn, Choice::Satellite, 987_001);
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let carried = goodput(&records, 4.0, 7.0);
    assert!(carried >= 50.0, "{carried:.1} Mbit/s of 580");
}

/// Over a slow link two packets are a long queue, and once the own ones were taken for somebody else's: it was filled to its end for
/// good, and up to two of three packets lost.
#[test]
fn slow_links_are_filled_and_not_flooded() {
    for bits in [64_000, 96_000, 128_000, 256_000] {
        for delay in [50, 150, 300] {
            for queue in [6, 15, 60] {
                let way = format!(
                    "rate = \"{bits} bit/s\"\ndelay = \"{delay} ms\"\nqueue = \"{queue} kB\"\n"
                );
                let text = format!("name = \"slow\"\n[forward]\n{way}[return]\n{way}");
                let link = drawn(&text, bits, &text, HostSpec::IDEAL, 60);
                let plan = never_worst::plan(&link, Choice::Satellite, 1);
                let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
                let carried = 1e6 * goodput(&records, 0.0, 60.0) / bits as f64;
                let flow = &records.flows[0];
                let lost = flow.lost as f64 / flow.sent as f64;
                assert!(
                    carried > 0.85 && lost < 0.15,
                    "{bits} bit/s, {delay} ms, {queue} kB: {carried:.2} carried, {lost:.2} lost"
                );
            }
        }
    }
}

/// A full packet takes 8 ms to leave here, one of a handshake a fraction of that. The difference was taken for a queue, and 0.51 of the link
/// carried.
#[test]
fn a_full_packet_that_takes_longer_than_a_handshakes_meets_no_queue() {
    let text = "name = \"slow\"
        [forward]\nrate = \"1.48 Mbit/s\"\ndelay = \"14.5 ms\"\nqueue = \"6 kB\"
        [return]\nrate = \"500 kbit/s\"\ndelay = \"14.5 ms\"\nqueue = \"15 kB\"";
    let link = drawn(text, 1_480_000, text, HostSpec::IDEAL, 5);
    let mut plan = never_worst::plan(&link, Choice::Satellite, 1);
    if let Nodes::Quic(flows) = &mut plan.nodes {
        flows[0].transport.rate = Rate::from_bits_per_second(1_480_000);
    }
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let carried = goodput(&records, 1.0, 4.0) / 1.48;
    assert!(carried > 0.75, "{carried:.2} of the link");
}

/// A train that a queue of three packets had cut was followed by twice what came through, and the first 100 kB took 1.35 s of a round trip of
/// 235 ms. What was dropped of a burst says nothing of a path that carries the rest within a round trip.
#[test]
fn a_train_cut_by_a_short_queue_does_not_slow_the_start() {
    let plan = never_worst::plan(&draw::draw(31_337, 117), Choice::Satellite, 31_337);
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let reached = (records.samples.iter()).find(|sample| sample.received >= 100_000);
    let seconds = reached.map(|sample| sample.at_ns as f64 / 1e9);
    assert!(seconds.is_some_and(|seconds| seconds < 1.2), "{seconds:?}");
}

/// Of one flow over `link` the goodput, Mbit/s, and the share of what was sent that was lost.
fn goodput_and_lost(link: &Drawn, seed: u64) -> (f64, f64) {
    let plan = never_worst::plan(link, Choice::Satellite, seed);
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let flow = &records.flows[0];
    let lost = flow.lost as f64 / flow.sent as f64;
    (goodput(&records, 0.0, link.seconds as f64), lost)
}

/// 30 s of a link with this queue between two ideal hosts.
fn short_link(bits: u64, delay_ms: u64, queue: &str) -> Drawn {
    let way = |bits: u64, queue: &str| {
        format!("rate = \"{bits} bit/s\"\ndelay = \"{delay_ms} ms\"\n{queue}\n")
    };
    let (forward, back) = (way(bits, queue), way(bits / 10, "queue = \"15 kB\""));
    let text = format!("name = \"short\"\n[forward]\n{forward}[return]\n{back}");
    drawn(
        format!("{bits} bit/s, {delay_ms} ms, {queue}"),
        bits,
        &text,
        HostSpec::IDEAL,
        30,
    )
}

/// Short links with these queues are filled, and at most this share of what is sent is lost.
fn fills(rates: [u64; 3], delays_ms: [u64; 2], queues: [&str; 2], most: f64) {
    for bits in rates {
        for delay_ms in delays_ms {
            for queue in queues {
                let link = short_link(bits, delay_ms, queue);
                let (carried, lost) = goodput_and_lost(&link, 1);
                let carried = 1e6 * carried / bits as f64;
                assert!(
                    carried > 0.9 && lost < most,
                    "{}: {carried:.2} carried, {lost:.3} lost",
                    link.title
                );
            }
        }
    }
}

/// Where a queue marks, the window that a mark leaves was what was sent for good once the rate had fallen so far that few packets
/// fill the pipe, and no further mark lowered it: up to half of all packets were lost.
#[test]
fn marks_leave_no_window_that_a_short_pipe_has_no_room_for() {
    let queues = [
        r#"queue.codel = { limit = "5 packets", ecn = true }"#,
        r#"queue.codel = { limit = "20 packets", ecn = true }"#,
    ];
    fills([700_000, 1_500_000, 3_000_000], [5, 15], queues, 0.05);
}

/// What a queue of some packets drops once counted as carried: the link seemed to carry a half more than it did, and to that the rate
/// went back in great steps after each trial of less.
#[test]
#[ignore = "takes long: make test-long"]
fn short_queues_are_not_overrun_again_and_again() {
    let queues = [r#"queue = "3 packets""#, r#"queue = "6 packets""#];
    fills([5_000_000, 16_000_000, 50_000_000], [5, 12], queues, 0.07);
    // 16 Mbit/s and 11 ms, three packets of queue, satellite steps: 14.4 Mbit/s came through, and 22 % was lost.
    let (carried, lost) = goodput_and_lost(&draw::draw(424_217, 43), 424_217);
    assert!(carried > 14.0, "{carried:.1} Mbit/s");
    assert!(lost < 0.06, "{lost:.3} lost");
}

/// 93 Mbit/s and 168 ms, acknowledgements held for 234 ms now and then, a busy host: a moment without acknowledgements ended slow start at
/// 11 Mbit/s, where the round had brought 46.
#[test]
fn slow_start_ends_with_what_its_rounds_have_brought() {
    let plan = never_worst::plan(&draw::draw(31_337, 22), Choice::Satellite, 31_337);
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let carried = goodput(&records, 2.5, 6.0);
    assert!(carried >= 30.0, "{carried:.1} Mbit/s of 93");
}

/// 18 Mbit/s and 82 ms, packets held for 371 ms: what a short queue loses then is no reason to bound the window for seconds.
#[test]
fn what_is_lost_while_packets_are_held_leaves_the_window() {
    let (carried, _) = goodput_and_lost(&draw::draw(424_217, 27), 424_217);
    assert!(carried >= 10.0, "{carried:.1} Mbit/s of 18");
}

/// 949 Mbit/s and 313 ms, jitter of 8 ms, a slow host that had spread the train: a moment of jitter in each round trip counted as a full
/// path, and the flow stayed at 3.2 Mbit/s.
#[test]
fn moments_of_jitter_do_not_end_the_growth() {
    let plan = never_worst::plan(&draw::draw(424_217, 52), Choice::Satellite, 424_217);
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let carried = goodput(&records, 5.0, 7.0);
    assert!(carried >= 100.0, "{carried:.1} Mbit/s of 949");
}

/// GEO with 50 Mbit/s and jitter of 8 ms, drawn for each packet: a train takes 5 ms, so that its spacing is the jitter's, and the mean of a round
/// trip that long hardly moves by it, so that no probe asked. Seven of twenty seeds carried less than 40 of 45 Mbit/s in 30 s, the worst 24.
///
/// And with 16 ms, drawn each 10 ms, which steps as between hosts that stand still: 33 in 30 s.
#[test]
#[ignore = "takes long: make test-long"]
fn a_train_that_jitter_has_spread_is_doubted() {
    for jitter in [
        r#"jitter = { up_to = "8 ms" }"#,
        r#"jitter = { up_to = "16 ms", every = "10 ms" }"#,
    ] {
        let geo = Drawn {
            bits: 50_000_000,
            ..geo("50 Mbit/s", jitter, HostSpec::IDEAL, 16)
        };
        for seed in 1..=10 {
            let plan = never_worst::plan(&geo, Choice::Satellite, seed);
            let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
            let carried = goodput(&records, 10.0, 16.0) / (50.0 * 1437.0 / 1500.0);
            assert!(
                carried >= GOAL,
                "{carried:.2} of the link, {jitter}, seed {seed}"
            );
        }
    }
}

/// A link between ideal hosts whose rate is all, a quarter, 0.7 and 0.35 of so many megabits per second in turn, for so many seconds each.
fn stepping(mbits: u64, delay_ms: u64, queue: &str, seconds: u64) -> Drawn {
    let points = (0..)
        .zip([100, 25, 70, 35, 100])
        .map(|(at, percent)| {
            format!(
                r#"["{} s", "{} kbit/s"]"#,
                at * seconds,
                10 * percent * mbits
            )
        })
        .collect::<Vec<_>>()
        .join(", ");
    let text = format!(
        "name = \"steps\"\n[forward]\nrate.trace = {{ points = [{points}], at_end = \"loop\" }}\ndelay = \"{delay_ms} ms\"\n\
         {queue}\n[return]\nrate = \"{mbits} Mbit/s\"\ndelay = \"{delay_ms} ms\"\nqueue = \"{} B\"\n",
        250 * mbits * delay_ms
    );
    drawn(
        format!("{mbits} Mbit/s, {delay_ms} ms, steps of {seconds} s"),
        1_000_000 * mbits,
        &text,
        HostSpec::IDEAL,
        40,
    )
}

/// 50 Mbit/s and 60 ms behind FQ-CoDel: at each fall the queue drops, which looks as if others were there. CUBIC's
/// window, kept until it would have filled the path again, carried 0.49 to 0.65 of the rates' mean, 28.75 Mbit/s; CUBIC 0.47 to 0.66, BBRv3 0.67 to
/// 0.88.
#[test]
#[ignore = "takes long: make test-long"]
fn a_rate_that_comes_back_is_not_left_to_others_who_are_not_there() {
    let queue = r#"queue.fq-codel = { limit = "1500 kB", ecn = false }"#;
    for seconds in [1, 2, 5] {
        let link = stepping(50, 30, queue, seconds);
        for seed in 1..=3 {
            let (carried, _) = goodput_and_lost(&link, seed);
            assert!(
                carried >= 0.7 * 28.75,
                "{carried:.1} of 28.75 Mbit/s, steps of {seconds} s, seed {seed}"
            );
        }
    }
}

/// Steps of three to ten round trips behind a drop-tail queue of one bandwidth-delay product: who drains it at each fall and asks for more later
/// was never at the link's rate, and carried 0.58 to 0.76 of what CUBIC did. The first ten seconds, in which nothing has come back, are left out.
#[test]
#[ignore = "takes long: make test-long"]
fn a_rate_that_steps_is_carried_as_by_the_best() {
    for (mbits, delay_ms) in [(5, 100), (5, 300), (50, 100), (50, 300)] {
        let queue = format!("queue = \"{} B\"", 250 * mbits * delay_ms);
        let link = stepping(mbits, delay_ms, &queue, 2);
        let [ours, cubic] = [Choice::Satellite, Choice::Cubic].map(|choice| {
            let plan = never_worst::plan(&link, choice, 1);
            let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
            goodput(&records, 10.0, 40.0)
        });
        let title = &link.title;
        assert!(
            ours >= 0.8 * cubic,
            "{ours:.2} of CUBIC's {cubic:.2} Mbit/s, {title}"
        );
    }
}

/// 129 Mbit/s and 36 ms with jitter of 9 ms, 187 Mbit/s and 52 ms with 7: the least of a round trip stands above the target in each, and the
/// flows stayed at half of the link. What is sent in addition shows that no queue grows.
#[test]
#[ignore = "takes long: make test-long"]
fn jitter_beyond_the_target_does_not_halve_the_rate() {
    // Seeds of which the first three and the fourth stayed below half before; what others do stands in docs/limitations.md.
    for (set, number, seeds) in [
        (4_711, 39, [4_711, 1, 2].as_slice()),
        (31_337, 47, [31_337].as_slice()),
    ] {
        let link = draw::draw(set, number);
        for seed in seeds {
            let (carried, lost) = goodput_and_lost(&link, *seed);
            assert!(
                carried > 0.8e-6 * link.bits as f64 && lost < 0.01,
                "{}, seed {seed}: {carried:.1} Mbit/s, {lost:.3} lost",
                link.title
            );
        }
    }
}

/// 50 Mbit/s and 13 ms with jitter of 8 ms behind a queue of five packets: CUBIC's window, taken for a competitor that was none, grew whatever
/// was lost, and that was 11 %.
#[test]
#[ignore = "takes long: make test-long"]
fn a_window_beside_others_is_lowered_by_what_it_loses() {
    for seed in [31_337, 1, 2] {
        let (carried, lost) = goodput_and_lost(&draw::draw(31_337, 9), seed);
        assert!(
            carried > 20.0 && lost < 0.05,
            "seed {seed}: {carried:.1} Mbit/s, {lost:.3} lost"
        );
    }
}

//! The short form of `bentpipe sim never-worst`: slow links of one set, which take little time.

use std::time::Instant;

use bentpipe_campaign::budget::{draw, never_worst};
use bentpipe_cc::Choice;
use bentpipe_link::Scenario;
use bentpipe_sim::Records;
use bentpipe_vnet::host::HostSpec;

/// On slow links nobody crawls, and nobody floods what has no room.
#[test]
fn slow_links_of_a_drawn_set_keep_most_of_the_best_goodput() {
    const SEED: u64 = 1;
    let links: Vec<_> = (0..40)
        .filter(|link| draw::draw(SEED, *link).bits < 700_000)
        .collect();
    assert!(links.len() >= 5, "{links:?}");
    let controllers = [Choice::Satellite, Choice::Cubic];
    let runs = never_worst::runs(SEED, &links, &controllers, 1, Vec::new(), Instant::now());
    for cell in never_worst::cells(&runs, Choice::Satellite) {
        let title = draw::draw(SEED, cell.link).title;
        if cell.measure == "goodput" {
            assert!(
                cell.score >= 0.8,
                "{:.3} of {} on {title}",
                cell.score,
                cell.best
            );
        }
    }
}

/// Speed of the first 100 kB, as a share of that of the best of `others`.
fn first_hundred_kilobytes(seed: u64, link: u64, others: &[Choice]) -> f64 {
    let controllers = [&[Choice::Satellite], others].concat();
    let runs = never_worst::runs(seed, &[link], &controllers, 1, Vec::new(), Instant::now());
    let cells = never_worst::cells(&runs, Choice::Satellite);
    let first = (cells.iter()).find(|cell| cell.measure == "100 kB");
    first.expect("they arrive").score
}

/// What the satellite controller does over link `link` of the set `seed`, with so many seeds.
fn runs(seed: u64, link: u64, seeds: u64) -> Vec<never_worst::Run> {
    let controllers = [Choice::Satellite];
    never_worst::runs(
        seed,
        &[link],
        &controllers,
        seeds,
        Vec::new(),
        Instant::now(),
    )
}

/// Twenty packets back to back overflow a short queue; what follows them is what came through, not
/// twice the first window.
#[test]
fn a_first_hundred_kilobytes_through_a_short_queue_do_not_flood_it() {
    for (seed, link) in [(303, 14), (303, 10), (101, 9)] {
        let score = first_hundred_kilobytes(seed, link, &[Choice::Cubic, Choice::NewReno]);
        assert!(score >= 0.9, "{score:.3}, link {link} of {seed}");
    }
}

/// What has come of a cut train tells how much a round trip carries at least, and the first window behind it follows that: it was
/// the initial one, 0.79 to 0.87 of the best of the others' speed. Over link 23, 33 Mbit/s and 34 ms, bursts of ten packets that a handshake's
/// wait had brought about were of use: 0.130 s, and 0.145 since they are gone.
#[test]
#[ignore = "takes long: make test-long"]
fn a_first_hundred_kilobytes_behind_a_cut_train_go_at_the_speed_that_it_has_shown() {
    for (link, least) in [(4, 0.95), (23, 0.85), (36, 0.95), (74, 0.95)] {
        let score = first_hundred_kilobytes(777_271, link, &never_worst::OTHERS);
        assert!(score >= least, "{score:.3}, link {link}");
    }
}

/// A handshake's round trip is no late timer: where it was taken for one, each connection over less than 50 ms sent bursts of ten packets in
/// its first second. Over 6.7 Mbit/s and 31 ms with room for four packets the first 100 kB took 0.40 s, and 0.31 with CUBIC.
#[test]
fn a_handshake_is_followed_by_no_bursts() {
    let controllers = [Choice::Satellite, Choice::Cubic, Choice::NewReno];
    for run in never_worst::runs(271_127, &[0], &controllers, 1, Vec::new(), Instant::now()) {
        assert!(run.seconds[0].is_some_and(|took| took < 0.26), "{run:?}");
    }
}

/// A busy host reads acknowledgements late, so that the first train shows nothing, and slow start takes ten round trips and more over 655 Mbit/s
/// and 588 ms: others ask in it. Three seeds carried 10, 12 and 11 Mbit/s in eight seconds, and 2 MB took 5.2 to 5.7 s.
#[test]
fn trains_ask_in_slow_start_where_acknowledgements_are_read_late() {
    for run in runs(271_129, 30, 3) {
        assert!(run.goodput > 30.0, "{run:?}");
        assert!(run.seconds[1].is_some_and(|took| took < 4.5), "{run:?}");
    }
}

/// A busy host stands still for a round trip of 14 ms and reads what came meanwhile in one go: each of these acknowledgements is late, and none of it
/// is a queue. Slow start ended there at 9 of 209 Mbit/s, and 2 MB took 0.73 s (BBRv3 0.222), 20 MB 1.83 s
/// (1.016). Asked for is the goal's 0.80 of its speed.
#[test]
fn acknowledgements_that_are_read_late_do_not_end_slow_start() {
    for run in runs(281_128, 9, 1) {
        assert!(
            run.seconds[1].is_some_and(|took| took < 0.222 / 0.8),
            "{run:?}"
        );
        assert!(
            run.seconds[2].is_some_and(|took| took < 1.016 / 0.8),
            "{run:?}"
        );
    }
}

/// A short queue marks when packets that were held for a while come at once: that says no more of the path than their losses do. Over 5.3 Mbit/s
/// and 218 ms, held for 196 ms every 2.1 s, each hold ended with less, and three seeds carried 2.2, 1.7 and 1.6 Mbit/s.
#[test]
fn marks_behind_a_silence_take_nothing() {
    for run in runs(271_131, 2, 3) {
        assert!(run.goodput > 3.2, "{run:?}");
    }
}

/// Acknowledgements that were held come all at once, and show the way's rate, or none: over 2.0 Mbit/s and 647 ms, held for 278 ms every 1.5 s, slow
/// start ended with up to 33 Mbit/s, a later train showed as much, and four seeds lost 0.32 to 0.44 of what was sent (0.04 to 0.09 now; the limit is what
/// fails without any one of the three rules, 0.13 to 0.49).
#[test]
fn what_was_held_shows_no_rate() {
    for run in runs(291_130, 57, 4) {
        assert!(run.lost < 0.12, "{run:?}");
    }
}

/// A round's losses and acknowledgements may be told in one frame, and what is in flight behind that is no window to lower: over 401 Mbit/s and
/// 16 ms, held for 86 ms every 1.8 s, one seed stayed at 116 Mbit/s (258 now; the limit is twice what it was).
#[test]
fn losses_that_are_told_at_once_leave_a_window_of_what_was_in_flight() {
    for run in runs(291_641, 0, 1) {
        assert!(run.goodput > 230.0, "{run:?}");
    }
}

/// Ten seconds over so many Mbit/s and milliseconds, with a queue of one bandwidth-delay product and jitter on the way to the receiver, as a
/// scenario has it: bytes received, and the share of packets that was lost.
fn over_jitter(rate: u64, rtt: u64, jitter: &str, seed: u64) -> (u64, f64) {
    let (queue, back) = (rate * rtt * 125, rate / 4);
    let text = format!(
        "name = \"jitter\"\n[forward]\nrate = \"{rate} Mbit/s\"\ndelay = \"{} ms\"\nqueue = \"{queue} B\"\njitter = {jitter}\n\
         [return]\nrate = \"{back} Mbit/s\"\ndelay = \"{} ms\"\nqueue = \"{queue} B\"\n",
        rtt / 2,
        rtt / 2,
    );
    let mut link = draw::draw(1, 0);
    link.scenario = Scenario::parse(&text).expect("a scenario of this test");
    (link.bits, link.host, link.seconds) = (rate * 1_000_000, HostSpec::IDEAL, 10);
    let plan = never_worst::plan(&link, Choice::Satellite, seed);
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let received = records.samples.last().expect("samples").received;
    let flow = &records.flows[0];
    (received, flow.lost as f64 / flow.sent as f64)
}

/// Jitter of 10 ms on a path of 12 ms lets a train arrive at once, and it shows 6 Gbit/s over 100 Mbit/s. What is sent then is bounded by the
/// peer's window alone, and four fifths of it are lost; but who drops so much is the path, and what it brings is its rate. As the flow
/// counted as limited by something else nothing was measured for six seconds, and ten carried 52 Mbit/s (CUBIC 95).
#[test]
fn a_window_of_the_peer_hides_no_flood() {
    let (received, lost) = over_jitter(100, 12, "{ up_to = \"10 ms\" }", 1);
    assert!(received > 105_000_000, "{received} bytes in ten seconds");
    assert!(lost < 0.05, "{lost:.3}");
}

/// Jitter that presses a train together lets it show 18 Gbit/s over 400 Mbit/s, and over 100. The peer's window was all that bounded what was
/// sent, the queue stood and ran dry by turns, and 45 % were lost for as long as anybody looked.
#[test]
#[ignore = "takes long: make test-long"]
fn a_train_that_jitter_has_pressed_together_floods_nothing() {
    let paths = [
        (400, 30, "{ up_to = \"5 ms\" }"),
        (400, 60, "{ up_to = \"2 ms\" }"),
        (100, 60, "{ up_to = \"10 ms\" }"),
    ];
    for (rate, rtt, jitter) in paths {
        for seed in 1..=2 {
            let (received, lost) = over_jitter(rate, rtt, jitter, seed);
            assert!(
                received > rate * 106_000_000 / 100,
                "{rate} Mbit/s, {rtt} ms, {jitter}, {seed}: {received}"
            );
            assert!(
                lost < 0.03,
                "{rate} Mbit/s, {rtt} ms, {jitter}, {seed}: {lost:.3}"
            );
        }
    }
}

/// Over 510 Mbit/s and 102 ms a train left at 0.6 Gbit/s, and jitter of 1.1 ms pressed ten packets of it into five microseconds: it showed 26 Gbit/s, 39 % of eight
/// seconds were lost, nearly all in the round trip that followed, and 2 MB took 1.79 s (NewReno 0.83 s, the limit here; that of the loss was set after its figure, 0.07).
#[test]
fn a_train_shows_hardly_more_than_the_rate_at_which_it_left() {
    for run in runs(291_143, 3, 1) {
        assert!(run.seconds[1].is_some_and(|took| took < 0.83), "{run:?}");
        assert!(run.lost < 0.1, "{run:?}");
    }
}

/// What a short queue drops of a train that shows no rate is told later, and does not end the slow start behind it: over GEO with 1.7 Mbit/s and
/// room for eleven packets the flow went on at 0.3 Mbit/s for ten seconds, and 2 MB took 20 s.
#[test]
fn losses_of_a_doubtful_train_do_not_end_the_slow_start_behind_it() {
    for run in runs(9_090, 28, 3) {
        assert!(run.seconds[1].is_some_and(|took| took < 14.0), "{run:?}");
    }
}

/// Over 1.3 Mbit/s and 26 ms a busy host's stall breaks the train up, and a queue of three packets drops the first window but for two or three
/// packets: slow start goes on from these. Their rate was taken for the path's, and three seeds of the twelve took 1.9 to 2.2 s for 100 kB.
#[test]
fn a_first_window_that_was_lost_in_a_short_queue_shows_no_rate() {
    for run in runs(26_112_026, 38, 12) {
        assert!(run.seconds[0].is_some_and(|took| took < 1.5), "{run:?}");
    }
}

/// Behind a stall a busy host reads a round trip's acknowledgements in one go, and what is in flight after them is not the window that a mark
/// is to lower: over 469 Mbit/s the worst two seeds carried 186 and 214 Mbit/s. Mean of the two: one seed's has moved by 4 % with a change that left the
/// mean of all twelve as it was.
#[test]
#[ignore = "takes long: make test-long"]
fn a_mark_that_is_read_behind_a_stall_lowers_the_window_that_was_in_flight() {
    let mut carried: Vec<_> = (runs(271_126, 1, 12).iter())
        .map(|run| run.goodput)
        .collect();
    carried.sort_by(f64::total_cmp);
    assert!((carried[0] + carried[1]) / 2.0 > 225.0, "{carried:?}");
}

/// Slow start ends at a mark, as at losses: over 0.9 Mbit/s behind CoDel that marks the first 100 kB take 1.97 s, 2.27 s where it went on.
#[test]
fn slow_start_ends_at_a_mark() {
    let drawn = draw::draw(271_126, 0);
    let plan = never_worst::plan(&drawn, Choice::Satellite, 271_126);
    let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
    let done = (records.samples.iter())
        .find(|sample| sample.received >= 100_000)
        .expect("they arrive");
    assert!(done.at_ns < 2_100_000_000, "{} ns", done.at_ns);
}

/// Behind a queue that marks from an eighth of a bandwidth-delay product on and has room for four, nobody
/// fills it: a mark is a signal of congestion as a loss is (RFC 9002, section 7.1), in the start too. Before the first mark is heard
/// there are what stood when it was made, 12 kB or 4.8 ms, one pipe more of a window that doubles, 40 ms, and the packet that is on its way. (By
/// samples each 5 ms the most that waited, CUBIC's 44.4 ms, was not seen, and 41 were asked for.)
#[test]
fn a_queue_that_marks_is_not_filled() {
    let text = "name = \"marks\"\n[forward]\nrate = \"20 Mbit/s\"\ndelay = \"20 ms\"\n\
        queue.marking = { limit = \"400 kB\", above = \"12 kB\" }\n\
        [return]\nrate = \"5 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"50 kB\"\n";
    let mut link = draw::draw(1, 0);
    link.scenario = Scenario::parse(text).expect("a scenario of this test");
    (link.bits, link.host, link.seconds) = (20_000_000, HostSpec::IDEAL, 10);
    for controller in [&[Choice::Satellite], &never_worst::OTHERS[..]].concat() {
        let plan = never_worst::plan(&link, controller, 1);
        let records = Records::of(&plan, Instant::now()).expect("a plan of this test");
        let waited = (records.samples.iter())
            .filter_map(|sample| sample.waited_ns)
            .max()
            .expect("packets waited");
        assert!(waited < 45_400_000, "{controller}: {waited} ns");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let figures =
        || never_worst::runs(1, &[0], &[Choice::Satellite], 2, Vec::new(), Instant::now());
    assert_eq!(figures(), figures());
}

fn ran(
    controller: Choice,
    repetition: u64,
    goodput: f64,
    reached: Option<f64>,
) -> never_worst::Run {
    never_worst::Run {
        link: 0,
        controller,
        repetition,
        lasted: 60,
        seconds: [reached, None, None],
        goodput,
        queue_p95_ms: 0.0,
        lost: 0.0,
    }
}

/// One unlucky seed of three moves the worst seed's figure and no median.
#[test]
fn a_cell_has_the_median_of_its_seeds_and_the_worst() {
    let runs: Vec<_> = [(0, 9.0, 2.0), (1, 10.0, 2.0), (2, 2.0, 8.0)]
        .into_iter()
        .flat_map(|(seed, goodput, seconds)| {
            [
                ran(Choice::Satellite, seed, goodput, Some(seconds)),
                ran(Choice::Cubic, seed, 10.0, Some(1.0)),
                ran(Choice::NewReno, seed, 5.0, (seed == 0).then_some(0.5)),
            ]
        })
        .collect();
    let cells = never_worst::cells(&runs, Choice::Satellite);
    let of = |measure| {
        let cell = cells.iter().find(|cell| cell.measure == measure);
        cell.map(|cell| (cell.score, cell.worst_seed, cell.best))
    };
    assert_eq!(of("goodput"), Some((0.9, 0.2, Choice::Cubic)));
    assert_eq!(of("100 kB"), Some((0.5, 0.125, Choice::Cubic)));
    assert_eq!(of("2 MB"), None, "nobody carried them");
}

#[test]
fn of_the_best_of_all_the_best_has_all() {
    let runs = [
        ran(Choice::Satellite, 0, 8.0, None),
        ran(Choice::Cubic, 0, 10.0, Some(2.0)),
        ran(Choice::NewReno, 0, 5.0, Some(1.0)),
    ];
    let shares = never_worst::shares_of_best(&runs);
    // 100 kB and the goodput; nobody carried more.
    assert_eq!(shares[&Choice::Satellite], [0.0, 0.8]);
    assert_eq!(shares[&Choice::Cubic], [0.5, 1.0]);
    assert_eq!(shares[&Choice::NewReno], [1.0, 0.5]);
}

/// Jitter that lasts for 20 ms stands for longer than a queue has to, and a path of 34 ms gave way to it: 303 of 400 Mbit/s (CUBIC 373), and 76 of
/// 438 for good where the queue was short.
#[test]
fn jitter_that_lasts_for_longer_than_a_queue_is_looked_for_is_none() {
    let (received, lost) = over_jitter(400, 34, "{ up_to = \"10 ms\", every = \"20 ms\" }", 1);
    assert!(received > 420_000_000, "{received} bytes in ten seconds");
    assert!(lost < 0.05, "{lost:.3}");
}

/// 378 Mbit/s and 14 ms, 7 ms of jitter that lasts for 20, hosts that read late: slow start ended with several times what the path carries, beside
/// which no acknowledgement came too fast any more. So jitter was a queue, and four of ten seeds stayed at a fifth to a half of the link (others carry
/// 357). One still does (docs/limitations.md): this holds what was won, not the goal.
#[test]
#[ignore = "takes long: make test-long"]
fn jitter_behind_a_rate_that_was_too_high_is_no_queue() {
    let carried: Vec<f64> = (runs(291_130, 32, 10).iter())
        .map(|run| run.goodput)
        .collect();
    let crawl = carried.iter().filter(|mbit| **mbit < 220.0).count();
    assert!(crawl <= 1, "{carried:.0?}");
}

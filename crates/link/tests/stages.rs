//! Each stage does what its scenario says.

mod support;

use bentpipe_link::Change;
use bentpipe_link::{Cause, Direction};
use bentpipe_units::{OneWayDelay, Rate, Span, Time};
use support::{Arrival, forward, run};

const SECOND: u64 = 1_000_000_000;

fn every(gap_us: u64, count: usize) -> Vec<Arrival> {
    vec![(gap_us * 1000, 1500, 0); count]
}

fn seconds(count: u64) -> Span {
    Span::from_nanos(count * SECOND)
}

#[test]
fn products_become_bytes_and_limits_in_time_stay() {
    let limit = |text: &str| {
        forward(&format!(
            "rate = \"10 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"{text}\""
        ))
        .queue
        .limit()
        .to_string()
    };
    // What it comes to follows the rate.
    assert_eq!(limit("100 ms"), "100 ms");
    // Half of 10 Mbit/s times 40 ms.
    assert_eq!(limit("0.5 BDP"), "25 kB");
    assert_eq!(limit("30 packets"), "30 packets");
}

#[test]
fn codel_keeps_the_standing_queue_near_its_target() {
    let text = |queue: &str| format!("rate = \"10 Mbit/s\"\ndelay = \"0 ms\"\n{queue}");
    // 5 % more than the link carries, for 20 s: a drop-tail queue fills up.
    let arrivals = every(1143, 17_500);
    let wait = |spec: &str, ecn: bool| {
        let (link, out) = run(&forward(&text(spec)), 1, ecn, &arrivals, seconds(10));
        let late = out.iter().filter(|d| d.at >= Time::ZERO + seconds(10));
        let waits: Vec<_> = late
            .map(|d| d.at.since(d.packet.entered).as_nanos() / 1_000_000)
            .collect();
        let mean = waits.iter().sum::<u64>() / waits.len() as u64;
        (mean, link)
    };
    let (fifo, _) = wait("queue = \"500 kB\"", false);
    let (codel, link) = wait("queue.codel = { limit = \"500 kB\" }", false);
    assert!(fifo > 300 && codel < 60, "{fifo} ms and {codel} ms");
    let drops = link.counters().dropped;
    assert!(
        drops.of(Cause::Management) > 400 && drops.of(Cause::Queue) == 0,
        "{drops:?}"
    );
    let (pie, link) = wait("queue.pie = { limit = \"500 kB\" }", false);
    assert!(pie < 60, "{pie} ms");
    assert!(link.counters().dropped.of(Cause::Management) > 400);
    // What can be marked is marked, not dropped: an unresponsive sender is then
    // stopped by the limit alone.
    let (_, link) = wait("queue.codel = { limit = \"500 kB\", ecn = true }", true);
    assert_eq!(link.counters().dropped.of(Cause::Management), 0);
    assert!(link.counters().marked > 400);
}

#[test]
fn fq_codel_serves_flows_alike_and_new_ones_first() {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay = \"0 ms\"\nqueue.fq-codel = { limit = \"3000 packets\", target = \"1 s\", interval = \"10 s\" }",
    );
    // Flow 1 sends two packets for each one of flow 2, together 1.5 times the rate.
    let mut arrivals = Vec::new();
    for _ in 0..1000 {
        arrivals.extend([(2_000_000, 1500, 1), (0, 1500, 1), (0, 1500, 2)]);
    }
    // Then one packet of a flow that was not there before.
    arrivals.push((0, 100, 3));
    let (link, out) = run(&spec, 1, false, &arrivals, seconds(30));
    let busy: Vec<_> = out
        .iter()
        .filter(|d| d.at.as_nanos() < 2 * SECOND)
        .collect();
    let share = |flow| busy.iter().filter(|d| d.packet.flow == flow).count();
    assert!(
        share(1).abs_diff(share(2)) <= 30,
        "{} and {}",
        share(1),
        share(2)
    );
    let new = out.iter().find(|d| d.packet.flow == 3).unwrap();
    assert!(
        new.at.since(new.packet.entered) <= Span::from_millis(3),
        "{new:?}"
    );
    assert_eq!(link.counters().dropped.total(), 0);
}

#[test]
fn a_full_fq_codel_takes_half_of_the_longest_queue_and_no_more_than_64() {
    let drops = |limit: u32| {
        let spec = forward(&format!(
            "rate = \"12 Mbit/s\"\ndelay = \"0 ms\"\nqueue.fq-codel = {{ limit = \"{limit} packets\", target = \"1 s\", interval = \"10 s\" }}"
        ));
        // One is being sent, two of flow 2 wait, flow 1 fills the rest and one more.
        let mut arrivals = vec![(0, 1500, 2), (0, 1500, 2), (0, 1500, 2)];
        arrivals.extend(vec![(0, 1500, 1); limit as usize - 1]);
        let (link, out) = run(&spec, 1, false, &arrivals, seconds(30));
        let first = out.iter().find(|d| d.packet.flow == 1).unwrap();
        // Dropped from the head: the first that is left is the one behind them.
        assert_eq!(
            first.packet.number as u64,
            3 + link.counters().dropped.of(Cause::Queue)
        );
        link.counters().dropped.of(Cause::Queue)
    };
    assert_eq!((drops(20), drops(101), drops(1000)), (9, 50, 64));
}

#[test]
fn a_drop_tail_queue_marks_above_its_threshold() {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay = \"0 ms\"\nqueue.marking = { limit = \"100 packets\", above = \"20 packets\" }",
    );
    let marked = |ecn: bool, count: usize| {
        let (link, out) = run(&spec, 1, ecn, &every(0, count), seconds(1));
        let marked: Vec<_> = out
            .iter()
            .filter(|d| d.packet.marked)
            .map(|d| d.packet.number)
            .collect();
        assert_eq!(link.counters().marked, marked.len() as u64);
        (marked, link.counters().dropped.of(Cause::Queue))
    };
    // One is being sent and twenty wait: the next one finds twenty, not more.
    assert_eq!(marked(true, 22), (vec![], 0));
    assert_eq!(marked(true, 25), (vec![22, 23, 24], 0));
    // What cannot be marked passes; what does not fit is dropped as ever.
    assert_eq!(marked(false, 110), (vec![], 9));
    assert_eq!(marked(true, 110), ((22..101).collect(), 9));
}

#[test]
fn a_rate_trace_is_followed_to_the_nanosecond() {
    let spec = forward(
        "rate.trace = { points = [[\"0 s\", \"12 Mbit/s\"], [\"1 s\", \"0 bit/s\"], [\"2 s\", \"6 Mbit/s\"], [\"3 s\", \"6 Mbit/s\"]], at_end = \"loop\" }\ndelay = \"0 ms\"\nqueue = \"10000 packets\"",
    );
    // 1000 packets in the first second, none in the next, 500 in the third; then again.
    let (_, out) = run(&spec, 1, false, &every(0, 2000), seconds(60));
    assert_eq!(out[999].at.as_nanos(), SECOND);
    assert_eq!(out[1000].at.as_nanos(), 2 * SECOND + 2_000_000);
    assert_eq!(out[1499].at.as_nanos(), 3 * SECOND);
    assert_eq!(out[1500].at.as_nanos(), 3 * SECOND + 1_000_000);
}

#[test]
fn a_trace_that_ends_takes_the_link_down() {
    let spec = forward(
        "rate.trace = { points = [[\"0 s\", \"12 Mbit/s\"], [\"1 s\", \"12 Mbit/s\"]], at_end = \"end\" }\ndelay = \"0 ms\"\nqueue = \"10000 packets\"",
    );
    let (link, out) = run(&spec, 1, false, &every(0, 2000), seconds(60));
    assert_eq!(out.len(), 999);
    assert_eq!(link.counters().dropped.of(Cause::Outage), 1001);
}

#[test]
fn mahimahi_opportunities_carry_1504_bytes_each() {
    let spec = forward(
        "rate.mahimahi = { opportunities = [10, 10, 20], at_end = \"loop\" }\ndelay = \"0 ms\"\nqueue = \"100 packets\"",
    );
    let at = |arrivals: &[Arrival]| {
        let (_, out) = run(&spec, 1, false, arrivals, seconds(1));
        out.iter()
            .map(|d| d.at.as_nanos() / 1_000_000)
            .collect::<Vec<_>>()
    };
    assert_eq!(at(&[(0, 1504, 0); 4]), [10, 10, 20, 30]);
    // Small packets share one; a large one needs several.
    assert_eq!(
        at(&[(0, 500, 0), (0, 500, 0), (0, 500, 0), (0, 500, 0)]),
        [10, 10, 10, 10]
    );
    assert_eq!(at(&[(0, 4000, 0)]), [20]);
    // Opportunities at which nothing waits are gone.
    assert_eq!(at(&[(15_000_000, 1504, 0), (0, 1504, 0)]), [20, 30]);
}

#[test]
fn gilbert_elliott_loses_in_bursts() {
    let spec = forward(
        "rate = \"1 Gbit/s\"\ndelay = \"0 ms\"\nqueue = \"10 packets\"\nloss.gilbert-elliott = { to_bad = \"1 %\", to_good = \"25 %\" }",
    );
    let (link, out) = run(&spec, 3, false, &every(20, 100_000), seconds(1));
    let lost = link.counters().dropped.of(Cause::Loss);
    // 1/26 of 100000; bursts of 4 packets on average.
    assert!((3400..4300).contains(&lost), "{lost}");
    let bursts = out
        .windows(2)
        .filter(|p| p[1].packet.number > p[0].packet.number + 1)
        .count() as u64;
    let mean = lost as f64 / bursts as f64;
    assert!((3.6..4.4).contains(&mean), "{mean}");
}

#[test]
fn bursts_of_losses_and_of_damage_can_be_bounded() {
    let bounded = "bounded = { chance = \"60 %\", max_burst = 3 }";
    let spec = |what: &str| {
        forward(&format!(
            "rate = \"1 Gbit/s\"\ndelay = \"0 ms\"\nqueue = \"10 packets\"\n{what}.{bounded}"
        ))
    };
    // Runs of 0, 1, 2 or 3 and then one that is spared: 0.6 + 0.36 + 0.216 = 1.176 on
    // average, so 1.176 of every 2.176; 99.9 % interval of independent runs.
    let expected = 1.176 / 2.176;
    let share = |hit: usize| (hit as f64 / 100_000.0 - expected).abs();
    let (_, out) = run(&spec("loss"), 1, false, &every(20, 100_000), seconds(1));
    assert!(share(100_000 - out.len()) < 0.006, "{}", out.len());
    let longest = |gaps: &mut dyn Iterator<Item = usize>| gaps.max().unwrap();
    let lost = longest(
        &mut out
            .windows(2)
            .map(|p| p[1].packet.number - p[0].packet.number - 1),
    );
    assert_eq!(lost, 3);
    let (_, out) = run(&spec("corrupt"), 1, false, &every(20, 100_000), seconds(1));
    let whole: Vec<_> = out.iter().filter(|d| !d.packet.damaged).collect();
    assert!(share(100_000 - whole.len()) < 0.006, "{}", whole.len());
    let damaged = longest(
        &mut whole
            .windows(2)
            .map(|p| p[1].packet.number - p[0].packet.number - 1),
    );
    assert_eq!(damaged, 3);
    assert!((spec("loss").loss.mean() - expected).abs() < 1e-9);
}

#[test]
fn losses_come_in_step_or_as_recorded() {
    let through = |loss: &str| {
        let spec = forward(&format!(
            "rate = \"1 Gbit/s\"\ndelay = \"0 ms\"\nqueue = \"10 packets\"\n{loss}"
        ));
        let (_, out) = run(&spec, 1, false, &every(20, 12), seconds(1));
        out.iter().map(|d| d.packet.number).collect::<Vec<_>>()
    };
    assert_eq!(
        through("loss.periodic = { every = 5, lose = 2, first = 1 }"),
        [0, 3, 4, 5, 8, 9, 10]
    );
    assert_eq!(
        through("loss.trace = { fates = \".x..\", at_end = \"loop\" }"),
        [0, 2, 3, 4, 6, 7, 8, 10, 11]
    );
    assert_eq!(
        through("loss.trace = { fates = \"x.\", at_end = \"hold\" }"),
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    );
    assert_eq!(
        through("loss.trace = { fates = \"x.\", at_end = \"end\" }"),
        [1]
    );
}

#[test]
fn outages_lose_or_hold() {
    let spec = |packets: &str| {
        forward(&format!(
            "rate = \"12 Mbit/s\"\ndelay = \"0 ms\"\nqueue = \"10000 packets\"\noutages = [{{ from = \"1 s\", for = \"500 ms\", every = \"2 s\", packets = \"{packets}\" }}]"
        ))
    };
    let arrivals = every(10_000, 500);
    let (link, _) = run(&spec("lost"), 1, false, &arrivals, seconds(5));
    // 50 packets each in 1.0 to 1.5 s and 3.0 to 3.5 s, and the last one at 5 s.
    assert_eq!(link.counters().dropped.of(Cause::Outage), 101);
    let (link, out) = run(&spec("wait"), 1, false, &arrivals, seconds(5));
    assert_eq!(link.counters().dropped.total(), 0);
    let down = |at: u64| (1001..1500).contains(&(at % 2000));
    assert!(
        out.iter().all(|d| !down(d.at.as_nanos() / 1_000_000)),
        "nothing leaves in between"
    );
}

#[test]
fn duplicates_and_late_packets_only_when_asked_for() {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay = \"5 ms\"\nqueue = \"100 packets\"\nduplicate = \"10 %\"\nreorder = { chance = \"10 %\", by = \"7 ms\" }\ncorrupt = \"10 %\"",
    );
    let (link, out) = run(&spec, 1, false, &every(1500, 2000), seconds(1));
    let counters = link.counters();
    assert!((150..250).contains(&counters.duplicated), "{counters:?}");
    assert!((150..250).contains(&counters.reordered), "{counters:?}");
    assert_eq!(
        counters.corrupted,
        out.iter()
            .filter(|d| d.packet.damaged)
            .map(|d| d.packet.number)
            .collect::<std::collections::BTreeSet<_>>()
            .len() as u64
    );
    assert!(
        out.windows(2)
            .any(|pair| pair[0].packet.number > pair[1].packet.number)
    );
}

#[test]
fn a_falling_delay_does_not_reorder() {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay.trace = { points = [[\"0 s\", \"100 ms\"], [\"1 s\", \"20 ms\"]], at_end = \"hold\" }\nqueue = \"100 packets\"",
    );
    let (_, out) = run(&spec, 1, false, &every(2000, 1000), seconds(1));
    assert!(
        out.windows(2)
            .all(|pair| pair[0].packet.number < pair[1].packet.number)
    );
    assert_eq!(out.len(), 1000);
    let last = out.last().unwrap();
    assert_eq!(last.at.since(last.packet.entered), Span::from_millis(21));
}

#[test]
fn jitter_is_bounded_and_keeps_the_order() {
    let delays = |jitter: &str| {
        let spec = forward(&format!(
            "rate = \"12 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"100 packets\"\njitter = {{ {jitter} }}"
        ));
        let (_, out) = run(&spec, 1, false, &every(5_000, 4_000), seconds(1));
        assert!(
            out.windows(2)
                .all(|pair| pair[0].packet.number < pair[1].packet.number)
        );
        let delays: Vec<_> = out
            .iter()
            .map(|d| d.at.since(d.packet.entered).as_nanos() as f64 / 1e6 - 21.0)
            .collect();
        assert_eq!(delays.len(), 4_000);
        delays
    };
    // Packets 5 ms apart cannot meet within 4 ms: even draws, 2 ms on average,
    // deviation 4 / sqrt(12) = 1.155 ms.
    let each = delays("up_to = \"4 ms\"");
    let mean = each.iter().sum::<f64>() / 4e3;
    let deviation = (each.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 4e3).sqrt();
    assert!((mean - 2.0).abs() < 0.08, "{mean}");
    assert!((deviation - 1.155).abs() < 0.04, "{deviation}");
    assert!(each.iter().all(|d| (0.0..=4.0).contains(d)));
    // A draw holds for 200 ms, that is for 40 packets.
    let held = delays("up_to = \"4 ms\", every = \"200 ms\"");
    let changes = held.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes, 100);
    // Packets that would overtake wait for the one before: still within the bound.
    assert!(
        delays("up_to = \"300 ms\"")
            .iter()
            .all(|d| (0.0..=300.0).contains(d))
    );
}

#[test]
fn a_constellation_changes_satellites_every_15_s() {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"1000 packets\"\nreconfigure = { every = \"15 s\", first = \"5 s\", step = \"20 ms\", gap = \"100 ms\", burst = \"200 ms\", loss = \"50 %\" }",
    );
    let (link, out) = run(&spec, 1, false, &every(10_000, 6000), seconds(1));
    let lost = link.counters().dropped.of(Cause::Reconfiguration);
    // Four changes; each hits about 30 packets (those held in the gap and 20 more).
    assert!((35..90).contains(&lost), "{lost}");
    let epoch = |at: Time| (at.as_nanos() + 10 * SECOND) / (15 * SECOND);
    let mut delays: Vec<_> = out
        .iter()
        .filter(|d| (d.packet.entered.as_nanos() + 10 * SECOND) % (15 * SECOND) > SECOND)
        .map(|d| (epoch(d.packet.entered), d.at.since(d.packet.entered)))
        .collect();
    delays.dedup();
    assert_eq!(delays.len(), 5, "one delay for each satellite: {delays:?}");
    assert!(
        delays
            .iter()
            .all(|(_, delay)| (11..=31).contains(&(delay.as_nanos() / 1_000_000)))
    );
    let gap = out
        .iter()
        .filter(|d| {
            (5_000_000_000..5_100_000_000).contains(&(d.at.as_nanos().saturating_sub(30_000_000)))
        })
        .count();
    assert!(
        gap <= 4,
        "the gap is silent but for what left before it: {gap}"
    );
}

#[test]
fn cross_traffic_takes_its_share_of_the_queue() {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay = \"0 ms\"\nqueue = \"100 packets\"\ncross = [{ rate = \"6 Mbit/s\", from = \"1 s\", until = \"3 s\" }, { rate = \"6 Mbit/s\", from = \"1 s\", until = \"3 s\", on = \"100 ms\", off = \"100 ms\", exponential = true }]",
    );
    let (link, out) = run(&spec, 1, false, &every(1000, 4000), seconds(2));
    let count = |from: u64, to: u64| {
        out.iter()
            .filter(|d| (from * SECOND..to * SECOND).contains(&d.at.as_nanos()))
            .count()
    };
    assert_eq!(count(0, 1), 998);
    let beside = count(1, 3);
    assert!((900..1300).contains(&beside), "{beside} of 2000");
    assert!(link.counters().dropped.of(Cause::Queue) > 500);
    assert_eq!(link.held(), 0);
}

#[test]
fn changes_come_when_they_are_planned() {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"100 packets\"\nchange = [{ at = \"1 s\", rate = \"6 Mbit/s\" }, { at = \"2 s\", delay = \"50 ms\", loss = \"100 %\" }, { at = \"3 s\", loss = \"0 %\", outage = true }, { at = \"4 s\", outage = false }]",
    );
    let (link, out) = run(&spec, 1, false, &every(100_000, 50), seconds(1));
    let delay = |number: usize| {
        out.iter()
            .find(|d| d.packet.number == number)
            .map(|d| d.at.since(d.packet.entered).as_nanos() / 1_000_000)
    };
    assert_eq!(
        (delay(5), delay(15), delay(25), delay(35), delay(45)),
        (Some(11), Some(12), None, None, Some(52))
    );
    assert_eq!(link.counters().dropped.of(Cause::Loss), 10);
    assert_eq!(link.counters().dropped.of(Cause::Outage), 10);
}

#[test]
fn an_outage_of_some_time_ends_by_itself_and_is_not_cut_short_by_another() {
    let lost = |changes: &str| {
        let spec = forward(&format!(
            "rate = \"12 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"100 packets\"\nchange = [{changes}]"
        ));
        let mut link = Direction::new(&spec, 1);
        // Packets leave at 101 ms, 201 ms and so on.
        for at in 1..=20 {
            let _ = link.handle_arrival(Time::from_nanos(at * 100_000_000), vec![0u8; 1500]);
        }
        while let Some(at) = link.poll_timeout() {
            while link.poll_departure(at).is_some() {}
        }
        link.counters().dropped.of(Cause::Outage)
    };
    assert_eq!(lost("{ at = \"500 ms\", outage = \"1 s\" }"), 10);
    assert_eq!(
        lost("{ at = \"500 ms\", outage = \"1 s\" }, { at = \"600 ms\", outage = \"1 ms\" }"),
        10
    );
    assert_eq!(
        lost("{ at = \"500 ms\", outage = \"1 s\" }, { at = \"1 s\", outage = false }"),
        5
    );
    let error = Change::parse("outage = \"0 s\"").unwrap_err().to_string();
    assert!(error.contains("an outage of no time"), "{error}");
}

#[test]
fn a_link_can_be_changed_by_hand() {
    let spec = forward("rate = \"12 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"100 packets\"");
    let mut link: Direction<Vec<u8>> = Direction::new(&spec, 1);
    link.apply(
        Time::ZERO,
        &Change {
            rate: Some(Rate::from_bits_per_second(1_200_000)),
            delay: Some(OneWayDelay::new(Span::from_millis(1))),
            ..Change::default()
        },
    );
    assert_eq!(
        Change::parse("rate = \"1.2 Mbit/s\"\ndelay = \"1 ms\"").unwrap(),
        Change {
            rate: Some(Rate::from_bits_per_second(1_200_000)),
            delay: Some(OneWayDelay::new(Span::from_millis(1))),
            ..Change::default()
        }
    );
    let error = Change::parse("rate = \"0 bit/s\"").unwrap_err().to_string();
    assert!(
        error.contains("change.rate = \"0 bit/s\": a link that sends nothing"),
        "{error}"
    );
    link.handle_arrival(Time::ZERO, vec![0; 1500]).unwrap();
    assert_eq!(link.poll_timeout().map(Time::as_nanos), Some(10_000_000));
    assert!(link.poll_departure(Time::from_nanos(10_999_999)).is_none());
    assert!(link.poll_departure(Time::from_nanos(11_000_000)).is_some());
}

#[test]
fn a_switch_loses_what_waits_and_lands_what_flies() {
    let text = "name = \"t\"\n[forward]\nrate = \"12 Mbit/s\"\ndelay = \"100 ms\"\nqueue = \"1000 packets\"\n[return]\nrate = \"1 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"100 packets\"\n[[switch]]\nat = \"500 ms\"\nnew_address = true\nforward = { rate = \"12 Mbit/s\", delay = \"10 ms\", queue = \"10 packets\" }\nreturn = { rate = \"12 Mbit/s\", delay = \"10 ms\", queue = \"10 packets\" }\n";
    let scenario = bentpipe_link::Scenario::parse(text).unwrap();
    assert!(scenario.switch[0].new_address);
    assert_eq!(
        bentpipe_link::Scenario::parse(&toml::to_string(&scenario).unwrap()).unwrap(),
        scenario
    );
    let mut arrivals = every(0, 600);
    arrivals.push((600_000_000, 1500, 0));
    let (link, out) = run(&scenario.forward, 1, false, &arrivals, seconds(1));
    // 499 left before the switch (the 500th leaves at its moment, after it); the last one has the new way.
    assert_eq!(out.len(), 500);
    assert_eq!(link.counters().dropped.of(Cause::Switch), 101);
    assert_eq!(out.last().unwrap().at.as_nanos(), 611_000_000);
}

#[test]
fn drops_inside_can_be_watched() {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay = \"0 ms\"\nqueue = \"1000 packets\"\nloss = \"100 %\"",
    );
    let mut link: Direction<Vec<u8>> = Direction::new(&spec, 1);
    link.keep_drops();
    link.handle_arrival(Time::ZERO, vec![0; 1500]).unwrap();
    assert!(link.poll_departure(Time::from_nanos(SECOND)).is_none());
    let drop = link.poll_drop().unwrap();
    assert_eq!(
        (drop.at.as_nanos(), drop.cause, drop.packet.len()),
        (1_000_000, Cause::Loss, 1500)
    );
}

#[test]
fn ip_packets_are_marked_and_damaged_where_they_should_be() {
    use bentpipe_link::Packet;
    // An IPv4 header with ECT(0) and its right checksum.
    let mut packet = vec![
        0x45, 0x02, 0x00, 0x1c, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2,
        0, 8, 0, 0,
    ];
    let sum = |packet: &[u8]| {
        let words = packet[..20]
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum::<u32>();
        (words & 0xffff) + (words >> 16)
    };
    let checksum = !u16::try_from(sum(&packet)).unwrap();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    assert!(packet.mark_ce());
    assert_eq!((packet[1] & 3, sum(&packet)), (3, 0xffff));
    let header = packet[..20].to_vec();
    assert!(packet.corrupt(12_345));
    assert_eq!(packet[..20], header[..]);
    let mut plain = packet.clone();
    plain[1] = 0;
    assert!(!plain.mark_ce(), "not ECN-capable");
    let mut six = vec![0x60, 0x10, 0, 0];
    six.resize(48, 0);
    assert!(six.mark_ce());
    assert_eq!(six[1], 0x30);
    assert_ne!(packet.flow(), six.flow());
    assert!(!Vec::new().corrupt(1) && !vec![0u8; 40].mark_ce());
}

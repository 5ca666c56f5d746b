//! What can be changed of a running link, and what its two directions have in common.

mod support;

use bentpipe_link::{Cause, Change, Direction, Scenario, Seeds};
use bentpipe_units::{Span, Time};
use support::{forward, run};

const PLAIN: &str = "rate = \"12 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"100 ms\"";

fn ms(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// Packets of 1500 bytes that are let in when so many come at once.
fn admitted(link: &mut Direction<Vec<u8>>, now: Time, offered: usize) -> u64 {
    let before = link.counters().dropped.of(Cause::Queue);
    for _ in 0..offered {
        let _ = link.handle_arrival(now, vec![0; 1500]);
    }
    offered as u64 - (link.counters().dropped.of(Cause::Queue) - before)
}

fn empty(link: &mut Direction<Vec<u8>>, now: Time) {
    while link.poll_departure(now).is_some() {}
    assert_eq!(link.held(), 0);
}

#[test]
fn a_queue_given_in_time_keeps_its_time_when_the_rate_changes() {
    // 1500 bytes take 1 ms at 12 Mbit/s: 100 wait, and one is on the transmitter.
    let mut link = Direction::new(&forward(PLAIN), 1);
    assert_eq!(admitted(&mut link, ms(0), 500), 101);
    empty(&mut link, ms(1000));
    link.apply(ms(1000), &Change::parse("rate = \"24 Mbit/s\"").unwrap());
    assert_eq!(admitted(&mut link, ms(1000), 500), 201);
    empty(&mut link, ms(2000));
    // 100 ms of 8 kbit/s are less than a packet, and one waits all the same.
    link.apply(ms(2000), &Change::parse("rate = \"8 kbit/s\"").unwrap());
    assert_eq!(admitted(&mut link, ms(2000), 500), 2);
    // In bytes it stays what it is.
    let bytes = PLAIN.replace("100 ms", "150 kB");
    let mut link = Direction::new(&forward(&bytes), 1);
    link.apply(ms(0), &Change::parse("rate = \"24 Mbit/s\"").unwrap());
    assert_eq!(admitted(&mut link, ms(0), 500), 101);
}

#[test]
fn another_queue_takes_over_what_waits_as_far_as_it_has_room() {
    let mut link = Direction::new(&forward(PLAIN), 1);
    assert_eq!(admitted(&mut link, ms(0), 101), 101);
    link.apply(ms(0), &Change::parse("queue = \"10 packets\"").unwrap());
    assert_eq!(link.counters().dropped.of(Cause::Queue), 90);
    assert_eq!(link.held(), 11);
    link.apply(
        ms(0),
        &Change::parse("queue = { codel = { limit = \"20 ms\" } }").unwrap(),
    );
    assert_eq!(admitted(&mut link, ms(0), 100), 10);
    empty(&mut link, ms(1000));
    let error = Change::parse("queue = \"3 B\"").unwrap_err().to_string();
    assert!(error.contains("change.queue"), "{error}");
}

#[test]
fn jitter_duplicates_damage_and_reordering_can_begin_and_end() {
    let arrivals: Vec<_> = (0..100).map(|_| (2_000_000, 1500, 0)).collect();
    let count = |changes: &str| {
        let spec = forward(&format!("{PLAIN}\nchange = [{changes}]"));
        let (link, out) = run(&spec, 1, false, &arrivals, Span::from_millis(1000));
        let delays: Vec<_> = out
            .iter()
            .map(|out| out.at.since(out.packet.entered).as_nanos())
            .collect();
        let steady = delays.iter().filter(|delay| **delay == 11_000_000).count();
        let counters = *link.counters();
        (
            steady,
            counters.duplicated,
            counters.corrupted,
            counters.reordered,
        )
    };
    let from_half = |what: &str, end: &str| {
        count(&format!(
            "{{ at = \"101 ms\", {what} }}, {{ at = \"151 ms\", {end} }}"
        ))
    };
    assert_eq!(count(""), (100, 0, 0, 0));
    let (steady, ..) = from_half(
        "jitter = { up_to = \"1 ms\" }",
        "jitter = { up_to = \"0 ms\" }",
    );
    assert_eq!(steady, 75);
    let all = |key: &str| format!("{key} = \"100 %\"");
    let none = |key: &str| format!("{key} = \"0 %\"");
    let (_, twice, ..) = from_half(&all("duplicate"), &none("duplicate"));
    assert_eq!(twice, 25);
    let (_, _, damaged, _) = from_half(&all("corrupt"), &none("corrupt"));
    assert_eq!(damaged, 25);
    let (.., overtaken) = from_half(
        "reorder = { chance = \"100 %\", by = \"5 ms\" }",
        "reorder = { chance = \"0 %\", by = \"5 ms\" }",
    );
    assert_eq!(overtaken, 25);
}

#[test]
fn one_satellite_is_as_far_away_in_both_directions() {
    let direction = "rate = \"12 Mbit/s\"\ndelay = \"10 ms\"\nqueue = \"100 ms\"\nreconfigure = { step = \"20 ms\" }";
    let text = format!("name = \"t\"\n[forward]\n{direction}\n[return]\n{direction}\n");
    let scenario = Scenario::parse(&text).unwrap();
    let arrivals: Vec<_> = (0..20).map(|_| (15_000_000_000, 1500, 0)).collect();
    let delays = |spec, seed| -> Vec<u64> {
        let (_, out) = run(spec, seed, false, &arrivals, Span::from_millis(1000));
        out.iter()
            .map(|out| out.at.since(out.packet.entered).as_nanos())
            .collect()
    };
    let seeds = Seeds::of_link(7, 0);
    let forward = delays(&scenario.forward, seeds.forward);
    assert_eq!(forward, delays(&scenario.r#return, seeds.r#return));
    assert!(forward.windows(2).any(|pair| pair[0] != pair[1]));
    let other = delays(&scenario.forward, Seeds::of_link(7, 1).forward);
    assert_ne!(forward, other, "another terminal has another satellite");
}

#[test]
fn a_frame_in_two_fragments_is_lost_with_either() {
    let share = |loss: &str| {
        let spec = forward(&format!("{PLAIN}\nloss = {loss}"));
        let arrivals: Vec<_> = (0..20_000).map(|_| (2_000_000, 1500, 0)).collect();
        let (link, _) = run(&spec, 1, false, &arrivals, Span::from_millis(1000));
        link.counters().dropped.of(Cause::Loss) as f64 / 20_000.0
    };
    let two = share("{ fragmented = { chance = \"10 %\", fragments = 2 } }");
    assert!((two - 0.19).abs() < 0.01, "{two}");
    let one = share("{ fragmented = { chance = \"10 %\", fragments = 1 } }");
    assert_eq!(one, share("\"10 %\""), "the same draws");
    let error = Scenario::parse(&format!(
        "name = \"t\"\n[forward]\n{PLAIN}\nloss = {{ fragmented = {{ chance = \"1 %\", fragments = 0 }} }}\n[return]\n{PLAIN}\n"
    ))
    .unwrap_err()
    .to_string();
    assert!(error.contains("fragments"), "{error}");
}

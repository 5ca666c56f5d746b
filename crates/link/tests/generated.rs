//! What must hold for every link that the scenario grammar can express,
//! whatever comes in: scenarios are generated as text.

mod support;

use std::collections::BTreeSet;

use bentpipe_link::spec::{DelaySpec, DirectionSpec, QueueLimit, QueueSpec, RateSpec};
use bentpipe_link::{Change, Departure, Direction, Scenario};
use bentpipe_units::{OneWayDelay, Span, Time};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use support::{Arrival, Probe, grammar, run};

/// The last moment that matters: links of 1 kbit/s are slow.
const LONG: Span = Span::from_millis(100_000_000);
/// Longer than all that scenarios of this file do.
const SHORT: Span = Span::from_millis(30_000);

fn parse(text: &str) -> Scenario {
    Scenario::parse_with(text, &mut grammar::file).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    // Now and then a gap that is longer than most outages and polls.
    let gap = prop_oneof![9 => 0u64..9_000_000, 1 => 0u64..400_000_000];
    prop::collection::vec((gap, 20usize..1500, 0u64..4), 1..100)
}

fn fates(out: &[Departure<Probe>]) -> Vec<(Time, Probe)> {
    out.iter().map(|d| (d.at, d.packet.clone())).collect()
}

/// The link as it is at first, and all that take over from it.
fn links(spec: &DirectionSpec) -> Vec<&DirectionSpec> {
    let later = spec
        .change
        .iter()
        .filter_map(|change| change.change.link.as_deref());
    std::iter::once(spec).chain(later).collect()
}

fn switches(spec: &DirectionSpec) -> bool {
    spec.change
        .iter()
        .any(|change| change.change.link.is_some())
}

/// Nothing can arrive sooner after it entered.
fn shortest_delay(spec: &DirectionSpec) -> Span {
    let changed = |link: &DirectionSpec| {
        let delays = link.change.iter().filter_map(|change| change.change.delay);
        delays.chain([link.delay.shortest()]).min()
    };
    let shortest = links(spec).into_iter().filter_map(changed).min();
    shortest.unwrap_or_default().span()
}

/// Whether a receiver may wait for a missing frame for good, now or after a change of link.
fn resequences(spec: &DirectionSpec) -> bool {
    let links = spec.change.iter().filter_map(|c| c.change.link.as_deref());
    spec.resequence.is_some() || links.into_iter().any(resequences)
}

/// Conservation is checked by [`run`], after every packet.
fn obeys_the_laws(spec: &DirectionSpec, seed: u64, ecn: bool, arrivals: &[Arrival]) {
    // What is held behind a missing frame may be for good, and cross traffic goes on meanwhile.
    let until = if resequences(spec) { SHORT } else { LONG };
    let (link, out) = run(spec, seed, ecn, arrivals, until);
    let counters = link.counters();
    let entered = counters.entered_bytes + counters.duplicated_bytes;
    let ended = counters.delivered_bytes + counters.dropped_bytes;
    if link.held() > 0 {
        assert!(resequences(spec), "everything comes out in the end");
        assert!(entered > ended);
    } else {
        assert_eq!(entered, ended);
    }
    assert_eq!(counters.delivered, out.len() as u64);

    let shortest = shortest_delay(spec);
    for departure in &out {
        let earliest = departure.packet.entered + shortest;
        assert!(departure.at >= earliest, "not before its delay");
    }
    assert!(out.windows(2).all(|pair| pair[0].at <= pair[1].at));
    let reorders = links(spec).iter().any(|link| {
        let mut changes = link.change.iter();
        link.reorder.is_some() || changes.any(|planned| planned.change.reorder.is_some())
    });
    if !reorders && !switches(spec) {
        let fair = matches!(spec.queue, QueueSpec::FqCoDel(_));
        for flow in 0..4 {
            let numbers = out
                .iter()
                .filter(|d| d.packet.flow == flow || !fair)
                .map(|d| d.packet.number);
            assert!(numbers.is_sorted(), "first in, first out");
        }
    }

    let (_, again) = run(spec, seed, ecn, arrivals, until);
    assert_eq!(fates(&out), fates(&again), "twice the same");
    let last = out.last().map_or(Time::ZERO, |departure| departure.at);
    assert_eq!(
        fates(&out),
        fates(&asked_once(spec, seed, ecn, arrivals, last)),
        "the same, however seldom somebody looks"
    );
}

/// Departures until `last` of a link that nobody looks at before all has come in.
fn asked_once(
    spec: &DirectionSpec,
    seed: u64,
    ecn: bool,
    arrivals: &[Arrival],
    last: Time,
) -> Vec<Departure<Probe>> {
    let mut link = Direction::new(spec, seed);
    let end = feed(&mut link, ecn, arrivals, |_| ());
    std::iter::from_fn(|| link.poll_departure(end.max(last))).collect()
}

/// Lets packets in and shows the link after each; returns the last moment.
fn feed(
    link: &mut Direction<Probe>,
    ecn: bool,
    arrivals: &[Arrival],
    mut look: impl FnMut(&Direction<Probe>),
) -> Time {
    let mut now = Time::ZERO;
    for (number, (gap, ip_len, flow)) in arrivals.iter().enumerate() {
        now = now + Span::from_nanos(*gap);
        let probe = Probe {
            number,
            entered: now,
            ip_len: *ip_len,
            flow: *flow,
            ecn,
            marked: false,
            damaged: false,
        };
        let _ = link.handle_arrival(now, probe);
        look(link);
    }
    now
}

/// What the queue holds after each arrival, and what was dropped until then.
fn queued(spec: &DirectionSpec, seed: u64, arrivals: &[Arrival]) -> Vec<(usize, u64, u64)> {
    let mut link = Direction::new(spec, seed);
    let mut seen = Vec::new();
    feed(&mut link, true, arrivals, |link| {
        let queue = link.queue();
        seen.push((queue.len(), queue.bytes(), link.counters().dropped.total()));
    });
    seen
}

fn keeps_its_limit(spec: &DirectionSpec, arrivals: &[Arrival]) {
    let links = links(spec);
    let changes = || links.iter().flat_map(|link| &link.change);
    // Which link is in force is not told, so the largest limit counts, and of one in time
    // the largest rate.
    let rates = changes().filter_map(|planned| planned.change.rate);
    let ceilings = links.iter().map(|link| link.rate.ceiling());
    let ceiling = rates.chain(ceilings).max().unwrap();
    let most = |pick: &dyn Fn(QueueLimit) -> Option<u64>| {
        let changed = changes().filter_map(|planned| planned.change.queue);
        let queues = links.iter().map(|link| link.queue).chain(changed);
        let limits: Option<Vec<_>> = queues
            .map(|queue| pick(queue.limit().resolved(ceiling, Span::ZERO)))
            .collect();
        limits.and_then(|limits| limits.into_iter().max())
    };
    let packets = most(&|limit| match limit {
        QueueLimit::Packets(most) => Some(most.into()),
        _ => None,
    });
    let bytes = most(&|limit| match limit {
        QueueLimit::Bytes(most) => Some(most.as_u64()),
        _ => None,
    });
    for (len, held, _) in queued(spec, 1, arrivals) {
        assert!(packets.is_none_or(|most| len as u64 <= most));
        assert!(bytes.is_none_or(|most| held <= most));
    }
}

/// The same link with another length of air behind it.
fn with_delay(spec: &DirectionSpec, delay: Span) -> DirectionSpec {
    let mut spec = spec.clone();
    let constant = OneWayDelay::new(delay);
    // A trace that ends takes the link down with it: that is not length of air.
    if !matches!(&spec.delay, DelaySpec::Trace(trace) if trace.ends().is_some()) {
        spec.delay = constant.into();
    }
    for scheduled in &mut spec.change {
        let Change { delay, link, .. } = &mut scheduled.change;
        *delay = delay.and(Some(constant));
        if let Some(link) = link {
            **link = with_delay(link, constant.span());
        }
    }
    spec
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn every_link_keeps_the_laws(
        text in grammar::scenarios(),
        seed in any::<u64>(),
        ecn in any::<bool>(),
        arrivals in arrivals(),
    ) {
        let scenario = parse(&text);
        let echo = toml::to_string(&scenario).unwrap();
        prop_assert_eq!(Scenario::parse(&echo).unwrap(), scenario.clone(), "the echo says the same");
        for spec in [&scenario.forward, &scenario.r#return] {
            obeys_the_laws(spec, seed, ecn, &arrivals);
            keeps_its_limit(spec, &arrivals);
        }
    }

    #[test]
    fn bytes_on_the_air_are_never_in_the_queue(
        text in grammar::scenarios(),
        seed in any::<u64>(),
        arrivals in arrivals(),
    ) {
        let scenario = parse(&text);
        for spec in [&scenario.forward, &scenario.r#return] {
            let near = queued(&with_delay(spec, Span::ZERO), seed, &arrivals);
            let far = queued(&with_delay(spec, Span::from_millis(9_000)), seed, &arrivals);
            prop_assert_eq!(near, far, "whatever the length of the air");
        }
    }
}

/// A link that always has something to send sends what its ceiling says.
#[test]
fn a_saturated_link_is_used_up_whatever_sends_and_whatever_waits() {
    let rates = [
        "rate = \"7 Mbit/s\"",
        "rate.trace = { points = [[\"0 s\", \"12 Mbit/s\"], [\"300 ms\", \"0 bit/s\"], [\"400 ms\", \"3 Mbit/s\"], [\"1 s\", \"3 Mbit/s\"]], at_end = \"loop\" }",
        "rate.mahimahi = { opportunities = [1, 2, 2, 3, 7, 11], at_end = \"loop\" }",
        "rate.dvb-s2 = { bandwidth = \"9 MHz\", roll_off = 0.2, modcod = 1 }",
        "rate.dvb-s2 = { bandwidth = \"9 MHz\", roll_off = 0.2, modcod = 17, tick = \"10 ms\" }",
        "rate.dvb-s2 = { bandwidth = \"9 MHz\", roll_off = 0.2, acm = {} }",
        "rate.dvb-rcs2 = { bandwidth = \"9 MHz\", roll_off = 0.2, waveform = 12, cra = \"4 Mbit/s\" }",
        "rate.dvb-rcs2 = { bandwidth = \"9 MHz\", roll_off = 0.2, waveform = 20, cra = \"0 bit/s\", rbdc = \"6 Mbit/s\", fca = \"1 Mbit/s\" }",
    ];
    let queues = [
        "queue = \"400 packets\"",
        "queue.marking = { limit = \"400 packets\", above = \"50 packets\" }",
        "queue.codel = { limit = \"400 packets\", target = \"100 ms\", interval = \"1 s\" }",
        "queue.fq-codel = { limit = \"400 packets\", target = \"100 ms\", interval = \"1 s\" }",
        "queue.pie = { limit = \"400 packets\", target = \"100 ms\" }",
    ];
    for rate in rates {
        for queue in queues {
            let spec = support::forward(&format!("{rate}\ndelay = \"30 ms\"\n{queue}"));
            let ceiling = spec.rate.ceiling().bits_per_second();
            // A quarter more than it carries, for 40 s.
            let gap = 1500 * 8 * 1_000_000_000 / (ceiling + ceiling / 4);
            let count = usize::try_from(40_000_000_000 / gap).unwrap();
            let (_, out) = run(&spec, 1, false, &vec![(gap, 1500, 1); count], LONG);
            let from = Time::from_nanos(10_000_000_000);
            let until = Time::from_nanos(40_000_000_000);
            let inside = out.iter().filter(|d| d.at > from && d.at <= until).count();
            let used = inside as f64 * 12_000.0 / 30.0 / ceiling as f64;
            // PIE drops by chance at the entrance, and may let a rate that stutters go idle.
            let least = if queue.contains("pie") { 0.8 } else { 0.995 };
            assert!((least..1.005).contains(&used), "{used}: {rate}, {queue}");
        }
    }
}

/// Nothing that can be written is left out: every field of the fixture that has every
/// field stands in some generated scenario, and so does every model of every stage.
#[test]
fn every_field_and_every_model_is_generated() {
    fn fields(value: &toml::Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            toml::Value::Table(table) => {
                for (key, inner) in table {
                    // Both directions of every link have the same grammar.
                    let key = match key.as_str() {
                        "forward" | "return" => "direction",
                        key => key,
                    };
                    let path = format!("{path}.{key}").replace(".switch.direction", ".direction");
                    found.insert(path.clone());
                    fields(inner, &path, found);
                }
            }
            toml::Value::Array(elements) => {
                for element in elements {
                    fields(element, path, found);
                }
            }
            _ => {}
        }
    }
    let mut wanted = BTreeSet::new();
    let fixture = toml::from_str(include_str!("fixtures/every-field.toml")).unwrap();
    fields(&fixture, "", &mut wanted);

    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut generated = BTreeSet::new();
    let mut models = BTreeSet::new();
    for _ in 0..2000 {
        let text = grammar::scenarios()
            .new_tree(&mut runner)
            .unwrap()
            .current();
        fields(&toml::from_str(&text).unwrap(), "", &mut generated);
        if models.len() < 10 {
            let scenario = parse(&text);
            models.extend(
                [&scenario.forward, &scenario.r#return]
                    .into_iter()
                    .flat_map(links)
                    .flat_map(|link| [rate_model(&link.rate), queue_model(&link.queue)]),
            );
        }
    }
    let missing: Vec<_> = wanted.difference(&generated).collect();
    assert!(missing.is_empty(), "never generated: {missing:?}");
    assert_eq!(models.len(), 10, "{models:?}");
}

// A model that is added does not compile here until somebody looks.
fn rate_model(rate: &RateSpec) -> &'static str {
    match rate {
        RateSpec::Constant(_) => "constant",
        RateSpec::Trace(_) => "trace",
        RateSpec::Mahimahi(_) => "mahimahi",
        RateSpec::DvbS2(_) => "dvb-s2",
        RateSpec::DvbRcs2(_) => "dvb-rcs2",
    }
}

fn queue_model(queue: &QueueSpec) -> &'static str {
    match queue {
        QueueSpec::DropTail(_) => "drop-tail",
        QueueSpec::Marking(_) => "marking",
        QueueSpec::CoDel(_) => "codel",
        QueueSpec::FqCoDel(_) => "fq-codel",
        QueueSpec::Pie(_) => "pie",
    }
}

//! What must hold for every link that the scenario grammar can express,
//! whatever comes in: scenarios are generated as text.

mod support;

use bentpipe_link::scenario::{DelaySpec, DirectionSpec, QueueLimit};
use bentpipe_link::{Direction, Scenario};
use bentpipe_units::{Span, Time};
use proptest::prelude::*;
use support::{Arrival, Probe, drain, run};

fn text(options: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(options).prop_map(str::to_owned)
}

/// `key = value` or nothing.
fn maybe(options: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop_oneof![2 => Just(String::new()), 1 => options]
}

fn rates() -> impl Strategy<Value = (String, &'static str)> {
    let radio = || {
        maybe(text(&[
            ", radio = { up = \"20 dB\", down = \"9 dB\" }",
            ", radio = { fade = { points = [[\"0 s\", \"0 dB\"], [\"2 s\", \"25 dB\"], [\"3 s\", \"0 dB\"]], between = \"line\", at_end = \"loop\" } }",
        ]))
    };
    let coding = prop_oneof![
        (1u8..=28).prop_map(|id| format!("modcod = {id}")),
        (0u8..5, 0u8..3).prop_map(|(margin, hysteresis)| format!(
            "acm = {{ margin = \"{margin} dB\", hysteresis = \"{hysteresis} dB\", report_every = \"300 ms\" }}"
        )),
    ];
    prop_oneof![
        (1_000u64..100_000_000).prop_map(|rate| (format!("rate = \"{rate} bit/s\""), "packet")),
        (0u64..20_000, 1u64..20_000, prop::sample::select(&["hold", "loop", "end"][..])).prop_map(
            |(first, last, at_end)| (
                format!("rate.trace = {{ points = [[\"0 s\", \"{last} kbit/s\"], [\"40 ms\", \"{first} kbit/s\"], [\"90 ms\", \"{last} kbit/s\"]], at_end = \"{at_end}\" }}"),
                "packet"
            )
        ),
        (prop::collection::vec(1u64..100, 1..20), prop::sample::select(&["loop", "end"][..])).prop_map(
            |(mut moments, at_end)| {
                moments.sort_unstable();
                (format!("rate.mahimahi = {{ opportunities = {moments:?}, at_end = \"{at_end}\" }}"), "packet")
            }
        ),
        (5u32..60, coding, radio(), maybe(text(&[", tick = \"10 ms\"", ", tick = \"25 ms\""])), 0u8..20).prop_map(
            |(mhz, coding, radio, tick, header)| (
                format!("rate.dvb-s2 = {{ bandwidth = \"{mhz} MHz\", roll_off = 0.25, {coding}{radio}{tick}, link_header = {header} }}"),
                "bbframe"
            )
        ),
        (3u8..=22, 0u64..500, 0u64..5000, 0u64..20_000, 1u64..300, radio()).prop_map(
            |(waveform, cra, rbdc, vbdc, fca, radio)| (
                format!("rate.dvb-rcs2 = {{ bandwidth = \"2 MHz\", roll_off = 0.2, waveform = {waveform}, cra = \"{cra} kbit/s\", rbdc = \"{rbdc} kbit/s\", vbdc = \"{vbdc} B\", fca = \"{fca} bit/s\"{radio} }}"),
                "burst"
            )
        ),
    ]
}

fn delays() -> impl Strategy<Value = String> {
    prop_oneof![
        (0u32..300_000).prop_map(|us| format!("delay = \"{us} us\"")),
        (0u32..300, 0u32..300, prop::sample::select(&["hold", "loop", "end"][..]), prop::sample::select(&["step", "line"][..])).prop_map(
            |(first, last, at_end, between)| format!("delay.trace = {{ points = [[\"0 s\", \"{first} ms\"], [\"70 ms\", \"{last} ms\"], [\"200 ms\", \"{first} ms\"]], at_end = \"{at_end}\", between = \"{between}\" }}")
        ),
        (0u32..150, 0u32..20, 0u32..20).prop_map(|(leg, poll, satellite)| format!("delay.relay = {{ up = \"{leg} ms\", down = \"{leg} ms\", poll = \"{poll} ms\", satellite_poll = \"{satellite} ms\" }}")),
    ]
}

fn queues() -> impl Strategy<Value = String> {
    let limit = || {
        prop_oneof![
            (1u32..60).prop_map(|count| format!("{count} packets")),
            (1500u64..100_000).prop_map(|bytes| format!("{bytes} B")),
        ]
    };
    let ecn = || text(&["true", "false"]);
    prop_oneof![
        limit().prop_map(|limit| format!("queue = \"{limit}\"")),
        (limit(), 1u32..20, ecn()).prop_map(|(limit, target, ecn)| format!("queue.codel = {{ limit = \"{limit}\", target = \"{target} ms\", interval = \"{} ms\", ecn = {ecn} }}", target * 5)),
        (limit(), 1u32..20, 1u16..8, ecn()).prop_map(|(limit, target, flows, ecn)| format!("queue.fq-codel = {{ limit = \"{limit}\", target = \"{target} ms\", flows = {flows}, quantum = \"300 B\", ecn = {ecn} }}")),
        (limit(), 1u32..20, ecn()).prop_map(|(limit, target, ecn)| format!("queue.pie = {{ limit = \"{limit}\", target = \"{target} ms\", burst = \"10 ms\", ecn = {ecn} }}")),
    ]
}

fn losses() -> impl Strategy<Value = String> {
    text(&[
        "loss = \"3 %\"",
        "loss.gilbert-elliott = { to_bad = \"2 %\", to_good = \"30 %\", loss_good = \"0.1 %\" }",
        "loss.periodic = { every = 9, lose = 2 }",
        "loss.trace = { fates = \"..x....xx.\", at_end = \"loop\" }",
    ])
}

fn extras() -> impl Strategy<Value = Vec<String>> {
    (
        maybe(text(&["duplicate = \"5 %\""])),
        maybe(text(&["corrupt = \"5 %\""])),
        maybe(text(&["reorder = { chance = \"5 %\", by = \"3 ms\" }"])),
        maybe(text(&[
            "outages = [{ from = \"30 ms\", for = \"40 ms\" }]",
            "outages = [{ from = \"30 ms\", for = \"40 ms\", every = \"150 ms\", packets = \"wait\" }]",
        ])),
        maybe(text(&["reconfigure = { every = \"100 ms\", first = \"20 ms\", step = \"9 ms\", gap = \"11 ms\", burst = \"20 ms\", loss = \"40 %\" }"])),
        maybe(text(&[
            "cross = [{ rate = \"300 kbit/s\" }]",
            "cross = [{ rate = \"1 Mbit/s\", packet = \"200 B\", on = \"20 ms\", off = \"30 ms\", exponential = true }, { rate = \"90 kbit/s\", until = \"100 ms\" }]",
        ])),
        maybe(text(&[
            "change = [{ at = \"50 ms\", rate = \"2 Mbit/s\" }, { at = \"80 ms\", loss = \"10 %\", outage = true }, { at = \"90 ms\", outage = false }]",
        ])),
    )
        .prop_map(|(a, b, c, d, e, f, g)| vec![a, b, c, d, e, f, g])
}

prop_compose! {
    fn scenarios()(
        (rate, frame) in rates(),
        delay in delays(),
        queue in queues(),
        loss in maybe(losses()),
        per_frame in any::<bool>(),
        extras in extras(),
    ) -> String {
        let unit = if per_frame { frame } else { "packet" };
        let extras = extras.join("\n");
        format!("name = \"generated\"\n[forward]\n{rate}\n{delay}\n{queue}\n{loss}\nloss_per = \"{unit}\"\n{extras}\n[return]\nrate = \"1 Mbit/s\"\ndelay = \"20 ms\"\nqueue = \"100 packets\"\n")
    }
}

/// The last moment that matters: links of 1 kbit/s are slow.
const LONG: Span = Span::from_millis(100_000_000);

fn stays_within_its_limit(spec: &DirectionSpec, arrivals: &[Arrival]) {
    let mut link = Direction::new(spec, 1);
    let mut now = Time::ZERO;
    let mut out = Vec::new();
    for (number, (gap, ip_len, flow)) in arrivals.iter().enumerate() {
        now = now + Span::from_nanos(*gap);
        drain(&mut link, now, &mut out);
        let probe = Probe {
            number,
            entered: now,
            ip_len: *ip_len,
            flow: *flow,
            ecn: false,
            marked: false,
            damaged: false,
        };
        let _ = link.handle_arrival(now, probe);
        match spec.queue.limit() {
            QueueLimit::Packets(most) => assert!(link.queue().len() <= most as usize),
            QueueLimit::Bytes(most) => assert!(link.queue().bytes() <= most.as_u64()),
            other => panic!("{other} was not resolved"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn every_link_keeps_the_laws(
        text in scenarios(),
        seed in any::<u64>(),
        ecn in any::<bool>(),
        arrivals in prop::collection::vec((0u64..9_000_000, 20usize..1500, 0u64..4), 1..120),
    ) {
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let echo = toml::to_string(&scenario).unwrap();
        prop_assert_eq!(Scenario::parse(&echo).unwrap(), scenario.clone(), "the echo says the same");
        let spec = &scenario.forward;

        // Conservation is checked inside, after every packet.
        let (link, out) = run(spec, seed, ecn, &arrivals, LONG);
        let counters = link.counters();
        prop_assert_eq!(link.held(), 0, "everything comes out in the end");
        prop_assert_eq!(
            counters.entered_bytes + counters.duplicated_bytes,
            counters.delivered_bytes + counters.dropped_bytes
        );
        prop_assert_eq!(counters.delivered, out.len() as u64);

        let shortest = match &spec.delay {
            DelaySpec::Trace(_) => spec.delay.shortest(),
            delay => delay.typical(),
        };
        for departure in &out {
            prop_assert!(departure.at >= departure.packet.entered + shortest.span(), "not before its delay");
        }
        prop_assert!(out.windows(2).all(|pair| pair[0].at <= pair[1].at));
        if spec.reorder.is_none() {
            for flow in 0..4 {
                let numbers: Vec<_> = out.iter().filter(|d| d.packet.flow == flow).map(|d| d.packet.number).collect();
                prop_assert!(numbers.is_sorted(), "first in, first out within a flow");
            }
        }

        let (_, again) = run(spec, seed, ecn, &arrivals, LONG);
        let fates = |out: &[bentpipe_link::Departure<Probe>]| out.iter().map(|d| (d.at, d.packet.clone())).collect::<Vec<_>>();
        prop_assert_eq!(fates(&out), fates(&again), "twice the same");
        stays_within_its_limit(spec, &arrivals);
    }
}

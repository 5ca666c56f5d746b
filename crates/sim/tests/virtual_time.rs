//! Virtual time: repeatable, and fast enough for sweeps.

use std::time::Instant;

use bentpipe_cc::{Choice, Settings};
use bentpipe_link::Scenario;
use bentpipe_quic::ConnectionParameters;
use bentpipe_sim::quic::{FlowPlan, Transfer};
use bentpipe_sim::record::QuicVerdict;
use bentpipe_sim::{LinkPlan, Nodes, Plan, PlanError, Record, Records, run};
use bentpipe_units::{Bytes, Rate, Span};

#[expect(
    clippy::disallowed_methods,
    reason = "the QUIC library wants some instant; no result depends on it"
)]
fn any_base() -> Instant {
    Instant::now()
}

fn geo(loss: &str, queue: &str) -> LinkPlan {
    let text = format!(
        r#"
        name = "geo"
        forward = {{ rate = "20 Mbit/s", delay = "300 ms", loss = "{loss}", queue = "{queue}" }}
        return = {{ rate = "2 Mbit/s", delay = "300 ms", queue = "150 kB" }}
        "#
    );
    LinkPlan::of(&Scenario::parse(&text).expect("a scenario"))
}

fn plan(
    controller: impl Into<bentpipe_quic::Selection>,
    link: LinkPlan,
    flows: usize,
    bytes: u64,
) -> Plan {
    let transport = ConnectionParameters::new(Settings::new(controller.into()));
    let flow = FlowPlan::new(transport, vec![Transfer::now(Bytes::new(bytes))]);
    Plan {
        seed: 7,
        links: vec![link],
        nodes: Nodes::Quic(vec![flow; flows]),
        until: Span::from_millis(120_000),
        sample_every: Span::from_millis(600),
    }
}

fn records(plan: &Plan) -> Records {
    Records::of(plan, any_base()).expect("a plan that can be run")
}

fn flow(plan: &mut Plan, number: usize) -> &mut FlowPlan {
    match &mut plan.nodes {
        Nodes::Quic(flows) => &mut flows[number],
        _ => unreachable!("the plans here are of lean QUIC connections"),
    }
}

#[test]
fn the_same_plan_twice_gives_the_same_bytes() {
    for controller in [
        Choice::Satellite,
        Choice::Cubic,
        Choice::CubicSearch,
        Choice::Hybla,
        Choice::Bbr3,
    ] {
        let plan = plan(controller, geo("1 %", "100 kB"), 3, 1_000_000);
        let text = || {
            let mut text = String::new();
            let mut keep = |record: Record| text += &(record.to_json() + "\n");
            run(&plan, any_base(), &mut keep).expect("a plan that can be run");
            text
        };
        let (one, other) = (text(), text());
        assert!(one.len() > 1000);
        assert_eq!(one, other, "{controller}");
    }
}

#[test]
fn what_is_asked_for_arrives_whole_with_every_controller() {
    for controller in bentpipe_quic::Selection::all() {
        let mut plan = plan(controller, geo("0.1 %", "1500 kB"), 1, 1_000_000);
        let rate = plan.links[0].forward.rate.ceiling();
        flow(&mut plan, 0).transport.settings.know_rate(rate);
        let records = records(&plan);
        assert_eq!(records.flows[0].verdict, QuicVerdict::Ok, "{controller}");
        assert_eq!(records.transfers[0].received, 1_000_000, "{controller}");
        let forward = &records.links[0].packets;
        let inside = forward.entered - forward.delivered - forward.dropped.total();
        assert!(
            inside < 1000,
            "{controller}: packets are delivered, dropped or on the way"
        );
    }
}

/// The satellite controller's pacing rate, Mbit/s, and the queue, ms, once per round
/// trip, from the first packet on: train, three quarters of what it showed, all of it.
#[test]
fn our_start_round_by_round() {
    let records = records(&plan(Choice::Satellite, geo("0 %", "1500 kB"), 1, 10 << 20));
    let looks: Vec<_> = (records.samples.iter().take(10))
        .map(|look| {
            let rate = look.pacing_bit_s.unwrap_or(0) as f64 / 1e6;
            format!(
                "{rate:.0}/{:.0}",
                look.waited_most_ns.unwrap_or(0) as f64 / 1e6
            )
        })
        .collect();
    assert_eq!(
        looks.join(" "),
        "100/0 1/0 15/11 19/5 19/0 20/0 20/0 20/0 20/15 19/22"
    );
}

/// What leaves after a pause, or when an acknowledgement of ten packets opens the window,
/// would be ten packets back to back, 6 ms of the link. No packet may wait longer in the
/// empty link's queue than a burst of 2 ms takes, and the packet that was begun.
#[test]
fn bursts_are_of_two_milliseconds() {
    for controller in Choice::ALL {
        let mut plan = plan(controller, geo("0 %", "1500 kB"), 1, 400_000);
        let settings = &mut flow(&mut plan, 0).transport.settings;
        settings.know_rate(Rate::from_bits_per_second(18_000_000));
        let again = Transfer::after(Span::from_millis(1_300), Bytes::new(400_000));
        flow(&mut plan, 0).transfers = vec![again; 6];
        plan.sample_every = Span::from_millis(20);
        let records = records(&plan);
        assert_eq!(records.flows[0].verdict, QuicVerdict::Ok);
        // The first transfer of ours begins with the train, a burst on purpose.
        let warm = records.transfers[0].done_ns.expect("it is done");
        let longest = (records.samples.iter())
            .filter(|look| look.at_ns > warm + 20_000_000)
            .filter_map(|look| look.waited_most_ns)
            .max();
        let longest = longest.expect("packets were sent") as f64 / 1e6;
        assert!(longest <= 2.6, "{controller}: {longest:.2} ms");
    }
}

/// GEO with more to say about its forward direction.
fn geo_with(forward: &str) -> LinkPlan {
    let text = format!(
        r#"
        name = "geo"
        [forward]
        rate = "20 Mbit/s"
        delay = "300 ms"
        {forward}
        [return]
        rate = "2 Mbit/s"
        delay = "300 ms"
        queue = "150 kB"
        "#
    );
    LinkPlan::of(&Scenario::parse(&text).expect("a scenario"))
}

/// The link is what the scenario says: QUIC's packets can be marked, doubled and told apart.
#[test]
fn packets_are_marked_and_doubled() {
    let codel = "queue = { codel = { limit = \"2 BDP\", ecn = true } }";
    let marked = records(&plan(Choice::NewReno, geo_with(codel), 1, 10 << 20));
    let packets = &marked.links[0].packets;
    assert!(packets.marked > 0, "{packets:?}");
    assert_eq!(packets.dropped.total(), 0, "{packets:?}");

    let twice = "queue = \"1500 kB\"\nduplicate = \"10 %\"";
    let doubled = records(&plan(Choice::NewReno, geo_with(twice), 1, 1 << 20));
    let packets = &doubled.links[0].packets;
    assert!(packets.duplicated > 0, "{packets:?}");
}

/// A queue of its own for each flow: who fills it waits, and who does not, does not.
#[test]
fn flows_have_queues_of_their_own() {
    let fq =
        "queue = { fq-codel = { limit = \"2 BDP\", interval = \"600 ms\", target = \"300 ms\" } }";
    let mut plan = plan(Choice::NewReno, geo_with(fq), 2, 10 << 20);
    flow(&mut plan, 1).transport.settings.controller = Choice::Fixed.into();
    flow(&mut plan, 1).transport.settings.contracted_rate =
        Some(Rate::from_bits_per_second(4_000_000));
    let records = records(&plan);
    let waited = |flow: usize| {
        let looks = records.samples.iter().filter(move |look| look.flow == flow);
        looks
            .filter_map(|look| look.waited_most_ns)
            .max()
            .expect("it was looked at")
            / 1_000_000
    };
    let (filling, fixed) = (waited(0), waited(1));
    assert!(filling > 100 && fixed < 20, "{filling} ms and {fixed} ms");
}

#[test]
fn a_plan_that_cannot_be_run_is_refused() {
    let mut endless = plan(Choice::Cubic, geo("0 %", "100 kB"), 1, 1000);
    endless.until = Span::ZERO;
    assert!(matches!(endless.check(), Err(PlanError::Endless(_))));
    let mut nowhere = plan(Choice::Cubic, geo("0 %", "100 kB"), 1, 1000);
    flow(&mut nowhere, 0).path = vec![3];
    let error = run(&nowhere, any_base(), &mut |_| {})
        .expect_err("there is no link 3")
        .to_string();
    assert!(error.contains("flows[0].path names link 3"), "{error}");
    let mut controller = plan(Choice::Fixed, geo("0 %", "100 kB"), 1, 1000);
    flow(&mut controller, 0).transport.settings.contracted_rate = None;
    let error = controller.check().expect_err("no rate").to_string();
    assert!(error.contains("contracted_rate"), "{error}");
}

/// Probes behind a silence leave as a batch that begins with a short datagram, at which the QUIC library panics (`bentpipe_quic::batches`).
#[test]
fn what_follows_a_silence_is_no_end_of_the_simulation() {
    let scenario = Scenario::parse(include_str!("../../../scenarios/kosek-geo-loss-1.toml"));
    let link = LinkPlan::of(&scenario.expect("a scenario that is shipped"));
    for seed in 1..=60 {
        let mut plan = plan(Choice::NewReno, link.clone(), 1, 100_000_000);
        (plan.seed, plan.until) = (seed, Span::from_millis(30_000));
        assert!(!records(&plan).samples.is_empty());
    }
}

#[test]
fn an_outage_without_end_ends_with_a_verdict() {
    let mut plan = plan(Choice::Satellite, geo("0 %", "100 kB"), 1, 10 << 20);
    // A shorter one within it does not end it.
    plan.links[0] = (plan.links[0].clone())
        .blackout(Span::from_millis(2_000), Span::from_millis(1_000_000))
        .blackout(Span::from_millis(3_000), Span::from_millis(1_000));
    plan.until = Span::from_millis(100_000);
    let records = records(&plan);
    assert_ne!(records.flows[0].verdict, QuicVerdict::Ok);
    let (transfer, flow) = (&records.transfers[0], &records.flows[0]);
    assert!(
        (transfer.received..=flow.forward_ip_bytes).contains(&transfer.sent_ip_bytes),
        "{transfer:?}, {flow:?}"
    );
}

/// What comes during the round trip that a repair takes is kept: 7.5 MB at 100 Mbit/s, more than 5,000
/// packets behind one gap. QUIC libraries that count packets as gaps close the connection there.
#[test]
fn a_gap_in_full_flow_ends_no_connection() {
    let fast = Scenario::parse(
        r#"
        name = "fast-geo"
        forward = { rate = "100 Mbit/s", delay = "300 ms", queue = "1 BDP" }
        return = { rate = "10 Mbit/s", delay = "300 ms", queue = "1 BDP" }
        "#,
    );
    let link = LinkPlan::of(&fast.expect("a scenario"))
        .blackout(Span::from_millis(4_000), Span::from_millis(1));
    let rate = link.forward.rate.ceiling();
    for controller in [Choice::Satellite, Choice::Cubic] {
        let mut plan = plan(controller, link.clone(), 1, 60_000_000);
        let transport = &mut flow(&mut plan, 0).transport;
        transport.rate = rate;
        transport.settings.know_rate(rate);
        let records = records(&plan);
        assert!(records.links[0].packets.dropped.total() > 0, "{controller}");
        assert_eq!(records.flows[0].verdict, QuicVerdict::Ok, "{controller}");
        assert_eq!(records.transfers[0].received, 60_000_000, "{controller}");
    }
}

/// What a real runtime's timers do: the pacer's bursts become coarser, the transfer hardly
/// slower.
#[test]
fn coarse_timers_round_up() {
    let exact = plan(Choice::Satellite, geo("0 %", "1500 kB"), 1, 10 << 20);
    let mut coarse = exact.clone();
    flow(&mut coarse, 0).granularity = Span::from_millis(1);
    let [exact, coarse] = [exact, coarse].map(|plan| {
        let seconds = records(&plan).transfers[0].seconds();
        seconds.expect("it is complete")
    });
    assert_ne!(exact, coarse);
    assert!(
        (coarse / exact - 1.0).abs() < 0.03,
        "{exact} s, {coarse} s with timers of 1 ms"
    );
}

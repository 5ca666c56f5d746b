//! Splitting proxies as nodes of a run.

use std::time::Instant;

use bentpipe_cc::{Choice, Settings};
use bentpipe_link::Scenario;
use bentpipe_quic::ConnectionParameters;
use bentpipe_quicpep::proxy::Mode;
use bentpipe_quicpep::transport::Side;
use bentpipe_sim::quic::{FlowPlan, ProxyPlan, SplitPlan, Transfer};
use bentpipe_sim::record::QuicVerdict;
use bentpipe_sim::{LinkPlan, Nodes, Plan, PlanError, Records};
use bentpipe_units::{Bytes, Rate, Span};

#[expect(
    clippy::disallowed_methods,
    reason = "the QUIC library wants some instant; no result depends on it"
)]
fn any_base() -> Instant {
    Instant::now()
}

fn link(rate: &str, delay: &str) -> LinkPlan {
    let direction = format!("{{ rate = \"{rate}\", delay = \"{delay}\", queue = \"4 MB\" }}");
    let text = format!("name = \"test\"\nforward = {direction}\nreturn = {direction}\n");
    LinkPlan::of(&Scenario::parse(&text).expect("a scenario"))
}

fn ground() -> Side {
    Side::ground(
        Rate::from_bits_per_second(1_000_000_000),
        Span::from_millis(20),
    )
}

fn satellite() -> Side {
    Side {
        expected_rate: Rate::from_bits_per_second(20_000_000),
        expected_rtt: Span::from_millis(600),
        ..Side::default()
    }
}

fn proxy(link: usize, [clients, next]: [Side; 2]) -> ProxyPlan {
    ProxyPlan {
        path: vec![link],
        mode: Mode::Default,
        ready: 4,
        memory: Bytes::new(256 << 20),
        towards_clients: clients,
        towards_next: next,
    }
}

/// Downloads of 10 MiB that begin 5 s and 35 s after the proxies.
fn plan(links: Vec<LinkPlan>, proxies: Vec<ProxyPlan>) -> Plan {
    let flow = |at| {
        let mut settings = Settings::new(Choice::Cubic);
        settings.initial_rtt = Span::from_millis(20);
        let transport = ConnectionParameters::new(settings);
        let mut flow = FlowPlan::new(transport, vec![Transfer::now(Bytes::new(10 << 20))]);
        flow.path = vec![links.len() - 1];
        flow.start = Span::from_millis(at);
        flow
    };
    Plan {
        seed: 11,
        nodes: Nodes::Split(SplitPlan {
            flows: vec![flow(5_000), flow(35_000)],
            proxies,
        }),
        links,
        until: Span::from_millis(100_000),
        sample_every: Span::from_millis(1_000),
    }
}

/// Server, 1 ms, proxy, satellite, proxy, 1 ms, terminal.
fn pair() -> Plan {
    plan(
        vec![
            link("1 Gbit/s", "0.5 ms"),
            link("20 Mbit/s", "250 ms"),
            link("1 Gbit/s", "0.5 ms"),
        ],
        vec![
            proxy(0, [satellite(), ground()]),
            proxy(1, [ground(), satellite()]),
        ],
    )
}

fn lines(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    bentpipe_sim::run(plan, any_base(), &mut |record| lines.push(record.to_json()))
        .expect("a plan that can be run");
    lines
}

#[test]
fn the_second_client_of_two_proxies_finds_the_path_known() {
    let plan = pair();
    let records = Records::of(&plan, any_base()).expect("a plan that can be run");
    let seconds: Vec<_> = (records.transfers.iter())
        .map(|transfer| transfer.seconds().expect("it is whole"))
        .collect();
    assert!(
        (records.flows.iter()).all(|flow| flow.verdict == QuicVerdict::Ok),
        "{:?}",
        records.flows
    );
    let wire = f64::from(10 << 20) * 8.0 * bentpipe_link::bound::WIRE_PER_PAYLOAD;
    let bound = 0.5 + 4.0 * 0.001 + wire / 20e6;
    println!("{seconds:?} s, bound {bound:.3} s");
    assert!(seconds[1] <= 1.06 * bound, "{seconds:?} s, bound {bound} s");
    assert!(seconds[0] > seconds[1]);
}

#[test]
fn the_same_plan_gives_the_same_records() {
    let plan = pair();
    assert_eq!(lines(&plan), lines(&plan));
}

#[test]
fn a_chain_of_three_carries_everything() {
    let plan = plan(
        vec![
            link("1 Gbit/s", "0.5 ms"),
            link("20 Mbit/s", "250 ms"),
            link("20 Mbit/s", "250 ms"),
            link("1 Gbit/s", "0.5 ms"),
        ],
        vec![
            proxy(0, [satellite(), ground()]),
            proxy(1, [satellite(), satellite()]),
            proxy(2, [ground(), satellite()]),
        ],
    );
    let records = Records::of(&plan, any_base()).expect("a plan that can be run");
    for transfer in &records.transfers {
        assert_eq!(transfer.received, 10 << 20, "{:?}", records.flows);
        let first = transfer.first_byte_ns.expect("it came") - transfer.begun_ns;
        // Two satellite round trips, and nothing for handshakes over them.
        assert!(
            (1_000_000_000..1_060_000_000).contains(&first),
            "{first} ns"
        );
    }
}

#[test]
fn proxies_that_cannot_be_are_refused() {
    let refusal = |change: fn(&mut Vec<ProxyPlan>)| {
        let mut plan = pair();
        if let Nodes::Split(split) = &mut plan.nodes {
            change(&mut split.proxies);
        }
        plan.check().expect_err("it cannot be run")
    };
    assert_eq!(refusal(Vec::clear), PlanError::NoProxy);
    let nowhere = refusal(|proxies| proxies[1].path = vec![7]);
    assert_eq!(nowhere, PlanError::ProxyPath(1));
    let error = refusal(|proxies| proxies[1].towards_next.streams = 0);
    assert_eq!(
        error.to_string(),
        "proxies[1]: streams = \"0\": give 1 to 65536"
    );
}

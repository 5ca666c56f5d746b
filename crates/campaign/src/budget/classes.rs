//! Budgets on classes of links on which the satellite controller was seen to do badly, each on
//! an ideal host and on a busy one. What is asked is never to be the worst choice: 0.95 of the
//! best of the others, and half a link's share beside one CUBIC, give or take 0.15.

use bentpipe_cc::Choice;
use bentpipe_sim::quic::{FlowPlan, Transfer};
use bentpipe_sim::{LinkPlan, Nodes, Plan, Records};
use bentpipe_units::{Bytes, Span};
use bentpipe_vnet::host::HostSpec;

use super::plans::*;
use super::{Budget, Goal, Limit};

const NEVER_WORST: Limit = Limit::OfTheBest(0.95);
const SOURCE: &str = "0.95 of the best of the others";
/// BBR takes more lost packets of a round for a link that is full (draft-ietf-ccwg-bbr, BBRLossThresh).
const LOSS: Limit = Limit::AtMostOrCubics(0.02);

const GEO_RETURN: &str = r#"rate = "2 Mbit/s", delay = "300 ms", queue = "150 kB""#;
const SHORT_RETURN: &str = r#"rate = "5 Mbit/s", delay = "20 ms", queue = "100 ms""#;
const FAIR_RETURN: &str = r#"rate = "5 Mbit/s", delay = "50 ms", queue = "60 kB""#;

/// `count` flows over one link; each starts a second after the one before, and seeds shift it by up to a
/// second more.
fn flows(
    host: HostSpec,
    controllers: &[Choice],
    seed: u64,
    seconds: u64,
    forward: &str,
    back: &str,
) -> Plan {
    let text = format!("name = \"class\"\nforward = {{ {forward} }}\nreturn = {{ {back} }}");
    let scenario = bentpipe_link::Scenario::parse(&text).expect("a scenario of this file");
    let bits = scenario.forward.rate.ceiling().bits_per_second();
    let rtt = scenario.satellite_rtt();
    let flow = |(index, controller): (u64, &Choice)| {
        let transfers = vec![Transfer::now(ENDLESS)];
        let mut flow = FlowPlan::new(transport(*controller, bits, rtt), transfers);
        flow.start = Span::from_millis((1_000 + 33 * (seed % 30)) * index);
        flow.host = host;
        flow
    };
    let all = (0..).zip(controllers).map(flow).collect();
    plan(seed, LinkPlan::of(&scenario), all, seconds)
}

/// 40 MB, then quiet while the rate goes from 5 to 20 Mbit/s, then 10 MiB.
fn risen_while_quiet(host: HostSpec, controller: Choice, seed: u64) -> Plan {
    let forward = r#"rate = "5 Mbit/s", delay = "300 ms", queue = "1500 kB", change = [{ at = "100 s", rate = "20 Mbit/s" }]"#;
    let mut plan = flows(host, &[controller], seed, 400, forward, GEO_RETURN);
    if let Nodes::Quic(flows) = &mut plan.nodes {
        flows[0].transport.rate = rate(20_000_000);
        flows[0].transfers = vec![
            Transfer::now(Bytes::new(40_000_000)),
            Transfer::at(Span::from_millis(130_000), MIB_10),
        ];
    }
    plan
}

/// The endless download with one acknowledgement for so many packets.
fn few_acknowledgements(host: HostSpec, controller: Choice, seed: u64, packets: u32) -> Plan {
    let forward = r#"rate = "20 Mbit/s", delay = "300 ms", queue = "1500 kB""#;
    let mut plan = flows(host, &[controller], seed, 40, forward, GEO_RETURN);
    if let Nodes::Quic(flows) = &mut plan.nodes {
        flows[0].transport.ack_after = Some(packets - 1);
    }
    plan
}

fn carried(records: &Records, seconds: f64) -> f64 {
    (0..records.flows.len())
        .map(|flow| goodput(records, flow, 0.0, seconds - 0.1))
        .sum()
}

fn lost(records: &Records) -> f64 {
    let flow = &records.flows[0];
    flow.lost as f64 / flow.sent.max(1) as f64
}

fn wait_p95(records: &Records, seconds: f64) -> f64 {
    let mut all: Vec<_> = waits(records, 0.0, seconds).map(|(mean, _)| mean).collect();
    all.sort_by(f64::total_cmp);
    1e3 * all.get(all.len() * 95 / 100).copied().unwrap_or(f64::NAN)
}

/// Share of the first flow between two moments, seconds.
fn share(records: &Records, from: f64, to: f64) -> f64 {
    let [one, other] = [0, 1].map(|flow| goodput(records, flow, from, to));
    one / (one + other)
}

fn fairness(records: &Records, from: f64, to: f64) -> f64 {
    let flows = records.flows.len();
    let all: Vec<_> = (0..flows)
        .map(|flow| goodput(records, flow, from, to))
        .collect();
    let sum: f64 = all.iter().sum();
    sum * sum / (flows as f64 * all.iter().map(|one| one * one).sum::<f64>())
}

macro_rules! alone {
    ($host:expr, $work:literal, $forward:expr, $back:expr, $seconds:literal) => {
        alone!($host, $work, $seconds, |cc, seed| flows(
            $host,
            &[cc],
            seed,
            $seconds,
            $forward,
            $back
        ))
    };
    ($host:expr, $work:literal, $seconds:literal, $plan:expr) => {
        Budget {
            work: $work,
            source: SOURCE,
            plan: $plan,
            goals: &[
                Goal {
                    figure: "carried from the start",
                    unit: "Mbit/s",
                    bound: no_bound,
                    measure: |records| carried(records, $seconds as f64),
                    limit: NEVER_WORST,
                },
                Goal {
                    figure: "queue, 95th percentile",
                    unit: "ms",
                    bound: no_bound,
                    measure: |records| wait_p95(records, $seconds as f64),
                    limit: Limit::None,
                },
                Goal {
                    figure: "lost, of those sent",
                    unit: "share",
                    bound: no_bound,
                    measure: lost,
                    limit: LOSS,
                },
            ],
        }
    };
}

macro_rules! beside_cubic {
    ($host:expr, $work:literal, $queue:literal) => {
        Budget {
            work: $work,
            source: "between 0.35 and 0.65 of the link for each",
            plan: |cc, seed| {
                flows(
                    $host,
                    &[cc, Choice::Cubic],
                    seed,
                    60,
                    concat!("rate = \"20 Mbit/s\", delay = \"50 ms\", ", $queue),
                    FAIR_RETURN,
                )
            },
            goals: &[
                Goal {
                    figure: "the first keeps",
                    unit: "share",
                    bound: no_bound,
                    measure: |records| share(records, 20.0, 59.9),
                    limit: Limit::AtLeast(0.35),
                },
                Goal {
                    figure: "CUBIC keeps",
                    unit: "share",
                    bound: no_bound,
                    measure: |records| 1.0 - share(records, 20.0, 59.9),
                    limit: Limit::AtLeast(0.35),
                },
            ],
        }
    };
}

/// Starts are at most two seconds apart; thirty round trips of 100 ms are three seconds.
macro_rules! alike {
    ($host:expr, $work:literal, $count:literal, $from:literal) => {
        Budget {
            work: $work,
            source: "Jain's index within thirty round trips of the last one's start",
            plan: |cc, seed| {
                flows(
                    $host,
                    &[cc; $count],
                    seed,
                    $from + 10,
                    r#"rate = "20 Mbit/s", delay = "50 ms", queue = "250 kB""#,
                    FAIR_RETURN,
                )
            },
            goals: &[Goal {
                figure: "fairness (Jain)",
                unit: "",
                bound: no_bound,
                measure: |records| fairness(records, $from as f64, $from as f64 + 9.9),
                limit: Limit::AtLeast(0.95),
            }],
        }
    };
}

macro_rules! classes {
    ($host:expr) => {
        &[
            alone!(
                $host,
                "40 ms, jitter of up to 5 ms",
                r#"rate = "20 Mbit/s", delay = "20 ms", queue = "100 ms", jitter = { up_to = "5 ms" }"#,
                SHORT_RETURN,
                20
            ),
            alone!(
                $host,
                "40 ms, jitter of up to 5 ms on the return",
                r#"rate = "20 Mbit/s", delay = "20 ms", queue = "100 ms""#,
                r#"rate = "5 Mbit/s", delay = "20 ms", queue = "100 ms", jitter = { up_to = "5 ms" }"#,
                20
            ),
            alone!(
                $host,
                "40 ms, satellite steps and jitter",
                r#"rate = "50 Mbit/s", delay = "20 ms", queue = "100 ms", jitter = { up_to = "3 ms" }, reconfigure = { every = "15 s", first = "5 s", step = "8 ms", gap = "40 ms", burst = "60 ms", loss = "25 %" }"#,
                SHORT_RETURN,
                40
            ),
            alone!(
                $host,
                "60 ms, packets held for 150 ms every 2 s",
                r#"rate = "20 Mbit/s", delay = "30 ms", queue = "300 kB", outages = [{ from = "1500 ms", for = "150 ms", every = "2 s", packets = "wait" }]"#,
                SHORT_RETURN,
                30
            ),
            alone!(
                $host,
                "GEO, packets held for 300 ms every 5 s",
                r#"rate = "20 Mbit/s", delay = "300 ms", queue = "1500 kB", outages = [{ from = "3 s", for = "300 ms", every = "5 s", packets = "wait" }]"#,
                GEO_RETURN,
                40
            ),
            alone!(
                $host,
                "60 ms, 20, 6 and 12 Mbit/s for 4 s each",
                r#"rate.trace = { points = [["0 s", "20 Mbit/s"], ["4 s", "6 Mbit/s"], ["8 s", "12 Mbit/s"], ["12 s", "20 Mbit/s"]], at_end = "loop" }, delay = "30 ms", queue = "150 kB""#,
                SHORT_RETURN,
                40
            ),
            alone!(
                $host,
                "GEO, 20, 6 and 12 Mbit/s for 8 s each",
                r#"rate.trace = { points = [["0 s", "20 Mbit/s"], ["8 s", "6 Mbit/s"], ["16 s", "12 Mbit/s"], ["24 s", "20 Mbit/s"]], at_end = "loop" }, delay = "300 ms", queue = "1500 kB""#,
                GEO_RETURN,
                60
            ),
            Budget {
                work: "GEO, 5 to 20 Mbit/s while quiet, then 10 MiB",
                source: SOURCE,
                plan: |cc, seed| risen_while_quiet($host, cc, seed),
                goals: &[Goal {
                    figure: "of the speed of the bound",
                    unit: "share",
                    bound: no_bound,
                    measure: |records| {
                        (payload_seconds(MIB_10, 20e6, 0.0) + 0.6)
                            / last(records)
                                .and_then(|last| last.seconds())
                                .unwrap_or(f64::INFINITY)
                    },
                    limit: NEVER_WORST,
                }],
            },
            alone!(
                $host,
                "40 ms, queue of 3 packets",
                r#"rate = "20 Mbit/s", delay = "20 ms", queue = "3 packets""#,
                SHORT_RETURN,
                20
            ),
            alone!(
                $host,
                "GEO, queue of 20 packets",
                r#"rate = "20 Mbit/s", delay = "300 ms", queue = "20 packets""#,
                GEO_RETURN,
                60
            ),
            alone!(
                $host,
                "100 ms, cross traffic of 10 Mbit/s on and off",
                r#"rate = "20 Mbit/s", delay = "50 ms", queue = "250 kB", cross = [{ rate = "10 Mbit/s", packet = "1500 B", on = "2 s", off = "2 s", exponential = true }]"#,
                FAIR_RETURN,
                40
            ),
            alone!(
                $host,
                "64 kbit/s, 600 ms",
                r#"rate = "64 kbit/s", delay = "300 ms", queue = "15 kB""#,
                r#"rate = "64 kbit/s", delay = "300 ms", queue = "15 kB""#,
                60
            ),
            alone!(
                $host,
                "GEO, one acknowledgement for 12 packets",
                40,
                |cc, seed| few_acknowledgements($host, cc, seed, 12)
            ),
            alone!(
                $host,
                "GEO, one acknowledgement for 17 packets",
                40,
                |cc, seed| few_acknowledgements($host, cc, seed, 17)
            ),
            beside_cubic!(
                $host,
                "beside CUBIC, drop-tail 0.5 BDP",
                "queue = \"125 kB\""
            ),
            beside_cubic!($host, "beside CUBIC, drop-tail 1 BDP", "queue = \"250 kB\""),
            beside_cubic!($host, "beside CUBIC, drop-tail 2 BDP", "queue = \"500 kB\""),
            beside_cubic!(
                $host,
                "beside CUBIC, CoDel",
                "queue.codel = { limit = \"500 kB\" }"
            ),
            beside_cubic!(
                $host,
                "beside CUBIC, CoDel with ECN",
                "queue.codel = { limit = \"500 kB\", ecn = true }"
            ),
            beside_cubic!(
                $host,
                "beside CUBIC, PIE",
                "queue.pie = { limit = \"500 kB\" }"
            ),
            beside_cubic!(
                $host,
                "beside CUBIC, PIE with ECN",
                "queue.pie = { limit = \"500 kB\", ecn = true }"
            ),
            beside_cubic!(
                $host,
                "beside CUBIC, CoDel, jitter of up to 8 ms every 20 ms",
                "jitter = { up_to = \"8 ms\", every = \"20 ms\" }, queue.codel = { limit = \"500 kB\" }"
            ),
            beside_cubic!(
                $host,
                "beside CUBIC, PIE, jitter of up to 8 ms every 20 ms",
                "jitter = { up_to = \"8 ms\", every = \"20 ms\" }, queue.pie = { limit = \"500 kB\" }"
            ),
            alike!($host, "four alike, 100 ms", 4, 10),
            alike!($host, "eight alike, 100 ms", 8, 18),
        ]
    };
}

/// On ideal hosts.
pub(super) static CLASSES: &[Budget] = classes!(HostSpec::IDEAL);
/// The same on busy ones.
pub(super) static CLASSES_BUSY: &[Budget] = classes!(HostSpec::BUSY);

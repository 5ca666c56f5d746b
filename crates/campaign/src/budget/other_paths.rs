//! Budgets on paths beside those of the goals, on some of which the satellite controller was
//! mended later. Physics gives no limit here beyond the capacity; what is asked is not to be much worse than the best of the
//! others, and to carry 0.95 at least of what CUBIC does with its full queue.

use bentpipe_cc::Choice;
use bentpipe_link::Scenario;
use bentpipe_units::Span;

use super::plans::*;
use super::{Budget, Goal, Limit};
use bentpipe_sim::quic::{FlowPlan, Transfer};
use bentpipe_sim::{LinkPlan, Nodes, Plan, Records};

/// Share of the best of the others that must be reached.
const SHARE_OF_BEST: Limit = Limit::OfTheBest(0.8);
const SOURCE: &str = "0.8 of the best of the others, and 0.95 of CUBIC with its full queue";

/// GEO as in the goals, queues of one bandwidth-delay product.
const GEO_FORWARD: &str = r#"rate = "20 Mbit/s", delay = "300 ms", queue = "1500 kB""#;
const GEO_RETURN: &str = r#"rate = "2 Mbit/s", delay = "300 ms", queue = "150 kB""#;

/// One flow from its start on, over a link as scenarios describe it.
fn alone(controller: Choice, seed: u64, seconds: u64, forward: &str, back: &str) -> Plan {
    many(1, controller, seed, seconds, forward, back)
}

/// `count` flows alike; each starts two seconds after the one before, and seeds shift it by up to three more.
fn many(
    count: u64,
    controller: Choice,
    seed: u64,
    seconds: u64,
    forward: &str,
    back: &str,
) -> Plan {
    let text = format!("name = \"path\"\nforward = {{ {forward} }}\nreturn = {{ {back} }}");
    let scenario = Scenario::parse(&text).expect("a scenario of this file");
    let bits = scenario.forward.rate.ceiling().bits_per_second();
    let rtt = scenario.satellite_rtt();
    let flow = |index: u64| {
        let mut flow = FlowPlan::new(
            transport(controller, bits, rtt),
            vec![Transfer::now(ENDLESS)],
        );
        flow.start = Span::from_millis((2_000 + 100 * (seed % 30)) * index);
        flow
    };
    let link = LinkPlan::of(&scenario);
    plan(seed, link, (0..count).map(flow).collect(), seconds)
}

fn received(records: &Records, until: f64) -> f64 {
    let flows = records.flows.len();
    (0..flows)
        .map(|flow| goodput(records, flow, 0.0, until))
        .sum()
}

/// Jain's index over the second half.
fn fairness(records: &Records, from: f64, to: f64) -> f64 {
    let shares: Vec<_> = (0..records.flows.len())
        .map(|flow| goodput(records, flow, from, to))
        .collect();
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// A row of one flow: link, seconds, and the payload in Mbit/s that the link could carry.
macro_rules! used {
    ($work:literal, $forward:expr, $back:expr, $seconds:literal, $mbit:expr) => {
        Budget {
            work: $work,
            source: SOURCE,
            plan: |cc, seed| alone(cc, seed, $seconds, $forward, $back),
            goals: &[
                Goal {
                    figure: "carried from the start",
                    unit: "of capacity",
                    bound: no_bound,
                    measure: |records| received(records, $seconds as f64 - 0.1) / payload($mbit),
                    limit: SHARE_OF_BEST,
                },
                Goal {
                    figure: "mean queue",
                    unit: "ms",
                    bound: no_bound,
                    measure: |records| 1e3 * mean_wait(records, 0.0, $seconds as f64),
                    limit: Limit::None,
                },
            ],
        }
    };
}

macro_rules! fair {
    ($work:literal, $plan:expr, $from:literal, $to:literal, $limit:expr) => {
        Budget {
            work: $work,
            source: SOURCE,
            plan: $plan,
            goals: &[Goal {
                figure: "fairness (Jain)",
                unit: "",
                bound: no_bound,
                measure: |records| fairness(records, $from, $to),
                limit: $limit,
            }],
        }
    };
}

macro_rules! beside {
    ($work:literal, $other:expr, $limit:expr, $source:expr) => {
        Budget {
            work: $work,
            source: $source,
            plan: |cc, seed| super::plans::beside(cc, $other, seed),
            goals: &[
                Goal {
                    figure: "the first keeps",
                    unit: "share",
                    bound: no_bound,
                    measure: |records| shares(records).0,
                    limit: $limit,
                },
                Goal {
                    figure: "the other keeps",
                    unit: "share",
                    bound: no_bound,
                    measure: |records| shares(records).1,
                    limit: Limit::AtLeast(0.2),
                },
            ],
        }
    };
}

/// The paths.
pub(super) static OTHER_PATHS: &[Budget] = &[
    used!(
        "RTT 30 ms",
        r#"rate = "20 Mbit/s", delay = "15 ms", queue = "75 kB""#,
        r#"rate = "2 Mbit/s", delay = "15 ms", queue = "20 kB""#,
        20,
        20.0
    ),
    used!(
        "RTT 120 ms",
        r#"rate = "20 Mbit/s", delay = "60 ms", queue = "300 kB""#,
        r#"rate = "2 Mbit/s", delay = "60 ms", queue = "30 kB""#,
        20,
        20.0
    ),
    used!(
        "RTT 260 ms",
        r#"rate = "20 Mbit/s", delay = "130 ms", queue = "650 kB""#,
        r#"rate = "2 Mbit/s", delay = "130 ms", queue = "65 kB""#,
        20,
        20.0
    ),
    used!(
        "RTT 800 ms",
        r#"rate = "20 Mbit/s", delay = "400 ms", queue = "2 MB""#,
        r#"rate = "2 Mbit/s", delay = "400 ms", queue = "200 kB""#,
        40,
        20.0
    ),
    used!(
        "2 Mbit/s, RTT 600 ms",
        GEO_RETURN,
        r#"rate = "500 kbit/s", delay = "300 ms", queue = "40 kB""#,
        60,
        2.0
    ),
    used!(
        "50 Mbit/s, RTT 600 ms",
        r#"rate = "50 Mbit/s", delay = "300 ms", queue = "3750 kB""#,
        r#"rate = "5 Mbit/s", delay = "300 ms", queue = "400 kB""#,
        40,
        50.0
    ),
    used!(
        "250 Mbit/s, RTT 600 ms",
        r#"rate = "250 Mbit/s", delay = "300 ms", queue = "18750 kB""#,
        r#"rate = "10 Mbit/s", delay = "300 ms", queue = "800 kB""#,
        20,
        250.0
    ),
    used!(
        "3 % random loss",
        r#"rate = "20 Mbit/s", delay = "300 ms", queue = "1500 kB", loss = "3 %""#,
        GEO_RETURN,
        40,
        20.0 * 0.97
    ),
    used!(
        "5 % random loss",
        r#"rate = "20 Mbit/s", delay = "300 ms", queue = "1500 kB", loss = "5 %""#,
        GEO_RETURN,
        40,
        20.0 * 0.95
    ),
    used!(
        "losses in bursts of ten (Gilbert-Elliott), 1 %",
        r#"rate = "20 Mbit/s", delay = "300 ms", queue = "1500 kB", loss.gilbert-elliott = { to_bad = "0.1 %", to_good = "10 %", loss_good = "0 %", loss_bad = "100 %" }"#,
        GEO_RETURN,
        40,
        20.0 * 0.99
    ),
    used!(
        "return by DVB-RCS2 slots, 512 kbit/s",
        GEO_FORWARD,
        r#"rate.dvb-rcs2 = { bandwidth = "10 MHz", roll_off = 0.35, waveform = 12, cra = "512 kbit/s", superframe = "45 ms" }, delay = "300 ms", queue = "150 kB""#,
        40,
        20.0
    ),
    used!(
        "return with jitter of up to 50 ms",
        GEO_FORWARD,
        r#"rate = "2 Mbit/s", delay = "300 ms", queue = "150 kB", jitter = { up_to = "50 ms", every = "20 ms" }"#,
        40,
        20.0
    ),
    used!(
        "forward in slots every 40 ms",
        r#"rate.trace = { points = [["0 ms", "100 Mbit/s"], ["8 ms", "0 bit/s"], ["40 ms", "100 Mbit/s"]], at_end = "loop" }, delay = "300 ms", queue = "1500 kB""#,
        GEO_RETURN,
        40,
        20.0
    ),
    used!(
        "CoDel (5 ms, 100 ms)",
        r#"rate = "20 Mbit/s", delay = "300 ms", queue.codel = { limit = "1500 kB" }"#,
        GEO_RETURN,
        60,
        20.0
    ),
    used!(
        "FQ-CoDel",
        r#"rate = "20 Mbit/s", delay = "300 ms", queue.fq-codel = { limit = "1500 kB" }"#,
        GEO_RETURN,
        60,
        20.0
    ),
    used!(
        "LEO, another satellite every 15 s",
        r#"rate = "50 Mbit/s", delay = "20 ms", queue = "100 ms", reconfigure = { every = "15 s", first = "12 s", step = "8 ms", gap = "40 ms", burst = "60 ms", loss = "25 %" }"#,
        r#"rate = "10 Mbit/s", delay = "20 ms", queue = "100 ms", reconfigure = { every = "15 s", first = "12 s", step = "8 ms", gap = "40 ms", burst = "60 ms", loss = "25 %" }"#,
        60,
        50.0
    ),
    used!(
        "base delay grows by 80 ms at 20 s",
        r#"rate = "20 Mbit/s", delay = "20 ms", queue = "200 kB", change = [{ at = "20 s", delay = "100 ms" }]"#,
        r#"rate = "2 Mbit/s", delay = "20 ms", queue = "40 kB""#,
        60,
        20.0
    ),
    fair!(
        "four alike, GEO",
        |cc, seed| many(4, cc, seed, 120, GEO_FORWARD, GEO_RETURN),
        60.0,
        119.9,
        SHARE_OF_BEST
    ),
    fair!(
        "eight alike, GEO",
        |cc, seed| many(8, cc, seed, 120, GEO_FORWARD, GEO_RETURN),
        60.0,
        119.9,
        SHARE_OF_BEST
    ),
    fair!(
        "one that comes 40 s later, GEO",
        |cc, seed| {
            let mut plan = many(2, cc, seed, 120, GEO_FORWARD, GEO_RETURN);
            if let Nodes::Quic(flows) = &mut plan.nodes {
                flows[1].start = Span::from_millis(40_000);
            }
            plan
        },
        70.0,
        119.9,
        SHARE_OF_BEST
    ),
    beside!(
        "beside BBRv3, queue 1 BDP, 120 s",
        Choice::Bbr3,
        Limit::AtLeast(0.15),
        "neither side may starve: CUBIC keeps 0.28 there and NewReno 0.10"
    ),
    beside!(
        "beside Hybla, queue 1 BDP, 120 s",
        Choice::Hybla,
        Limit::None,
        "shown only: Hybla leaves CUBIC 0.11 and NewReno 0.03, and is not friendly by design"
    ),
];

//! Virtual time: repeatable, and fast enough for sweeps; and what our controller must
//! reach in it.

use std::time::Instant;

use bentpipe_campaign::budget;
use bentpipe_cc::{Choice, Settings};
use bentpipe_link::Scenario;
use bentpipe_quic::{ConnectionParameters, Selection};
use bentpipe_sim::record::{Records, Verdict};
use bentpipe_sim::{FlowPlan, LinkPlan, Plan, PlanError, Transfer, run};
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

fn plan(controller: impl Into<Selection>, link: LinkPlan, flows: usize, bytes: u64) -> Plan {
    let transport = ConnectionParameters::new(Settings::new(controller.into()));
    let flow = FlowPlan::new(transport, vec![Transfer::now(Bytes::new(bytes))]);
    Plan {
        seed: 7,
        links: vec![link],
        flows: vec![flow; flows],
        until: Span::from_millis(120_000),
        sample_every: Span::from_millis(600),
    }
}

fn records(plan: &Plan) -> Records {
    run(plan, any_base()).expect("a plan that can be carried out")
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
        let [one, other] = [records(&plan), records(&plan)].map(|records| records.to_jsonl());
        assert!(one.len() > 1000);
        assert_eq!(one, other, "{controller}");
    }
}

#[test]
fn what_is_asked_for_arrives_whole_with_every_controller() {
    for controller in Selection::all() {
        let mut plan = plan(controller, geo("0.1 %", "1500 kB"), 1, 1_000_000);
        let rate = plan.links[0].forward.rate.ceiling();
        plan.flows[0].transport.settings.know_rate(rate);
        let records = records(&plan);
        assert_eq!(records.flows[0].verdict, Verdict::Ok, "{controller}");
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
        let settings = &mut plan.flows[0].transport.settings;
        settings.know_rate(Rate::from_bits_per_second(18_000_000));
        let again = Transfer::after(Span::from_millis(1_300), Bytes::new(400_000));
        plan.flows[0].transfers = vec![again; 6];
        plan.sample_every = Span::from_millis(20);
        let records = records(&plan);
        assert_eq!(records.flows[0].verdict, Verdict::Ok);
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
    plan.flows[1].transport.settings.controller = Choice::Fixed.into();
    plan.flows[1].transport.settings.contracted_rate = Some(Rate::from_bits_per_second(4_000_000));
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
fn a_plan_that_cannot_be_carried_out_is_refused() {
    let mut endless = plan(Choice::Cubic, geo("0 %", "100 kB"), 1, 1000);
    endless.until = Span::ZERO;
    assert!(matches!(endless.check(), Err(PlanError::Endless(_))));
    let mut nowhere = plan(Choice::Cubic, geo("0 %", "100 kB"), 1, 1000);
    nowhere.flows[0].path = vec![3];
    let error = run(&nowhere, any_base())
        .expect_err("there is no link 3")
        .to_string();
    assert!(error.contains("flows[0].path names link 3"), "{error}");
    let mut controller = plan(Choice::Fixed, geo("0 %", "100 kB"), 1, 1000);
    controller.flows[0].transport.settings.contracted_rate = None;
    let error = controller.check().expect_err("no rate").to_string();
    assert!(error.contains("contracted_rate"), "{error}");
}

#[test]
fn an_outage_without_end_ends_with_a_verdict() {
    let mut plan = plan(Choice::Satellite, geo("0 %", "100 kB"), 1, 10 << 20);
    let dark = bentpipe_sim::What::Blackout(Span::from_millis(1_000_000));
    // A shorter one within it does not end it.
    let darker = bentpipe_sim::What::Blackout(Span::from_millis(1_000));
    plan.links[0] = (plan.links[0].clone())
        .change(Span::from_millis(2_000), dark)
        .change(Span::from_millis(3_000), darker);
    plan.until = Span::from_millis(100_000);
    let records = records(&plan);
    assert_ne!(records.flows[0].verdict, Verdict::Ok);
    let (transfer, flow) = (&records.transfers[0], &records.flows[0]);
    assert!(
        (transfer.received..=flow.forward_ip_bytes).contains(&transfer.sent_ip_bytes),
        "{transfer:?}, {flow:?}"
    );
}

/// All budgets with few seeds; `bentpipe sim budgets` runs them with thirty.
#[test]
fn our_controller_keeps_its_budgets() {
    let rows = budget::check(
        budget::Section::Goals,
        &[Choice::Satellite],
        5,
        "",
        any_base(),
        |_, _| {},
    );
    let short: Vec<_> = (rows.iter())
        // The median of five draws is no median of thirty there: the limit is the median.
        .filter(|row| !row.kept && row.work != "2 MB warm, 0.1 % loss, queue 1 BDP")
        .map(|row| {
            let median = row.medians[0].1.unwrap_or(f64::NAN);
            format!(
                "{}: {} {median:.3} {}, limit {}",
                row.work, row.figure, row.unit, row.limit
            )
        })
        .collect();
    assert!(short.is_empty(), "{}", short.join("\n"));
}

/// What a real runtime's timers do: the pacer's bursts become coarser, the transfer hardly
/// slower.
#[test]
fn coarse_timers_round_up() {
    let exact = plan(Choice::Satellite, geo("0 %", "1500 kB"), 1, 10 << 20);
    let mut coarse = exact.clone();
    coarse.flows[0].granularity = Span::from_millis(1);
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

/// Some of the paths beside those of its goals, where it once did badly.
#[test]
fn our_controller_holds_on_other_paths() {
    let controllers = [Choice::Satellite, Choice::Cubic];
    for path in ["base delay grows", "LEO", "jitter", "DVB-RCS2"] {
        let elsewhere = budget::Section::Elsewhere;
        let rows = budget::check(elsewhere, &controllers, 5, path, any_base(), |_, _| {});
        assert!(!rows.is_empty());
        for row in rows {
            assert!(row.kept, "{}: {} {:?}", row.work, row.figure, row.medians);
        }
    }
}

//! Terminals and gateways in virtual time: repeatable, in agreement with physics, and
//! never without an end.

use std::time::Instant;

use bentpipe_cc::Choice;
use bentpipe_link::Change;
use bentpipe_link::{Cause, Scenario};
use bentpipe_sim::record::{TunnelFlow, TunnelVerdict, WorkKind};
use bentpipe_sim::tunnel::{Call, FlowPlan, TerminalPlan, TunnelPlan, Work};
use bentpipe_sim::{LinkPlan, Move, Nodes, Plan, Record, Records, Towards, run};
use bentpipe_tunnel::transport::Transport;
use bentpipe_units::{Bytes, Rate, Span};
use bentpipe_vnet::host::HostSpec;

fn seconds(seconds: u64) -> Span {
    Span::from_millis(1000 * seconds)
}

fn link(forward: &str, back: &str) -> LinkPlan {
    let text = format!("name = \"test\"\nforward = {{ {forward} }}\nreturn = {{ {back} }}");
    LinkPlan::of(&Scenario::parse(&text).expect("a scenario"))
}

fn geo() -> LinkPlan {
    link(
        "rate = \"20 Mbit/s\", delay = \"250 ms\", queue = \"1250 kB\"",
        "rate = \"5 Mbit/s\", delay = \"250 ms\", queue = \"312500 B\"",
    )
}

fn transport() -> Transport {
    Transport {
        expected_rate: Rate::from_bits_per_second(20_000_000),
        ..Transport::default()
    }
}

fn download(start: u64, bytes: u64) -> FlowPlan {
    FlowPlan {
        start: seconds(start),
        work: Work::Download(Bytes::new(bytes)),
    }
}

fn upload(start: u64, bytes: u64) -> FlowPlan {
    FlowPlan {
        start: seconds(start),
        work: Work::Upload(Bytes::new(bytes)),
    }
}

fn plan(link: LinkPlan, terminals: Vec<Vec<FlowPlan>>) -> Plan {
    let terminals = terminals
        .into_iter()
        .map(|flows| TerminalPlan::new(transport(), flows))
        .collect();
    Plan {
        seed: 1,
        links: vec![link],
        nodes: Nodes::Tunnel(TunnelPlan {
            gateway: transport(),
            ..TunnelPlan::new(terminals)
        }),
        until: seconds(600),
        sample_every: seconds(1),
    }
}

fn tunnel(plan: &mut Plan) -> &mut TunnelPlan {
    match &mut plan.nodes {
        Nodes::Tunnel(tunnel) => tunnel,
        _ => unreachable!("the plans here are of terminals and a gateway"),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the QUIC library wants some instant; no result depends on it"
)]
fn any_base() -> Instant {
    Instant::now()
}

fn records(plan: &Plan) -> Records {
    Records::of(plan, any_base()).expect("a plan that can be run")
}

fn flows(plan: &Plan) -> Vec<TunnelFlow> {
    let mut flows = records(plan).tunnel_flows;
    flows.sort_by_key(|flow| (flow.terminal, flow.flow));
    flows
}

/// Everything that a run records.
fn text(plan: &Plan) -> String {
    let mut text = String::new();
    let mut keep = |record: Record| text += &(record.to_json() + "\n");
    run(plan, any_base(), &mut keep).expect("a plan that can be run");
    text
}

/// A plan whose machines are `terminals`' and `gateway`'s.
fn on_hosts(terminals: HostSpec, gateway: HostSpec) -> Plan {
    let mut plan = plan(
        geo(),
        vec![vec![download(3, 1_000_000), upload(9, 200_000)]],
    );
    let tunnel = tunnel(&mut plan);
    tunnel.ground_rtt = Span::from_millis(40);
    tunnel.gateway_host = gateway;
    tunnel.terminals[0].host = terminals;
    plan
}

/// Records are the same whenever the plan is, and each end's machine shows in them.
#[test]
fn each_end_has_a_machine_that_a_seed_makes() {
    let (ideal, late) = (HostSpec::IDEAL, HostSpec::LOADED);
    let mut all = Vec::new();
    for hosts in [(ideal, ideal), (late, ideal), (ideal, late), (late, late)] {
        let plan = on_hosts(hosts.0, hosts.1);
        let once = text(&plan);
        assert!(once == text(&plan), "two runs on {hosts:?}");
        assert!(!all.contains(&once), "{hosts:?} does not show");
        all.push(once);
        for flow in flows(&plan) {
            assert_eq!(flow.verdict, TunnelVerdict::Ok, "{hosts:?}: {flow:?}");
        }
    }
}

/// Timers of a coarse clock and a processor without offload hold a link up, but do not stop it.
#[test]
fn a_slow_router_carries_what_the_link_does() {
    for host in [HostSpec::QUIET, HostSpec::BUSY, HostSpec::SLOW] {
        let mut plan = plan(geo(), vec![vec![download(3, 10_000_000)]]);
        tunnel(&mut plan).terminals[0].host = host;
        tunnel(&mut plan).gateway_host = host;
        let flow = flows(&plan)[0].clone();
        assert_eq!(flow.verdict, TunnelVerdict::Ok, "{host:?}");
        // 4.2 s on the link, two round trips and the start.
        let took = (flow.done_ns.unwrap_or(u64::MAX) - flow.begun_ns) as f64 / 1e9;
        assert!((4.5..12.0).contains(&took), "{took:.2} s on {host:?}");
    }
}

#[test]
fn the_same_plan_twice_gives_the_same_bytes() {
    let lossy = link(
        "rate = \"20 Mbit/s\", delay = \"250 ms\", loss = \"1 %\", queue = \"200 kB\"",
        "rate = \"5 Mbit/s\", delay = \"250 ms\", loss = \"0.5 %\", queue = \"50 kB\"",
    );
    let work = vec![
        download(5, 2_000_000),
        upload(6, 300_000),
        download(7, 50_000),
    ];
    let mut plan = plan(lossy, vec![work; 4]);
    tunnel(&mut plan).ground_rtt = Span::from_millis(80);
    let (one, other) = (text(&plan), text(&plan));
    assert!(one.lines().count() > 30, "{one}");
    assert!(
        one.contains("\"loss\":") || one.contains("dropped"),
        "{one}"
    );
    assert_eq!(one, other);
    plan.seed = 2;
    assert_ne!(one, text(&plan), "another seed loses other packets");
}

#[test]
fn the_first_answer_takes_one_round_trip_and_twice_the_ground() {
    let mut plan = plan(geo(), vec![vec![download(10, 1000)]]);
    tunnel(&mut plan).ground_rtt = Span::from_millis(80);
    let flow = &flows(&plan)[0];
    assert_eq!(flow.verdict, TunnelVerdict::Ok);
    let first = flow.first_byte_s().expect("an answer");
    // 500 ms of satellite, 2 x 80 ms of ground, and a few packets at 5 and 20 Mbit/s.
    assert!((0.660..0.664).contains(&first), "{first}");
}

#[test]
fn a_call_beside_a_download_is_hardly_later_and_loses_nothing() {
    let call = FlowPlan {
        start: seconds(12),
        work: Work::Call(Call {
            every: Span::from_millis(10),
            size: 1000,
            count: 1000,
        }),
    };
    let mut beside = plan(geo(), vec![vec![call, download(5, 30_000_000)]]);
    let mut alone = plan(geo(), vec![vec![call]]);
    let [(_, p95), (idle, _)] = [&mut beside, &mut alone].map(|plan| {
        tunnel(plan).ground_rtt = Span::from_millis(80);
        let flow = flows(plan).swap_remove(0);
        assert_eq!(flow.verdict, TunnelVerdict::Ok, "{flow:?}");
        let echo = flow.echo.expect("a call has echoes");
        assert_eq!((echo.sent, echo.echoed), (1000, 1000), "{echo:?}");
        assert_eq!(flow.arrived, flow.bytes);
        let ms = |ns: Option<u64>| ns.expect("they have come") as f64 / 1e6;
        (ms(echo.p50_ns), ms(echo.p95_ns))
    });
    println!("p95 {p95} ms beside a download, median {idle} ms alone");
    // 500 ms of satellite, 80 ms of ground, a packet at 5 and one at 20 Mbit/s; 1 ms more each way.
    // The median: a call alone waits for the session's slow start in its first second.
    assert!((582.0..584.2).contains(&idle), "{idle} ms");
    assert!(p95 < idle + 20.0, "{p95} ms, {idle} ms alone");
}

#[test]
fn what_a_call_has_lost_is_told() {
    let lossy = link(
        "rate = \"20 Mbit/s\", delay = \"250 ms\", loss = \"5 %\", queue = \"1 BDP\"",
        "rate = \"5 Mbit/s\", delay = \"250 ms\", queue = \"1 BDP\"",
    );
    let call = FlowPlan {
        start: seconds(5),
        work: Work::Call(Call {
            every: Span::from_millis(20),
            size: 200,
            count: 1000,
        }),
    };
    let flow = flows(&plan(lossy, vec![vec![call]])).swap_remove(0);
    let echo = flow.echo.expect("a call has echoes");
    assert_eq!(echo.sent, 1000);
    assert!((0.03..0.08).contains(&echo.lost()), "{echo:?}");
}

#[test]
fn terminals_share_their_beam() {
    let plan = plan(geo(), vec![vec![download(5, 5_000_000)]; 4]);
    let flows = flows(&plan);
    let slowest = flows
        .iter()
        .filter_map(TunnelFlow::seconds)
        .fold(0.0, f64::max);
    assert!(
        flows.iter().all(|flow| flow.verdict == TunnelVerdict::Ok),
        "{flows:?}"
    );
    // 20 MB at 20 Mbit/s, with headers, and the round trip.
    let bound = 0.5 + 20e6 * 8.0 * 1500.0 / 1437.0 / 20e6;
    assert!(
        (1.0..1.5).contains(&(slowest / bound)),
        "{slowest} s, bound {bound} s"
    );
}

/// The radio takes three of the first fifteen packets now and then, of which twelve show no rate: one that was taken from these kept sessions
/// at a hundredth of the link for a minute and more.
#[test]
fn a_new_session_over_a_lossy_link_does_not_crawl() {
    let lossy = link(
        "rate = \"20 Mbit/s\", delay = \"250 ms\", loss = \"5 %\", queue = \"1250 kB\"",
        "rate = \"5 Mbit/s\", delay = \"250 ms\", queue = \"312500 B\"",
    );
    let mut plan = plan(lossy, vec![vec![download(0, 10_000_000)]]);
    tunnel(&mut plan).ground_rtt = Span::from_millis(80);
    let slow: Vec<_> = (1..=60)
        .map(|seed| {
            plan.seed = seed;
            let flow = flows(&plan).swap_remove(0);
            (seed, flow.seconds().unwrap_or(f64::INFINITY))
        })
        .filter(|(_, took)| *took > 20.0)
        .collect();
    // 4.2 s on the link, and in the median 9.5.
    assert!(slow.is_empty(), "seeds and seconds: {slow:?}");
}

/// A loss holds up what came behind it until it is repaired, a round trip later, and so does the loss of a repair. Meanwhile the sender goes
/// on: with what is expected of the link and no more the windows do not stop it.
#[test]
fn one_download_over_a_lossy_link_is_not_held_up_by_its_windows() {
    let took = |loss: &str, seed: u64, transport: &Transport| {
        let forward = format!(
            "rate = \"20 Mbit/s\", delay = \"250 ms\", loss = \"{loss}\", queue = \"1250 kB\""
        );
        let lossy = link(
            &forward,
            "rate = \"5 Mbit/s\", delay = \"250 ms\", queue = \"312500 B\"",
        );
        let work = vec![download(0, 10_000_000), download(30, 40_000_000)];
        let mut plan = plan(lossy, vec![work]);
        plan.seed = seed;
        let tunnel = tunnel(&mut plan);
        tunnel.gateway = transport.clone();
        tunnel.terminals[0].transport = transport.clone();
        let flow = flows(&plan).swap_remove(1);
        assert_eq!(flow.verdict, TunnelVerdict::Ok, "{flow:?}");
        flow.seconds().expect("it has ended")
    };
    let exact = Transport {
        expected_rtt: Span::from_millis(500),
        ..transport()
    };
    let ample = Transport {
        expected_rate: Rate::from_bits_per_second(200_000_000),
        ..exact.clone()
    };
    for loss in ["1 %", "3 %"] {
        let [exact, ample] = [&exact, &ample]
            .map(|transport| -> f64 { (1..=6).map(|seed| took(loss, seed, transport)).sum() });
        println!("{loss} of loss: {exact:.1} s, {ample:.1} s with ten times the windows");
        assert!(
            exact < 1.05 * ample,
            "{exact:.1} s for {ample:.1} at {loss}"
        );
    }
}

/// The downloads' queue delays the acknowledgements of the uploads; CUBIC does not mind.
#[test]
fn downloads_that_delay_acknowledgements_do_not_slow_uploads() {
    let [ours, cubic] = [Choice::Satellite, Choice::Cubic].map(|controller| {
        let terminal = |number: u64| vec![download(5 + number, 10 << 20), upload(12, 500_000)];
        let mut plan = plan(geo(), (0..4).map(terminal).collect());
        let tunnel = tunnel(&mut plan);
        tunnel.gateway.controller = controller.into();
        for terminal in &mut tunnel.terminals {
            terminal.transport.controller = controller.into();
        }
        let flows = flows(&plan);
        let uploads = flows.iter().filter(|flow| flow.work == WorkKind::Upload);
        let took: Vec<_> = uploads.filter_map(TunnelFlow::seconds).collect();
        assert_eq!(took.len(), 4, "{flows:?}");
        took
    });
    // CUBIC's are the goal, and not reached (docs/limitations.md). With the queue of others taken for the path's rate
    // they were four times as long.
    let sum = |took: &[f64]| took.iter().sum::<f64>();
    assert!(
        sum(&ours) < 1.5 * sum(&cubic),
        "{ours:?}, CUBIC's {cubic:?}"
    );
}

/// What uploads over a return link that gives what was asked for a second ago take with a controller, seconds of each seed.
fn over_a_return_link_on_demand<const N: usize>(
    controller: Choice,
    work: [FlowPlan; N],
    seeds: std::ops::RangeInclusive<u64>,
) -> Vec<[TunnelFlow; N]> {
    let scenario = Scenario::parse(include_str!("../../../scenarios/kosek-geo.toml"));
    let link = LinkPlan::of(&scenario.expect("a scenario that is shipped"));
    let of_seed = |seed| {
        let mut plan = plan(link.clone(), vec![work.to_vec()]);
        plan.seed = seed;
        plan.until = seconds(250);
        for terminal in &mut tunnel(&mut plan).terminals {
            terminal.transport.controller = controller.into();
        }
        flows(&plan).try_into().expect("as many flows as planned")
    };
    seeds.map(of_seed).collect()
}

/// Sent at what comes through, nothing more is ever asked for: uploads of 2 MB took 17 s to more than the four minutes here. Most of what
/// an idle link gives at first is less than the first window asks for; behind a pause it is idle again.
#[test]
fn a_return_link_on_demand_is_asked_for_more() {
    let work = [upload(5, 2_000_000), upload(120, 2_000_000)];
    let [ours, cubic] = [Choice::Satellite, Choice::Cubic].map(|controller| {
        let slowest = |number: usize, flows: &[[TunnelFlow; 2]]| {
            let took = flows.iter().map(|flows| flows[number].seconds());
            took.map(|took| took.unwrap_or(f64::INFINITY))
                .fold(0.0, f64::max)
        };
        let flows = over_a_return_link_on_demand(controller, work, 1..=10);
        [slowest(0, &flows), slowest(1, &flows)]
    });
    println!("slowest of ten, cold and warm: {ours:?} s, CUBIC {cubic:?} s");
    assert!(ours[0] < 1.25 * cubic[0] && ours[1] < 1.25 * cubic[1]);
}

/// Begun beside a download, whose acknowledgements have had something given already, an upload was sent at what came through for up to
/// two minutes. CUBIC's time is the goal, and not reached (docs/limitations.md).
#[test]
#[ignore = "takes long: make test-long"]
fn an_upload_on_demand_beside_a_download_does_not_crawl() {
    let [ours, cubic] = [Choice::Satellite, Choice::Cubic].map(|controller| {
        let slowest = [8_000, 8_600].map(|begun| {
            let begin = |work| FlowPlan {
                start: Span::from_millis(begun),
                work,
            };
            let uploads = [1_000, 2_000_000].map(|bytes| begin(Work::Upload(Bytes::new(bytes))));
            let work = [download(2, 10 << 20), uploads[0], uploads[1]];
            let flows = over_a_return_link_on_demand(controller, work, 1..=20);
            let took = flows.iter().map(|flows| flows[2].seconds());
            took.map(|took| took.unwrap_or(f64::INFINITY))
                .fold(0.0, f64::max)
        });
        slowest[0].max(slowest[1])
    });
    println!("slowest of forty: {ours} s, CUBIC {cubic} s");
    assert!(ours < 4.0 * cubic);
}

/// CUBIC fills the queue with eight seconds for it.
#[test]
fn a_call_beside_a_long_upload_on_demand_waits_less_than_beside_cubic() {
    let call = FlowPlan {
        start: seconds(20),
        work: Work::Call(Call {
            every: Span::from_millis(20),
            size: 200,
            count: 500,
        }),
    };
    let work = [upload(5, 20_000_000), call];
    let [ours, cubic] = [Choice::Satellite, Choice::Cubic].map(|controller| {
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        let flows = over_a_return_link_on_demand(controller, work, 1..=5);
        let took = flows.iter().filter_map(|flows| flows[0].seconds());
        let calls = flows.iter().filter_map(|flows| flows[1].echo.as_ref());
        let late = calls.filter_map(|echo| echo.p95_ns);
        (
            median(took.collect()),
            median(late.map(|ns| ns as f64 / 1e9).collect()),
        )
    });
    println!("upload, and p95 of the call: {ours:?} s, CUBIC {cubic:?} s");
    assert!(ours.0 < 1.15 * cubic.0, "the upload is hardly slower");
    assert!(ours.1 < 0.5 * cubic.1, "and the call sooner");
}

#[test]
fn what_goes_in_comes_out_or_is_counted() {
    let links = records(&plan(
        geo(),
        vec![vec![upload(3, 500_000), download(3, 500_000)]],
    ))
    .links;
    assert_eq!(links.len(), 2);
    for link in links {
        let packets = &link.packets;
        let inside = packets.entered - packets.delivered - packets.dropped.total();
        assert!(packets.delivered > 300 && inside < 100, "{link:?}");
    }
}

#[test]
fn a_terminal_moves_and_its_download_goes_on() {
    let mut plan = plan(geo(), vec![vec![download(5, 20 << 20)]]);
    plan.links.push(link(
        "rate = \"50 Mbit/s\", delay = \"16 ms\", queue = \"700 kB\"",
        "rate = \"10 Mbit/s\", delay = \"16 ms\", queue = \"140 kB\"",
    ));
    tunnel(&mut plan).terminals[0].moves.push(Move {
        at: seconds(10),
        path: vec![1],
    });
    let flow = &flows(&plan)[0];
    assert_eq!(flow.verdict, TunnelVerdict::Ok);
    let took = flow.seconds().expect("complete");
    // Five seconds of GEO, then what is left at 50 Mbit/s instead of another four.
    assert!((5.0..8.0).contains(&took), "{took} s");
}

/// A ship leaves its port: a session that began over land goes on over the satellite, although the
/// gateway has seen nothing but short round trips; and back in port, over land.
#[test]
fn a_session_goes_on_from_land_to_the_satellite_and_back() {
    let mut plan = plan(geo(), (0..1).map(|_| vec![]).collect());
    plan.links.push(link(
        "rate = \"50 Mbit/s\", delay = \"15 ms\", queue = \"190 kB\"",
        "rate = \"20 Mbit/s\", delay = \"15 ms\", queue = \"75 kB\"",
    ));
    let terminal = &mut tunnel(&mut plan).terminals[0];
    terminal.path = vec![1];
    for (at, link) in [(20, 0), (60, 1), (80, 0)] {
        let (at, path) = (seconds(at), vec![link]);
        terminal.moves.push(Move { at, path });
    }
    let starts = [5, 30, 45, 65, 85];
    terminal.flows = starts.map(|start| download(start, 5_000_000)).into();
    terminal.flows.push(upload(100, 1_000_000));
    let records = records(&plan);
    let took = |number: usize| {
        let flow = records.tunnel_flows.iter().find(|it| it.flow == number);
        let flow = flow.expect("a record of it");
        assert_eq!(flow.verdict, TunnelVerdict::Ok, "{flow:?}");
        flow.seconds().expect("complete")
    };
    let took: Vec<_> = (0..starts.len() + 1).map(took).collect();
    let (land, satellite) = (5e6 * 8.0 / 50e6, 5e6 * 8.0 / 20e6 + 0.5);
    assert!(took[0] < 2.0 * land && took[3] < 2.0 * land, "{took:?}");
    assert!(took[1] < 1.6 * satellite, "{took:?}");
    // What is known of the satellite is known again after a while over land.
    assert!(took[4] < 1.2 * satellite, "{took:?}");
}

#[test]
fn a_link_slows_down_and_its_download_with_it() {
    let slower = Change {
        rate: Some(Rate::from_bits_per_second(5_000_000)),
        ..Change::default()
    };
    let slower = geo().change(seconds(8), Towards::Terminal, slower);
    let [fast, slow] = [geo(), slower].map(|link| {
        let flow = flows(&plan(link, vec![vec![download(5, 10 << 20)]])).remove(0);
        assert_eq!(flow.verdict, TunnelVerdict::Ok);
        flow.seconds().expect("complete")
    });
    // At most three seconds at 20 Mbit/s, and the rest at 5.
    let bound = 3.0 + (10.5e6 - 7.5e6) * 8.0 / 5e6;
    assert!(
        fast < bound && slow > bound,
        "{fast} s, {slow} s, bound {bound} s"
    );
}

#[test]
fn whatever_never_ends_ends_with_a_verdict() {
    // A shorter blackout within the endless one does not end it.
    let dark = geo()
        .blackout(seconds(8), seconds(1_000_000))
        .blackout(seconds(9), seconds(1));
    let mut endless = plan(dark, vec![vec![download(5, 20 << 20), download(700, 1000)]]);
    endless.until = seconds(600);
    let recorded = records(&endless);
    let flow = |number: usize| (recorded.tunnel_flows.iter()).find(|flow| flow.flow == number);
    let [first, late] = [0, 1].map(|number| flow(number).expect("each flow has a record"));
    assert_eq!(first.verdict, TunnelVerdict::Reset, "{first:?}");
    assert!(first.arrived > 1_000_000 && first.arrived < 20 << 20);
    assert_eq!(late.verdict, TunnelVerdict::NotBegun);
    // A blackout is an outage of the link, and counted as one.
    for link in &recorded.links {
        let lost = link.packets.dropped.of(Cause::Outage);
        assert!(lost > 0 && lost == link.blacked_out, "{link:?}");
    }

    // A link of the slowest rate there is: eight seconds for a byte.
    let slow = link(
        "rate = \"1 bit/s\", delay = \"250 ms\", queue = \"1 MB\"",
        "rate = \"5 Mbit/s\", delay = \"250 ms\", queue = \"312500 B\"",
    );
    let mut never = plan(slow, vec![vec![download(0, 1000)]]);
    never.until = seconds(3600);
    assert_eq!(flows(&never)[0].verdict, TunnelVerdict::Reset);
}

#[test]
fn coarse_timers_cost_little_and_do_not_stop_time() {
    let work = [5, 30, 55].map(|start| download(start, 10 << 20));
    let mut exact = plan(geo(), vec![work.to_vec()]);
    tunnel(&mut exact).gateway.controller = Choice::Satellite.into();
    let mut coarse = exact.clone();
    tunnel(&mut coarse).granularity = Span::from_millis(1);
    let [exact, coarse] = [exact, coarse].map(|plan| {
        let flows = flows(&plan);
        flows[2].seconds().unwrap_or_else(|| panic!("{flows:?}"))
    });
    assert_ne!(exact, coarse, "timers of whole milliseconds show");
    assert!((coarse / exact - 1.0).abs() < 0.01, "{exact} s, {coarse} s");
}

#[test]
fn a_plan_that_cannot_be_run_is_refused() {
    let good = plan(geo(), vec![vec![download(5, 1000)]]);
    let refusal = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.check().expect_err("it cannot be run").to_string()
    };
    let said = refusal(&|plan| tunnel(plan).terminals[0].path = vec![3]);
    assert!(said.contains("names link 3"), "{said}");
    let said = refusal(&|plan| tunnel(plan).terminals[0].flows.clear());
    assert!(said.contains("no flow"), "{said}");
    let said = refusal(&|plan| tunnel(plan).gateway.memory = Bytes::new(1 << 20));
    assert!(said.contains("gateway"), "{said}");
    let said = refusal(&|plan| {
        let terminals = &mut tunnel(plan).terminals;
        *terminals = vec![terminals[0].clone(); 10_000];
    });
    assert!(said.contains("10000 terminals"), "{said}");
    let said = refusal(&|plan| tunnel(plan).granularity = seconds(1));
    assert!(said.contains("granularity = 1 s"), "{said}");
    let said = refusal(&|plan| plan.until = Span::ZERO);
    assert!(said.contains("until"), "{said}");
}

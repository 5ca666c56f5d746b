//! Scenarios: read, checked, echoed, explained.

use bentpipe_link::{Change, Directions, LinkChange};
use bentpipe_link::{Scenario, explain::Explanation};
use bentpipe_units::Bytes;

fn shipped(name: &str) -> Scenario {
    let path = format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    Scenario::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_field_survives_the_echo() {
    let geo = shipped("geo");
    let echoed = toml::to_string(&geo).unwrap();
    assert_eq!(Scenario::parse(&echoed).unwrap(), geo);
}

#[test]
fn geo_amounts_to_what_its_title_says() {
    let geo = Explanation::of(&shipped("geo"));
    assert_eq!(geo.satellite_rtt_ns, 500_000_000);
    assert_eq!(geo.path_rtt_ns, 580_000_000);
    assert_eq!(geo.forward.bdp_bytes, 1_250_000);
    assert_eq!(geo.forward.queue_ns, 500_000_000);
    assert_eq!(geo.forward.tcp_goodput_bit_s, 19_306_667);
}

#[test]
fn a_change_is_told_as_it_is_asked_for() {
    let told = |text: &str| Change::parse(text).unwrap().to_string();
    assert_eq!(
        told("rate = \"5 Mbit/s\"\ndelay = \"30 ms\"\noutage = false"),
        "delay=30 ms, outage=false, rate=5 Mbit/s"
    );
    assert_eq!(told("loss = \"1 %\""), "loss=1 %");
    let bursts = "loss.periodic = { every = 100, lose = 2 }";
    assert_eq!(
        told(bursts),
        "loss={ periodic = { every = 100, first = 0, lose = 2 } }"
    );
    let fates = "x.".repeat(500);
    let trace = told(&format!(
        "loss.trace = {{ fates = \"{fates}\", at_end = \"loop\" }}"
    ));
    assert!(trace.ends_with("x.x...."), "{trace}");
    assert!(trace.len() < 120, "{trace}");
}

#[test]
fn bounds_of_ten_mebibytes_over_geo_are_those_worked_out_by_hand() {
    let bound = |loss: &str, round_trips| {
        let link = |rate: &str| {
            format!("rate = \"{rate}\"\ndelay = \"300 ms\"\nqueue = \"1 BDP\"\nloss = \"{loss}\"\n")
        };
        let text = format!(
            "name = \"b\"\n[forward]\n{}[return]\n{}",
            link("20 Mbit/s"),
            link("2 Mbit/s")
        );
        let mut explanation = Explanation::of(&Scenario::parse(&text).unwrap());
        explanation.add_bound(Bytes::new(10 << 20), round_trips);
        assert_eq!(explanation.first_byte_ns, 600_000_000);
        let forward = explanation.bounds[0].forward;
        [forward.warm_ns, forward.cold_ns].map(|nanos| (nanos as f64 / 1e7).round() / 100.0)
    };
    // 10 MiB * 8 * 1500 / 1437 bits at 20 Mbit/s are 4.378 s; each round trip is 0.6 s.
    assert_eq!(bound("0 %", 1), [4.98, 5.58]);
    assert_eq!(bound("1 %", 1), [5.02, 5.62]);
    assert_eq!(bound("0 %", 3), [6.18, 6.78]);
}

#[test]
fn a_change_of_a_link_is_of_the_directions_that_were_meant() {
    let change = Change::parse("outage = \"3 s\"").unwrap();
    assert_eq!(change.to_string(), "outage=3 s");
    let nothing = Change::default();
    for (directions, forward, back) in [
        (Directions::Forward, &change, &nothing),
        (Directions::Return, &nothing, &change),
        (Directions::Both, &change, &change),
    ] {
        let of_link = LinkChange::of(directions, &change);
        assert_eq!((&of_link.forward, &of_link.r#return), (forward, back));
        assert!(!of_link.is_empty());
    }
    assert!(LinkChange::of(Directions::Both, &nothing).is_empty());
}

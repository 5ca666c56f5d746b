//! Scenarios: read, checked, echoed, explained.

use bentpipe_link::Change;
use bentpipe_link::{Scenario, explain::Explanation};

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

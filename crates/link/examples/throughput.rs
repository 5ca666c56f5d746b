//! What one packet costs on a saturated link, in nanoseconds.
//!
//! `cargo run --release -p bentpipe-link --example throughput`
#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the model does not"
)]

use std::hint::black_box;
use std::time::Instant;

use bentpipe_link::{Direction, Packet, Scenario};
use bentpipe_units::Time;

/// A packet that costs nothing to move.
struct Probe;

impl Packet for Probe {
    fn ip_len(&self) -> usize {
        1500
    }
}

const PACKETS: u64 = 1_000_000;

fn nanos_per_packet(forward: &str) -> f64 {
    let text = format!(
        "name = \"bench\"\n[forward]\n{forward}\n[return]\nrate = \"1 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"9 packets\"\n"
    );
    let spec = Scenario::parse(&text).expect("a right scenario").forward;
    let mut link = Direction::new(&spec, 1);
    let begin = Instant::now();
    for number in 0..PACKETS {
        // 1 Gbit/s of 1500-byte packets.
        let now = Time::from_nanos(number * 12_000);
        let _ = black_box(link.handle_arrival(now, Probe));
        while link.poll_timeout().is_some_and(|at| at <= now) {
            black_box(link.poll_departure(now));
        }
    }
    begin.elapsed().as_nanos() as f64 / PACKETS as f64
}

fn main() {
    let plain = "delay = \"250 ms\"\nqueue = \"1 MB\"\n";
    for (name, forward) in [
        ("constant rate", format!("rate = \"1 Gbit/s\"\n{plain}")),
        (
            "1 % loss",
            format!("rate = \"1 Gbit/s\"\nloss = \"1 %\"\n{plain}"),
        ),
        ("half too much", format!("rate = \"667 Mbit/s\"\n{plain}")),
        (
            "CoDel",
            "rate = \"1 Gbit/s\"\ndelay = \"250 ms\"\nqueue.codel = { limit = \"1 MB\" }".into(),
        ),
        (
            "FQ-CoDel",
            "rate = \"1 Gbit/s\"\ndelay = \"250 ms\"\nqueue.fq-codel = {}".into(),
        ),
        (
            "rate trace",
            format!(
                "rate.trace = {{ points = [[\"0 s\", \"1 Gbit/s\"], [\"1 s\", \"900 Mbit/s\"], [\"2 s\", \"1 Gbit/s\"]], at_end = \"loop\" }}\n{plain}"
            ),
        ),
        (
            "cross traffic",
            format!("rate = \"1.1 Gbit/s\"\ncross = [{{ rate = \"100 Mbit/s\" }}]\n{plain}"),
        ),
        (
            "reconfiguration",
            format!(
                "rate = \"1 Gbit/s\"\nreconfigure = {{ step = \"8 ms\", gap = \"40 ms\" }}\n{plain}"
            ),
        ),
        (
            "DVB-S2",
            format!(
                "rate.dvb-s2 = {{ bandwidth = \"300 MHz\", roll_off = 0.2, modcod = 28 }}\n{plain}"
            ),
        ),
    ] {
        println!("{name:<18}{:>7.0} ns", nanos_per_packet(&forward));
    }
}

//! Claims of the capacity of a DVB-RCS2 return link: when it comes, and how much.

use bentpipe_units::{Span, Time};

use super::probe::{Probe, burst, drain, forward};
use super::{Claim, banded};
use bentpipe_link::Direction;

const WORST: &str = "OpenSAND: a request each 38 superframes of 26.5 ms, the round trip, and up to one superframe more";

pub(super) fn claims() -> Vec<Claim> {
    let (soonest, worst) = waits("rbdc = \"5120 kbit/s\"", "500 ms");
    let (_, leo) = waits("rbdc = \"5120 kbit/s\"", "32 ms");
    let (by_volume, worst_by_volume) = waits("vbdc = \"6875 B\"", "500 ms");
    vec![
        banded(
            "RBDC on GEO from idle: shortest wait for the first burst of 4,000",
            "the request leaves at once: the round trip and up to one superframe",
            (500.0, 526.5),
            soonest,
            (1, "ms"),
        ),
        banded(
            "RBDC on GEO from idle: longest wait for the first burst of 4,000",
            WORST,
            (1500.0, 1533.5),
            worst,
            (1, "ms"),
        ),
        banded(
            "RBDC on LEO (16 ms one way) from idle: longest wait for the first burst of 4,000",
            WORST,
            (1039.0, 1065.5),
            leo,
            (1, "ms"),
        ),
        banded(
            "VBDC on GEO from idle: shortest wait",
            "as RBDC",
            (500.0, 526.5),
            by_volume,
            (1, "ms"),
        ),
        banded(
            "VBDC on GEO from idle: longest wait",
            WORST,
            (1500.0, 1533.5),
            worst_by_volume,
            (1, "ms"),
        ),
        volume(),
        fair_share(),
    ]
}

/// A terminal of 14.8 Mbaud: 731 bursts of 223 bytes in each superframe.
fn terminal(classes: &str, grant_delay: &str, seed: u64) -> Direction<Probe> {
    let text = format!(
        "delay = \"0 ms\"\nqueue = \"100000 packets\"\nrate.dvb-rcs2 = {{ bandwidth = \"19.98 MHz\", roll_off = 0.35, waveform = 12, cra = \"0 bit/s\", grant_delay = \"{grant_delay}\", {classes} }}"
    );
    Direction::new(&forward(&text), seed)
}

/// The shortest and the longest time that a small packet waits for the first burst
/// that was asked for, ms.
fn waits(class: &str, grant_delay: &str) -> (f64, f64) {
    let waits = (0..4000).map(|seed| {
        let mut link = terminal(class, grant_delay, seed);
        let _ = link.handle_arrival(Time::ZERO, Probe::new(60));
        drain(&mut link, Time::ZERO + Span::from_millis(60_000))
            .first()
            .map_or(f64::NAN, |(at, _)| at.as_nanos() as f64 / 1e6)
    });
    waits.fold((f64::INFINITY, 0.0), |(least, most), wait| {
        (wait.min(least), wait.max(most))
    })
}

/// What one request for volume brings.
fn volume() -> Claim {
    let mut link = terminal("vbdc = \"6875 B\"", "500 ms", 1);
    burst(&mut link, 100, 220);
    // The second request leaves a second after the first, and so comes its grant.
    let out = drain(&mut link, Time::ZERO + Span::from_millis(60_000));
    let first = out.first().map_or(Time::ZERO, |(at, _)| *at);
    let at_once = out
        .iter()
        .take_while(|(at, _)| at.since(first) < Span::from_millis(500))
        .count();
    banded(
        "VBDC of 6875 bytes: packets of 220 bytes and 3 of RLE that one grant carries",
        "arithmetic: 31 bursts of 223 bytes, rounded up",
        (31.0, 31.0),
        at_once as f64,
        (0, "packets"),
    )
}

/// What is left of 731 bursts when all ask for more.
fn fair_share() -> Claim {
    let class = "rbdc = \"10 Mbit/s\", others = [{ rate = \"60 Mbit/s\" }]";
    let mut link = terminal(class, "500 ms", 1);
    burst(&mut link, 90_000, 220);
    let out = drain(&mut link, Time::ZERO + Span::from_millis(20_000));
    let late = out
        .iter()
        .filter(|(at, _)| *at >= Time::ZERO + Span::from_millis(5_000))
        .count();
    let superframes = 15_000.0 / 26.5;
    banded(
        "RBDC of 149 bursts beside others' 892 on a carrier of 731: bursts in each superframe, on average",
        "OpenSAND: shares in proportion, parts carried on: 149 x 731 / 1041 = 104.63",
        (104.5, 104.8),
        late as f64 / superframes,
        (2, "bursts"),
    )
}

//! Claims that hold of any link.

use bentpipe_units::{Span, Time};

use super::probe::{Probe, burst, drain, forward};
use super::{Claim, banded};
use bentpipe_link::{Cause, Direction};

pub(super) fn claims() -> Vec<Claim> {
    vec![
        conservation(),
        delay(),
        rate(),
        loss(),
        bounded(),
        gilbert_elliott(),
    ]
}

/// A link with every impairment at once, watched after each of 20,000 packets.
fn conservation() -> Claim {
    let spec = forward(
        "rate = \"12 Mbit/s\"\ndelay = \"20 ms\"\nqueue.codel = { limit = \"60 kB\" }\nloss.gilbert-elliott = { to_bad = \"1 %\", to_good = \"20 %\" }\nduplicate = \"1 %\"\ncorrupt = \"1 %\"\nreorder = { chance = \"1 %\", by = \"3 ms\" }\noutages = [{ from = \"2 s\", for = \"500 ms\", every = \"4 s\" }]\ncross = [{ rate = \"4 Mbit/s\" }]",
    );
    let mut link = Direction::new(&spec, 1);
    let mut wrong = 0u32;
    for number in 0..20_000u64 {
        let now = Time::from_nanos(number * 900_000);
        let _ = drain(&mut link, now);
        let _ = link.handle_arrival(now, Probe::new(1500));
        let counters = link.counters();
        let out = counters.delivered + counters.dropped.total() + link.held();
        wrong += u32::from(counters.entered + counters.duplicated != out);
    }
    Claim {
        claim: "Packets in and copies = packets out + dropped + held, after each of 20,000 packets",
        source: "conservation",
        theirs: "0 violations".into(),
        ours: format!("{wrong} violations"),
        holds: wrong == 0,
    }
}

fn delay() -> Claim {
    let mut link = Direction::new(
        &forward("rate = \"20 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"25 packets\""),
        1,
    );
    burst(&mut link, 1, 1500);
    let out = drain(&mut link, Time::from_nanos(u64::MAX));
    let ms = out[0].0.as_nanos() as f64 / 1e6;
    banded(
        "A packet of 1500 bytes alone on 20 Mbit/s and 250 ms arrives after 0.6 + 250 ms",
        "arithmetic",
        (250.6, 250.6),
        ms,
        (6, "ms"),
    )
}

fn rate() -> Claim {
    let mut link = Direction::new(
        &forward("rate = \"7 Mbit/s\"\ndelay = \"0 ms\"\nqueue = \"1 GB\""),
        1,
    );
    let count = 50_000;
    burst(&mut link, count, 1499);
    let out = drain(&mut link, Time::from_nanos(u64::MAX));
    let bits = f64::from(count) * 1499.0 * 8.0;
    let last = out
        .last()
        .map_or(f64::NAN, |(at, _)| at.as_nanos() as f64 / 1e9);
    let parts_per_billion = ((bits / last / 7e6 - 1.0) * 1e9).abs();
    banded(
        "A saturated link of 7 Mbit/s keeps its rate over 85 s; deviation",
        "arithmetic; parts of a nanosecond are carried on",
        (0.0, 1.0),
        parts_per_billion,
        (3, "parts per 10^9"),
    )
}

fn lost_of(count: u32, loss: &str) -> f64 {
    let mut link = Direction::new(
        &forward(&format!(
            "rate = \"1 Gbit/s\"\ndelay = \"0 ms\"\nqueue = \"1 GB\"\n{loss}"
        )),
        7,
    );
    burst(&mut link, count, 100);
    let _ = drain(&mut link, Time::ZERO + Span::from_millis(10_000_000));
    link.counters().dropped.of(Cause::Loss) as f64
}

fn loss() -> Claim {
    // 99 % binomial interval of 200,000 draws at 1 %: 2000 +- 2.576 * 44.5.
    banded(
        "1 % independent loss of 200,000 packets",
        "99 % binomial interval",
        (1885.0, 2115.0),
        lost_of(200_000, "loss = \"1 %\""),
        (0, "packets"),
    )
}

fn bounded() -> Claim {
    // Each run of losses ends with a packet that is spared; the runs are
    // 0.3 + 0.09 + 0.027 = 0.417 long on average, so 0.417 / 1.417 = 29.428 % is lost.
    // Renewal: the variance of 300,000 packets' losses is 89.9 % of the binomial one.
    let share = lost_of(
        300_000,
        "loss.bounded = { chance = \"30 %\", max_burst = 3 }",
    ) / 3e3;
    banded(
        "Loss of 30 %, at most 3 in a row: share lost of 300,000",
        "arithmetic: (p + p^2 + p^3) / (1 + p + p^2 + p^3) = 29.428 %; 99 % interval",
        (29.428 - 0.203, 29.428 + 0.203),
        share,
        (3, "%"),
    )
}

fn gilbert_elliott() -> Claim {
    // Stationary: p / (p + r) bad, all lost there: 0.5 / 20.5 = 2.439 %. The state's
    // memory widens the interval by sqrt((2 - p - r) / (p + r)) = 2.95: +- 0.117 %.
    let share = lost_of(
        1_000_000,
        "loss.gilbert-elliott = { to_bad = \"0.5 %\", to_good = \"20 %\" }",
    ) / 1e4;
    banded(
        "Gilbert-Elliott, 0.5 % into and 20 % out of the bad state: share lost",
        "Gilbert 1960: p / (p + r) = 2.439 %; 99 % interval with the chain's memory",
        (2.439 - 0.117, 2.439 + 0.117),
        share,
        (3, "%"),
    )
}

//! Claims of what OpenSAND was seen to do, in the configuration of Kosek et al. 2022.

use bentpipe_units::{Span, Time};

use super::probe::{Probe, burst, drain};
use super::{Claim, Presets, banded};
use bentpipe_link::dvb;
use bentpipe_link::spec::RateSpec;
use bentpipe_link::{Direction, Scenario};

const PLATEAU: &str = "Kosek et al. 2022, goodput_1s_bins.csv, read as kbit/s or Kibit/s";
const CONNECT: &str = "Kosek et al. 2022, web_performance.csv: median of TCP connect";

pub(super) fn claims(presets: &Presets) -> Vec<Claim> {
    let (geo, leo) = (&presets.kosek_geo, &presets.kosek_leo);
    let (geo_connect, leo_connect) = (
        Distribution::of(connects(geo)),
        Distribution::of(connects(leo)),
    );
    let framing = Distribution::of(connects(geo).into_iter().map(|ms| ms - 580.0).collect());
    let small = Distribution::of(up(geo, 60));
    let initial = Distribution::of(up(geo, 1308));
    vec![
        banded(
            "Kosek GEO: TCP goodput, packets of 1500 bytes with 1448 of payload",
            PLATEAU,
            (18.02, 18.50),
            goodput(geo, 1500, 1448),
            (3, "Mbit/s"),
        ),
        banded(
            "Kosek LEO: TCP goodput",
            PLATEAU,
            (18.02, 18.50),
            goodput(leo, 1500, 1448),
            (3, "Mbit/s"),
        ),
        banded(
            "Kosek GEO: QUIC goodput, packets of 1308 bytes with 1255 of stream data",
            PLATEAU,
            (17.88, 18.33),
            goodput(geo, 1308, 1255),
            (3, "Mbit/s"),
        ),
        banded(
            "Kosek GEO: TCP connect, median",
            CONNECT,
            (602.0, 622.0),
            geo_connect.median,
            (1, "ms"),
        ),
        banded(
            "Kosek LEO: TCP connect, median",
            CONNECT,
            (130.0, 150.0),
            leo_connect.median,
            (1, "ms"),
        ),
        banded(
            "Framing delay of a handshake: connect less propagation, mean",
            "Kosek et al. 2022: 28 to 34 ms in both orbits; sum of even polls: 30.2 ms",
            (28.0, 34.0),
            framing.mean,
            (1, "ms"),
        ),
        banded(
            "Framing delay of a handshake, standard deviation",
            "sum of even polls: 9.2 ms",
            (8.2, 10.2),
            framing.deviation,
            (1, "ms"),
        ),
        banded(
            "A QUIC Initial of 1308 bytes over a CRA of 100 kbit/s takes longer than a SYN by",
            "Kosek et al. 2022: two superframes more, 53 ms",
            (51.0, 55.0),
            initial.median - small.median,
            (1, "ms"),
        ),
        return_capacity(geo),
    ]
}

/// Saturated with packets of `len` bytes for 20 s: payload per second, Mbit/s.
fn goodput(scenario: &Scenario, len: u16, payload: u32) -> f64 {
    let mut spec = scenario.forward.clone();
    spec.queue = bentpipe_link::spec::QueueLimit::Packets(u32::MAX).into();
    let mut link = Direction::new(&spec, 1);
    burst(&mut link, 45_000, len);
    let out = drain(&mut link, Time::from_nanos(20_000_000_000));
    // From the first arrival on, as a goodput's plateau is.
    let seconds = 20.0
        - out
            .first()
            .map_or(0.0, |(at, _)| at.as_nanos() as f64 / 1e9);
    out.len() as f64 * f64::from(payload) * 8.0 / seconds / 1e6
}

/// A moment within the first seconds for trial `seed`, evenly spread.
fn start(seed: u64) -> Time {
    Time::from_nanos(seed * 7_654_321 % 1_000_000_000)
}

const TRIALS: u64 = 2000;

fn one(link: &mut Direction<Probe>, at: Time, len: u16) -> Time {
    let _ = link.handle_arrival(at, Probe::new(len));
    drain(link, at + Span::from_millis(60_000))
        .first()
        .map_or(Time::ZERO, |(at, _)| *at)
}

/// From SYN to SYN-ACK at the terminal, ms: over the return link, the ground
/// there and back, and the forward link.
fn connects(scenario: &Scenario) -> Vec<f64> {
    (0..TRIALS)
        .map(|seed| {
            let mut up = Direction::new(&scenario.r#return, seed);
            let mut down = Direction::new(&scenario.forward, seed + TRIALS);
            let arrived = one(&mut up, start(seed), 60) + scenario.ground_rtt();
            let back = one(&mut down, arrived, 60);
            back.since(start(seed)).as_nanos() as f64 / 1e6
        })
        .collect()
}

/// A packet's time over the return link that was idle, ms.
fn up(scenario: &Scenario, len: u16) -> Vec<f64> {
    (0..TRIALS)
        .map(|seed| {
            let mut link = Direction::new(&scenario.r#return, seed);
            one(&mut link, start(seed), len)
                .since(start(seed))
                .as_nanos() as f64
                / 1e6
        })
        .collect()
}

/// What RBDC gives at most, counted in whole bursts.
fn return_capacity(scenario: &Scenario) -> Claim {
    let bursts = match &scenario.r#return.rate {
        RateSpec::DvbRcs2(spec) => dvb::bursts_for(spec.rbdc, spec, 223),
        _ => 0,
    };
    banded(
        "RBDC of 5120 kbit/s, rounded up to whole bursts of 223 bytes in 26.5 ms",
        "OpenSAND: 77 bursts, 5.18 Mbit/s",
        (5.18, 5.19),
        bursts as f64 * 223.0 * 8.0 / 26.5 / 1e3,
        (3, "Mbit/s"),
    )
}

struct Distribution {
    mean: f64,
    median: f64,
    deviation: f64,
}

impl Distribution {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / count;
        Self {
            mean,
            median: values[values.len() / 2],
            deviation: variance.sqrt(),
        }
    }
}

//! Claims of geometry.

use bentpipe_units::Span;

use super::{Claim, banded};
use bentpipe_link::geometry;
use bentpipe_link::spec::{AtEnd, Constellation, GroundPoint, OrbitSpec, Walker};

const SOURCE: &str = "arithmetic: 42,164 km from the Earth's centre, WGS 84, speed of light";

pub(super) fn claims() -> Vec<Claim> {
    let longitude = below();
    let (equator, drift) = way(0.0, longitude);
    let (north, _) = way(50.0, longitude);
    vec![
        banded(
            "Geostationary orbit, both ends below the satellite: one way",
            SOURCE,
            (238.7, 238.8),
            equator,
            (2, "ms"),
        ),
        banded(
            "Geostationary orbit, both ends at 50 degrees north: one way",
            SOURCE,
            (255.8, 256.1),
            north,
            (2, "ms"),
        ),
        banded(
            "Geostationary orbit: change of the delay within a day",
            "the satellite stands still over the turning Earth",
            (0.0, 0.1),
            drift,
            (3, "ms"),
        ),
    ]
}

fn spec(latitude: f64, longitude: f64, duration: Span) -> OrbitSpec {
    let place = GroundPoint {
        latitude,
        longitude,
        altitude: 0.0,
    };
    OrbitSpec {
        terminal: place,
        gateway: place,
        minimum_elevation: 10.0,
        duration,
        step: Span::from_millis(600_000),
        at_end: AtEnd::Hold,
        satellites: Constellation::Walker(Walker {
            altitude: 42_164.0 - 6_378.137,
            inclination: 0.0,
            satellites: 1,
            planes: 1,
            phasing: 0,
        }),
    }
}

/// Shortest and change of the way over a day, ms.
fn way(latitude: f64, longitude: f64) -> (f64, f64) {
    let day = Span::from_millis(86_400_000);
    let Ok(path) = geometry::path(&spec(latitude, longitude, day)) else {
        return (f64::NAN, f64::NAN);
    };
    let ms = path
        .delays
        .iter()
        .map(|(_, delay)| delay.span().as_nanos() as f64 / 1e6);
    let (low, high) = ms.fold((f64::MAX, f64::MIN), |(low, high), ms| {
        (low.min(ms), high.max(ms))
    });
    (low, high - low)
}

/// The longitude that the satellite stands over.
fn below() -> f64 {
    let distance = |longitude: f64| {
        geometry::path(&spec(0.0, longitude, Span::from_millis(1_200_000)))
            .map_or(u64::MAX, |path| path.delays[0].1.span().as_nanos())
    };
    (0..720)
        .map(|half| f64::from(half) / 2.0)
        .min_by_key(|longitude| distance(*longitude))
        .unwrap_or(0.0)
}

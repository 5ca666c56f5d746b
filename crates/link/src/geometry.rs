//! The length of the way over satellites: terminal, satellite, gateway.
//!
//! Satellites move by SGP4. Both ends use the satellite that makes the way
//! shortest among those that both see; a transparent satellite needs both.

use std::f64::consts::TAU;

use bentpipe_units::{OneWayDelay, Span, rounded};

use crate::spec::{Constellation, GroundPoint, OrbitSpec, Walker};

/// Speed of light, km/s (exact).
const LIGHT: f64 = 299_792.458;
/// WGS 84: equatorial radius in km, flattening.
const EARTH_RADIUS: f64 = 6378.137;
const FLATTENING: f64 = 1.0 / 298.257_223_563;
/// WGS 84: gravitational parameter, km^3/s^2.
const GRAVITY: f64 = 398_600.441_8;
/// Rotation of the Earth against the stars, radians per second.
const ROTATION: f64 = 7.292_115_146_7e-5;
/// Refraction and rounding: a delay computed for a moment is good to this.
const NANOSECOND: f64 = 1e9;

/// The way over time.
#[derive(Debug)]
pub struct Path {
    /// One-way delay from each moment on.
    pub delays: Vec<(Span, OneWayDelay)>,
    /// Times in which no satellite is seen by both: beginning and length.
    pub gaps: Vec<(Span, Span)>,
}

/// What is wrong: field, value, why.
type Wrong = (String, String, String);

type Vector = [f64; 3];

/// A place on the turning Earth, with its vertical.
struct Site {
    position: Vector,
    up: Vector,
}

impl Site {
    fn new(point: GroundPoint) -> Self {
        let (sin_lat, cos_lat) = point.latitude.to_radians().sin_cos();
        let (sin_lon, cos_lon) = point.longitude.to_radians().sin_cos();
        let squared = FLATTENING * (2.0 - FLATTENING);
        let normal = EARTH_RADIUS / (1.0 - squared * sin_lat * sin_lat).sqrt();
        let altitude = point.altitude / 1000.0;
        Self {
            position: [
                (normal + altitude) * cos_lat * cos_lon,
                (normal + altitude) * cos_lat * sin_lon,
                (normal * (1.0 - squared) + altitude) * sin_lat,
            ],
            up: [cos_lat * cos_lon, cos_lat * sin_lon, sin_lat],
        }
    }

    /// Distance in km, if the satellite stands high enough.
    fn sees(&self, satellite: Vector, sine_of_elevation: f64) -> Option<f64> {
        let to: Vector = std::array::from_fn(|axis| satellite[axis] - self.position[axis]);
        let dot = |a: Vector, b: Vector| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let distance = dot(to, to).sqrt();
        (dot(to, self.up) >= sine_of_elevation * distance).then_some(distance)
    }
}

/// One satellite, and how far the run's start lies after its elements' epoch.
struct Satellite {
    motion: sgp4::Constants,
    minutes: f64,
}

/// Satellites with the Earth's rotation angle at the start, radians.
struct Sky {
    satellites: Vec<Satellite>,
    angle: f64,
}

/// Works out the way from the start to the end of the run.
pub fn path(spec: &OrbitSpec) -> Result<Path, Wrong> {
    let sky = match &spec.satellites {
        Constellation::Tle(text) => two_line(text)?,
        Constellation::TleFile(name) => {
            return Err((
                "satellites.tle-file".into(),
                name.clone(),
                "it has not been read".into(),
            ));
        }
        Constellation::Walker(shell) => walker(*shell)?,
    };
    let (terminal, gateway) = (Site::new(spec.terminal), Site::new(spec.gateway));
    let sine = spec.minimum_elevation.to_radians().sin();
    let steps = spec.duration.as_nanos().div_ceil(spec.step.as_nanos());
    let mut delays: Vec<(Span, OneWayDelay)> = Vec::new();
    let mut gaps: Vec<(Span, Span)> = Vec::new();
    let mut blind: Option<Span> = None;
    for step in 0..steps {
        let at = Span::from_nanos(step * spec.step.as_nanos());
        let shortest = sky
            .positions(at.as_secs_f64())
            .filter_map(|satellite| {
                Some(terminal.sees(satellite, sine)? + gateway.sees(satellite, sine)?)
            })
            .min_by(f64::total_cmp);
        match shortest {
            Some(distance) => {
                if let Some(from) = blind.take() {
                    gaps.push((from, Span::from_nanos(at.as_nanos() - from.as_nanos())));
                }
                let nanos = rounded(distance / LIGHT * NANOSECOND);
                delays.push((at, OneWayDelay::new(Span::from_nanos(nanos))));
            }
            None => {
                blind.get_or_insert(at);
            }
        }
    }
    let Some(last) = delays.last().copied() else {
        return Err((
            "minimum_elevation".into(),
            spec.minimum_elevation.to_string(),
            format!(
                "no satellite is seen by terminal and gateway at once in {}: lower it, bring the two closer, or take other satellites",
                spec.duration
            ),
        ));
    };
    if let Some(from) = blind {
        gaps.push((
            from,
            Span::from_nanos(spec.duration.as_nanos() - from.as_nanos()),
        ));
    }
    // The last point says how long the run is.
    delays.push((spec.duration, last.1));
    Ok(Path { delays, gaps })
}

impl Sky {
    /// Where the satellites stand over the turning Earth, km.
    fn positions(&self, seconds: f64) -> impl Iterator<Item = Vector> + '_ {
        let (sin, cos) = (self.angle + ROTATION * seconds).sin_cos();
        self.satellites.iter().filter_map(move |satellite| {
            let minutes = sgp4::MinutesSinceEpoch(satellite.minutes + seconds / 60.0);
            // A satellite that has decayed is not there.
            let [x, y, z] = satellite.motion.propagate(minutes).ok()?.position;
            Some([cos * x + sin * y, cos * y - sin * x, z])
        })
    }
}

/// Reads two-line elements with or without name lines.
fn two_line(text: &str) -> Result<Sky, Wrong> {
    let wrong = |value: &str, why: String| ("satellites.tle".to_owned(), value.to_owned(), why);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.trim().is_empty())
        .collect();
    let mut satellites = Vec::new();
    let mut start = None;
    let mut number = 0;
    while number < lines.len() {
        if !lines[number].starts_with("1 ") {
            // A name line.
            number += 1;
            continue;
        }
        let first = lines[number];
        let Some(second) = lines.get(number + 1) else {
            return Err(wrong(first, "its second line is missing".into()));
        };
        let elements = sgp4::Elements::from_tle(None, first.as_bytes(), second.as_bytes())
            .map_err(|error| wrong(first, format!("not a two-line element set: {error}")))?;
        let motion = sgp4::Constants::from_elements(&elements)
            .map_err(|error| wrong(first, format!("not an orbit: {error}")))?;
        let begin = *start.get_or_insert(elements.datetime);
        let offset = begin - elements.datetime;
        satellites.push(Satellite {
            motion,
            #[expect(
                clippy::cast_precision_loss,
                reason = "milliseconds between two epochs"
            )]
            minutes: offset.num_milliseconds() as f64 / 60_000.0,
        });
        number += 2;
    }
    let Some(start) = start else {
        return Err(wrong(
            "",
            "there are no two-line elements in it; each satellite has a line that begins with \"1 \" and one with \"2 \"".into(),
        ));
    };
    Ok(Sky {
        satellites,
        angle: sgp4::iau_epoch_to_sidereal_time(sgp4::julian_years_since_j2000(&start)),
    })
}

/// Satellites of a Walker delta shell (Walker 1984): planes evenly around the
/// equator, satellites evenly in each, shifted by `phasing` from plane to plane.
fn walker(shell: Walker) -> Result<Sky, Wrong> {
    let axis = EARTH_RADIUS + shell.altitude;
    let motion = (GRAVITY / axis.powi(3)).sqrt() * 60.0;
    let in_plane = shell.satellites / shell.planes;
    let mut satellites = Vec::new();
    for plane in 0..shell.planes {
        for place in 0..in_plane {
            let node = TAU * f64::from(plane) / f64::from(shell.planes);
            let anomaly = TAU * f64::from(place) / f64::from(in_plane)
                + TAU * f64::from(shell.phasing) * f64::from(plane) / f64::from(shell.satellites);
            let wrong = |why: String| {
                (
                    "satellites.walker.altitude".to_owned(),
                    shell.altitude.to_string(),
                    format!("not an orbit: {why}"),
                )
            };
            let orbit = sgp4::Orbit::from_kozai_elements(
                &sgp4::WGS84,
                shell.inclination.to_radians(),
                node,
                0.000_1,
                0.0,
                anomaly.rem_euclid(TAU),
                motion,
            )
            .map_err(|error| wrong(error.to_string()))?;
            let motion = sgp4::Constants::new(
                sgp4::WGS84,
                sgp4::iau_epoch_to_sidereal_time,
                0.0,
                0.0,
                orbit,
            )
            .map_err(|error| wrong(error.to_string()))?;
            satellites.push(Satellite {
                motion,
                minutes: 0.0,
            });
        }
    }
    Ok(Sky {
        satellites,
        angle: sgp4::iau_epoch_to_sidereal_time(0.0),
    })
}

//! Orbits: worked out to traces of the delay and outages.

use std::sync::Arc;

use bentpipe_units::{OneWayDelay, Span};

use super::files::Files;
use super::problem::Problem;
use crate::geometry;
use crate::spec::{
    AtEnd, Between, Constellation, DelaySpec, OrbitSpec, Outage, OutagePackets, Scenario, Trace,
};

/// Longest run that is worked out, in steps: a day of seconds.
const MOST_STEPS: u64 = 86_400;

/// Most positions that are worked out: some seconds of computing.
const MOST_POSITIONS: u64 = 10_000_000;

/// Puts traces in the place of `delay.orbit`, and outages where no satellite is seen.
pub(super) fn resolve(scenario: &mut Scenario, files: &mut Files<'_>) -> Result<(), Problem> {
    let uses = |delay: &DelaySpec| matches!(delay, DelaySpec::Orbit(_));
    let used = uses(&scenario.forward.delay) || uses(&scenario.r#return.delay);
    for (number, switch) in scenario.switch.iter().enumerate() {
        if uses(&switch.forward.delay) || uses(&switch.r#return.delay) {
            return Err(Problem::new(
                format!("switch.{number}"),
                "orbit",
                "only the first link can follow an orbit; give this one a trace",
            ));
        }
    }
    let Some(mut spec) = scenario.orbit.take() else {
        return if used {
            Err(Problem::new(
                "forward.delay",
                "orbit",
                "there is no [orbit] to follow; add one, or give the delay",
            ))
        } else {
            Ok(())
        };
    };
    if !used {
        return Err(Problem::new(
            "orbit",
            "",
            "no direction follows it; write delay.orbit = {} in [forward] and [return]",
        ));
    }
    if let Constellation::TleFile(name) = &spec.satellites {
        spec.satellites = Constellation::Tle(files.read("orbit.satellites.tle-file", name)?);
    }
    spec.check()?;
    let path = geometry::path(&spec)
        .map_err(|(field, value, why)| Problem::new(format!("orbit.{field}"), value, why))?;
    for direction in [&mut scenario.forward, &mut scenario.r#return] {
        let DelaySpec::Orbit(orbit) = direction.delay else {
            continue;
        };
        let points = path
            .delays
            .iter()
            .map(|(at, delay)| (*at, OneWayDelay::new(delay.span() + orbit.extra)))
            .collect();
        direction.delay = DelaySpec::Trace(Arc::new(Trace::of(points, Between::Step, spec.at_end)));
        direction
            .outages
            .extend(path.gaps.iter().map(|(from, length)| Outage {
                from: *from,
                r#for: *length,
                every: (spec.at_end == AtEnd::Loop).then_some(spec.duration),
                packets: OutagePackets::Lost,
            }));
    }
    Ok(())
}

impl OrbitSpec {
    fn check(&self) -> Result<(), Problem> {
        let wrong = |name: &str, value: String, why: &str| {
            Err(Problem::new(format!("orbit.{name}"), value, why))
        };
        for (name, point) in [("terminal", self.terminal), ("gateway", self.gateway)] {
            if !(-90.0..=90.0).contains(&point.latitude) {
                return wrong(
                    &format!("{name}.latitude"),
                    point.latitude.to_string(),
                    "not between -90 and 90 degrees",
                );
            }
            if !(-180.0..=360.0).contains(&point.longitude) {
                return wrong(
                    &format!("{name}.longitude"),
                    point.longitude.to_string(),
                    "not between -180 and 360 degrees",
                );
            }
            if !(-1000.0..=20_000.0).contains(&point.altitude) {
                return wrong(
                    &format!("{name}.altitude"),
                    point.altitude.to_string(),
                    "not between -1000 and 20000 metres",
                );
            }
        }
        if !(0.0..90.0).contains(&self.minimum_elevation) {
            return wrong(
                "minimum_elevation",
                self.minimum_elevation.to_string(),
                "not between 0 and 90 degrees",
            );
        }
        if self.step < Span::from_millis(10) {
            return wrong("step", self.step.to_string(), "shorter than 10 ms");
        }
        if self.duration <= self.step
            || self.duration.as_nanos() / self.step.as_nanos() > MOST_STEPS
        {
            return wrong(
                "duration",
                self.duration.to_string(),
                "not between one step and 86400 steps; make the step longer for a longer run",
            );
        }
        let satellites = match &self.satellites {
            Constellation::Walker(shell) => shell.satellites.into(),
            Constellation::Tle(text) => text.lines().count() as u64 / 2,
            Constellation::TleFile(_) => 0,
        };
        let positions = self.duration.as_nanos() / self.step.as_nanos() * satellites;
        if positions > MOST_POSITIONS {
            return wrong(
                "step",
                self.step.to_string(),
                "with so many satellites more than ten million positions; make the step longer or the run shorter",
            );
        }
        if let Constellation::Walker(shell) = self.satellites {
            if !(160.0..=50_000.0).contains(&shell.altitude) {
                return wrong(
                    "satellites.walker.altitude",
                    shell.altitude.to_string(),
                    "not between 160 and 50000 km",
                );
            }
            if !(0.0..=180.0).contains(&shell.inclination) {
                return wrong(
                    "satellites.walker.inclination",
                    shell.inclination.to_string(),
                    "not between 0 and 180 degrees",
                );
            }
            if shell.planes == 0
                || !(1..=20_000).contains(&shell.satellites)
                || shell.satellites % shell.planes != 0
            {
                return wrong(
                    "satellites.walker.satellites",
                    shell.satellites.to_string(),
                    "not the same number, at least one, on each plane",
                );
            }
        }
        Ok(())
    }
}

//! The one-way delay at a given moment.

use std::sync::Arc;

use bentpipe_units::{OneWayDelay, Span, Time};
use rand::Rng;

use super::jitter::Jitter;
use super::reconfiguration::ReconfigurationDelay;
use crate::random::{self, Seed, Stage};
use crate::spec::{self, DelaySpec, DirectionSpec, Relay, Trace};
use crate::ticks::Ticks;

/// What a packet needs from one antenna to the other.
#[derive(Debug)]
pub(crate) struct PathDelay {
    model: Model,
    reconfiguration: Option<ReconfigurationDelay>,
    jitter: Option<Jitter>,
}

#[derive(Debug)]
enum Model {
    Constant(OneWayDelay),
    Trace(Arc<Trace<OneWayDelay>>),
    Relay(Relayed),
}

/// Two legs and the clocks at which packets are handed on.
#[derive(Debug)]
struct Relayed {
    legs: Relay,
    up: Ticks,
    satellite: Ticks,
    down: Ticks,
}

impl PathDelay {
    pub fn new(spec: &DirectionSpec, seed: Seed) -> Self {
        Self {
            model: match &spec.delay {
                DelaySpec::Constant(delay) => Model::Constant(*delay),
                DelaySpec::Trace(trace) => Model::Trace(Arc::clone(trace)),
                DelaySpec::Relay(legs) => Model::Relay(Relayed::new(*legs, seed.own)),
                // A scenario's orbits are traces by now; this is what they add to.
                DelaySpec::Orbit(orbit) => Model::Constant(OneWayDelay::new(orbit.extra)),
            },
            reconfiguration: spec
                .reconfigure
                .and_then(|reconfigure| ReconfigurationDelay::new(reconfigure, seed.shared)),
            jitter: spec.jitter.map(|jitter| Jitter::new(jitter, seed.own)),
        }
    }

    /// A constant delay from now on.
    pub fn set(&mut self, delay: OneWayDelay) {
        self.model = Model::Constant(delay);
    }

    /// Another delay variation from now on.
    pub fn set_jitter(&mut self, spec: spec::Jitter, seed: u64) {
        self.jitter = Some(Jitter::new(spec, seed));
    }

    /// When something arrives that left at `left`.
    pub fn arrival(&mut self, left: Time) -> Time {
        let mut arrival = match &self.model {
            Model::Constant(delay) => left + delay.span(),
            Model::Trace(trace) => left + trace.at(left).span(),
            Model::Relay(relay) => relay.arrival(left),
        };
        if let Some(reconfiguration) = &mut self.reconfiguration {
            arrival = arrival + reconfiguration.extra_delay(left);
        }
        if let Some(jitter) = &mut self.jitter {
            arrival = arrival + jitter.extra_delay(left);
        }
        arrival
    }
}

impl Relayed {
    fn new(legs: Relay, seed: u64) -> Self {
        let mut random = random::stream(seed, Stage::Polls);
        let mut ticks = |period: Span| Ticks {
            period,
            phase: Span::from_nanos(random.random_range(0..period.as_nanos().max(1))),
        };
        Self {
            up: ticks(legs.poll),
            satellite: ticks(legs.satellite_poll),
            down: ticks(legs.poll),
            legs,
        }
    }

    fn arrival(&self, left: Time) -> Time {
        let up = self.up.at_or_after(left + self.legs.up.span());
        let satellite = self.satellite.at_or_after(up);
        self.down.at_or_after(satellite + self.legs.down.span())
    }
}

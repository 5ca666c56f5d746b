//! On the way: a constant one-way delay.

use std::collections::VecDeque;

use bentpipe_units::{OneWayDelay, Time};

/// The packets between the two antennas, in the order in which they arrive.
#[derive(Debug)]
pub struct Air<P> {
    delay: OneWayDelay,
    flying: VecDeque<(Time, P)>,
}

impl<P> Air<P> {
    /// Empty air.
    pub fn new(delay: OneWayDelay) -> Self {
        Self {
            delay,
            flying: VecDeque::new(),
        }
    }

    /// Sets off a packet whose last bit left at `left`. Moments must not decrease.
    pub fn launch(&mut self, left: Time, packet: P) {
        self.flying.push_back((left + self.delay.span(), packet));
    }

    /// When the next packet arrives.
    pub fn next_arrival(&self) -> Option<Time> {
        self.flying.front().map(|(at, _)| *at)
    }

    /// The next packet that has arrived by `now`, with its moment.
    pub fn land(&mut self, now: Time) -> Option<(Time, P)> {
        self.flying.pop_front_if(|(at, _)| *at <= now)
    }

    /// Packets on the way.
    pub fn len(&self) -> usize {
        self.flying.len()
    }

    /// Whether nothing is on the way.
    pub fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }
}

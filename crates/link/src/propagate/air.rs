//! The packets between the two antennas, in the order in which they arrive.

use std::collections::VecDeque;

use bentpipe_units::Time;

/// What is on the way.
#[derive(Debug)]
pub struct Air<P> {
    flying: VecDeque<(Time, P)>,
    /// The arrival of the last packet that keeps its place.
    last: Time,
}

impl<P> Air<P> {
    /// Empty air.
    pub fn new() -> Self {
        Self {
            flying: VecDeque::new(),
            last: Time::ZERO,
        }
    }

    /// Sets off a packet that arrives at `arrival`, or together with the one
    /// before it where that one arrives later.
    pub fn launch(&mut self, arrival: Time, packet: P) {
        self.last = self.last.max(arrival);
        self.insert(self.last, packet);
    }

    /// Sets off a packet that is not bound to its place.
    pub fn launch_astray(&mut self, arrival: Time, packet: P) {
        self.insert(arrival, packet);
    }

    /// The packets to come have another way: they may overtake those on the old one.
    pub fn change_way(&mut self) {
        self.last = Time::ZERO;
    }

    fn insert(&mut self, arrival: Time, packet: P) {
        // Nearly always at the end.
        let mut place = self.flying.len();
        while place > 0 && self.flying[place - 1].0 > arrival {
            place -= 1;
        }
        self.flying.insert(place, (arrival, packet));
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
}

//! The packets between the two antennas, in the order in which they arrive.

use std::collections::VecDeque;

use bentpipe_units::Time;

/// What has been sent and is to be delivered.
#[derive(Debug)]
pub struct PropagationDelay<P> {
    in_flight: VecDeque<(Time, P)>,
    /// The arrival of the last packet that keeps its place.
    last: Time,
}

impl<P> PropagationDelay<P> {
    /// Nothing on the way.
    pub fn new() -> Self {
        Self {
            in_flight: VecDeque::new(),
            last: Time::ZERO,
        }
    }

    /// Sends a packet that arrives at `arrival`, or together with the one
    /// before it where that one arrives later.
    pub fn send(&mut self, arrival: Time, packet: P) {
        self.last = self.last.max(arrival);
        self.insert(self.last, packet);
    }

    /// Sends a packet that is not bound to its place.
    pub fn send_out_of_order(&mut self, arrival: Time, packet: P) {
        self.insert(arrival, packet);
    }

    /// The packets to come take another path: they may overtake those on the old one.
    pub fn change_path(&mut self) {
        self.last = Time::ZERO;
    }

    fn insert(&mut self, arrival: Time, packet: P) {
        // Nearly always at the end.
        let mut place = self.in_flight.len();
        while place > 0 && self.in_flight[place - 1].0 > arrival {
            place -= 1;
        }
        self.in_flight.insert(place, (arrival, packet));
    }

    /// When the next packet arrives.
    pub fn next_arrival(&self) -> Option<Time> {
        self.in_flight.front().map(|(at, _)| *at)
    }

    /// The next packet that has arrived by `now`, with its moment.
    pub fn deliver(&mut self, now: Time) -> Option<(Time, P)> {
        self.in_flight.pop_front_if(|(at, _)| *at <= now)
    }

    /// Packets on the way.
    pub fn len(&self) -> usize {
        self.in_flight.len()
    }
}

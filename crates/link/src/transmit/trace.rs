//! A rate that goes in steps.

use std::sync::Arc;

use bentpipe_units::{Rate, Time};

use crate::spec::Trace;

/// Says when the last bit has left, across the steps of a trace.
#[derive(Debug)]
pub struct Clock {
    trace: Arc<Trace<Rate>>,
    free_at: Time,
    /// As in the constant clock, in units of 1/`rate` nanoseconds.
    remainder: u64,
    rate: u64,
}

impl Clock {
    /// An idle transmitter.
    pub fn new(trace: Arc<Trace<Rate>>) -> Self {
        Self {
            trace,
            free_at: Time::ZERO,
            remainder: 0,
            rate: 0,
        }
    }

    /// Starts to send `bytes` at `start`, or as soon as the previous packet is
    /// through; returns when the last bit has left.
    pub fn send(&mut self, start: Time, bytes: u32) -> Time {
        if start > self.free_at {
            self.free_at = start;
            self.remainder = 0;
        }
        // What is to be sent, in bits times 10^9: rate times nanoseconds.
        let mut to_send = u128::from(bytes) * 8 * 1_000_000_000;
        loop {
            let rate = self.trace.at(self.free_at).bits_per_second();
            if rate != self.rate {
                self.rate = rate;
                self.remainder = 0;
            }
            let step = self.trace.next_step(self.free_at);
            let room = step.map_or(u128::MAX, |step| {
                u128::from(rate) * u128::from(step.since(self.free_at).as_nanos())
            });
            let wanted = to_send + u128::from(self.remainder);
            if let Some(step) = step.filter(|_| wanted > room) {
                to_send = wanted - room;
                self.remainder = 0;
                self.free_at = step;
                continue;
            }
            let divisor = u128::from(rate).max(1);
            self.remainder =
                u64::try_from(wanted % divisor).expect("a remainder is less than its divisor");
            let nanos = u64::try_from(wanted / divisor).unwrap_or(u64::MAX);
            self.free_at = Time::from_nanos(self.free_at.as_nanos().saturating_add(nanos));
            return self.free_at;
        }
    }
}

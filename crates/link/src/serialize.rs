//! The transmitter: one packet at a time, at the link's rate.

use bentpipe_units::{Rate, Time};

/// A transmitter of constant rate.
///
/// A packet's last bit leaves between two nanoseconds as a rule. The part of a
/// nanosecond is carried to the next packet, so that the long-term rate is exact.
#[derive(Debug)]
pub struct Transmitter {
    rate: u64,
    free_at: Time,
    /// How far past `free_at` the transmitter is really free, in units of
    /// 1/rate nanoseconds; always less than `rate`.
    remainder: u64,
}

impl Transmitter {
    /// An idle transmitter. `rate` must not be zero (a scenario never has that).
    pub fn new(rate: Rate) -> Self {
        Self {
            rate: rate.bits_per_second().max(1),
            free_at: Time::ZERO,
            remainder: 0,
        }
    }

    /// Sends what comes next at `rate`; the packet on the transmitter keeps its own.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate.bits_per_second().max(1);
        self.remainder = 0;
    }

    /// When the next packet may start.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Starts to send `ip_len` bytes at `start`, or as soon as the previous packet
    /// is through; returns when the last bit has left, rounded down to a nanosecond.
    pub fn send(&mut self, start: Time, ip_len: usize) -> Time {
        if start > self.free_at {
            self.free_at = start;
            self.remainder = 0;
        }
        let bits = ip_len as u128 * 8 * 1_000_000_000 + u128::from(self.remainder);
        let rate = u128::from(self.rate);
        let nanos = u64::try_from(bits / rate).unwrap_or(u64::MAX);
        self.remainder = u64::try_from(bits % rate).expect("a remainder is less than its divisor");
        self.free_at = Time::from_nanos(self.free_at.as_nanos().saturating_add(nanos));
        self.free_at
    }
}

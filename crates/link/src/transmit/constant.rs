//! A constant rate.

use bentpipe_units::{Rate, Time};

/// Says when the last bit has left.
///
/// A packet's last bit leaves between two nanoseconds as a rule. The part of a
/// nanosecond is carried to the next packet, so that the long-term rate is exact.
#[derive(Debug)]
pub struct Clock {
    rate: u64,
    free_at: Time,
    /// How far past `free_at` the transmitter is really free, in units of
    /// 1/rate nanoseconds; always less than `rate`.
    remainder: u64,
}

impl Clock {
    /// An idle transmitter. `rate` must not be zero (a scenario never has that).
    pub fn new(rate: Rate) -> Self {
        Self {
            rate: rate.bits_per_second().max(1),
            free_at: Time::ZERO,
            remainder: 0,
        }
    }

    /// When the next packet may start.
    pub fn free_at(&self) -> Time {
        self.free_at
    }

    /// Starts to send `bytes` at `start`, or as soon as the previous packet is
    /// through; returns when the last bit has left, rounded down to a nanosecond.
    pub fn send(&mut self, start: Time, bytes: u32) -> Time {
        self.send_bits(start, u64::from(bytes) * 8)
    }

    /// The same in bits.
    pub fn send_bits(&mut self, start: Time, bits: u64) -> Time {
        if start > self.free_at {
            self.free_at = start;
            self.remainder = 0;
        }
        let scaled = bits
            .checked_mul(1_000_000_000)
            .and_then(|scaled| scaled.checked_add(self.remainder));
        let nanos = match scaled {
            Some(scaled) => {
                self.remainder = scaled % self.rate;
                scaled / self.rate
            }
            // Only bits or rates of more than 10^10 come here.
            None => {
                let scaled = u128::from(bits) * 1_000_000_000 + u128::from(self.remainder);
                let rate = u128::from(self.rate);
                self.remainder =
                    u64::try_from(scaled % rate).expect("a remainder is less than its divisor");
                u64::try_from(scaled / rate).unwrap_or(u64::MAX)
            }
        };
        self.free_at = Time::from_nanos(self.free_at.as_nanos().saturating_add(nanos));
        self.free_at
    }
}

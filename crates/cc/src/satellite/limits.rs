//! What the sender is told: how much may be in flight, and how fast it leaves.
//!
//! A sender asks for both several times for each packet. They change with what is acknowledged, lost or marked, and with what leaves in a
//! start, a train or behind a pause; so from one such moment to the next they are kept.

use bentpipe_units::Span;

use super::constants::*;
use super::{Phase, Satellite};
use crate::convert::whole;

/// Window and pacing rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes.
    pub(super) window: u64,
    /// Bytes per second.
    pub(super) rate: u64,
}

impl Satellite {
    /// What the sender is told now.
    pub(super) fn limits(&self) -> Limits {
        let Some(kept) = self.limits else {
            return self.limits_anew();
        };
        debug_assert_eq!(kept, self.limits_anew(), "kept for too long");
        kept
    }

    /// Keeps what the sender is told until something changes it.
    pub(super) fn keep_limits(&mut self) {
        self.limits = Some(self.limits());
    }

    /// Whether a packet that leaves `pause` after the one before changes neither.
    pub(super) fn is_steady(&self, pause: Span) -> bool {
        self.phase == Phase::Cruise
            && !self.training
            && self.blackout.is_none()
            && pause.as_secs_f64() <= MIN_PAUSE
            && self.delivery.in_flight() as f64 >= self.two_packets()
    }

    fn limits_anew(&self) -> Limits {
        Limits {
            window: self.window_anew(),
            rate: self.rate_anew(),
        }
    }

    fn window_anew(&self) -> u64 {
        let own = self.with_marks(self.own_window(), 1.0);
        let window = whole(own.max(self.competitive.window()).max(self.two_packets()));
        self.blackout
            .map_or(window, |blackout| window.max(blackout.window))
    }

    fn rate_anew(&self) -> u64 {
        if self.blackout.is_some() {
            return whole(BLACKOUT_PROBES * self.packet / self.base());
        }
        let own = match self.phase {
            Phase::Start if !self.train.is_out() => return train::RATE,
            Phase::Start if self.rate == 0.0 => self.start_window / self.base(),
            Phase::SlowStart { .. } | Phase::Cruise if self.sends_train() => train::RATE as f64,
            Phase::SlowStart { .. } => self.start_window / self.base(),
            Phase::Start | Phase::Trial { .. } => self.rate,
            Phase::Cruise => self.rate * self.gain(),
        };
        let per_byte = WINDOW_PACE / self.rtt().as_secs_f64();
        let competitive = self.competitive.window() * per_byte;
        let own = self.with_marks(own.max(self.kept_for_steps() * per_byte), per_byte);
        // Two packets are always under way (RFC 9002, section 7.2); where they are more than the path carries, each round trip has a queue
        // of their own making in it.
        let two = self.two_packets();
        let least = match (self.delivery.in_flight() as f64) < two {
            true => two / self.base(),
            false => (two / self.base()).min(self.rate.max(two / self.rtt().as_secs_f64())),
        };
        whole(own.max(competitive).max(least))
    }

    fn two_packets(&self) -> f64 {
        2.0 * self.packet
    }
}

//! Interruptions: acknowledgements that do not come for a while, or all at once.

use bentpipe_units::Time;

use super::constants::*;
use super::{Blackout, Satellite};
use crate::convert::whole;

impl Satellite {
    /// Nothing has come back for longer than a round trip: a packet more may leave.
    pub(super) fn probe_blackout(&mut self) {
        let probes = self.blackout.map_or(0, |blackout| blackout.probes);
        if probes < MAX_BLACKOUT_PROBES {
            let room = 2 * whole(self.packet);
            self.blackout = Some(Blackout {
                probes: probes + 1,
                window: self.clock.in_flight() + room,
            });
        }
    }

    /// A frame of acknowledgements has come: after how long?
    pub(super) fn notice_silence(&mut self, now: Time) {
        if now <= self.last_frame {
            return;
        }
        let silence = now.since(self.last_frame);
        let interval = silence.as_secs_f64();
        if interval > (SILENCE * self.base()).max(MIN_RATE_INTERVAL.as_secs_f64()) {
            self.silence_end = now;
            self.silence = silence;
        }
        self.ack_interval += 0.02 * (interval.min(self.base()) - self.ack_interval);
    }

    /// Whether a silence has ended so shortly ago that what it held may still be coming.
    pub(super) fn is_after_silence(&self, now: Time) -> bool {
        self.silence_end > Time::ZERO
            && now.since(self.silence_end).as_secs_f64() <= HELD_TIME * self.base()
    }

    /// A silence at whose end all comes at once that it missed: packets or their acknowledgements
    /// were held, and the path carries what it did.
    pub(super) fn notice_held_packets(&mut self, now: Time) {
        if !self.is_after_silence(now) {
            return;
        }
        let missed = self.silence + now.since(self.silence_end);
        let come = self.clock.rate(missed).unwrap_or(0.0);
        // No more than a round trip's worth was in flight.
        let sent = missed.as_secs_f64().min(self.base()) / missed.as_secs_f64();
        if come >= HELD_SHARE * sent * self.rate {
            let rtt = self.queue.base().unwrap_or(self.initial_rtt);
            self.held_until = now + rtt + rtt;
            self.hold_until = self.hold_until.max(self.held_until + rtt);
        }
    }
}

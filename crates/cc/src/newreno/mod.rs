//! NewReno as RFC 9002, section 7 and appendix B, has it.

use bentpipe_units::Time;

use crate::convert::whole;
use crate::{Acked, Congestion, Controller};

/// kLossReductionFactor (appendix B.1): share of the window that is left after a loss.
const LOSS_REDUCTION: f64 = 0.5;

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct NewReno {
    packet: u64,
    /// congestion_window (appendix B.2).
    window: u64,
    /// ssthresh.
    threshold: u64,
    /// congestion_recovery_start_time; before the first loss none.
    recovery_from: Option<Time>,
    /// Bytes acknowledged towards the next packet of growth.
    credit: u64,
}

impl NewReno {
    /// Starts with `window` bytes, in slow start (section 7.3.1).
    pub fn new(packet: u64, window: u64) -> Self {
        Self {
            packet,
            window: window.max(2 * packet),
            threshold: u64::MAX,
            recovery_from: None,
            credit: 0,
        }
    }
}

impl Controller for NewReno {
    fn on_acked(&mut self, packet: &Acked) {
        // Appendix B.5: no growth while the sender has too little, nor for packets
        // sent before the recovery period began (section 7.3.2).
        if packet.app_limited || self.recovery_from.is_some_and(|from| packet.sent <= from) {
            return;
        }
        if self.window < self.threshold {
            // Slow start: by the number of bytes acknowledged.
            self.window += packet.bytes;
        } else {
            // Congestion avoidance: one packet per window acknowledged (section 7.3.3).
            self.credit += packet.bytes;
            if self.credit >= self.window {
                self.credit -= self.window;
                self.window += self.packet;
            }
        }
    }

    fn on_congestion(&mut self, event: &Congestion) {
        // Appendix B.6: once per recovery period, for losses and marks alike.
        if self.recovery_from.is_none_or(|from| event.sent > from) {
            self.recovery_from = Some(event.now);
            self.threshold = whole(self.window as f64 * LOSS_REDUCTION).max(2 * self.packet);
            self.window = self.threshold;
            self.credit = 0;
        }
        // Section 7.6.2 and appendix B.8: after that, persistent congestion leaves the minimum
        // window.
        if event.persistent {
            self.window = 2 * self.packet;
            self.recovery_from = None;
            self.credit = 0;
        }
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes;
        self.window = self.window.max(2 * bytes);
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        Some(self.threshold)
    }

    fn resume_at(&mut self, window: u64, threshold: Option<u64>) {
        self.window = window.max(2 * self.packet);
        self.threshold = threshold.unwrap_or(self.threshold);
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

//! Largest window, as configured: no controller has more in flight, nor grows towards more.

use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};

/// A controller with a largest window.
#[derive(Debug)]
pub(crate) struct Bounded {
    inner: Box<dyn Controller>,
    most: u64,
    /// Whether its window was as large when the ACK frame came that is being told.
    full: Option<bool>,
}

impl Bounded {
    pub(crate) fn new(inner: Box<dyn Controller>, most: u64) -> Self {
        Self {
            inner,
            most,
            full: None,
        }
    }
}

impl Controller for Bounded {
    fn on_sent(&mut self, packet: Sent) {
        self.inner.on_sent(packet);
    }

    fn on_window_limited(&mut self) {
        self.inner.on_window_limited();
    }

    fn on_acked(&mut self, packet: &Acked) {
        // A window that may not be used is no evidence for a larger one (RFC 9002, section 7.8).
        let (inner, most) = (&mut self.inner, self.most);
        let full = *self.full.get_or_insert_with(|| inner.window() >= most);
        inner.on_acked(&Acked {
            app_limited: packet.app_limited || full,
            ..*packet
        });
    }

    fn on_acks_done(&mut self, end: AcksDone) {
        self.full = None;
        self.inner.on_acks_done(end);
    }

    fn on_lost(&mut self, packet: Lost) {
        self.inner.on_lost(packet);
    }

    fn on_forgotten(&mut self, bytes: u64) {
        self.inner.on_forgotten(bytes);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.inner.on_congestion(event);
    }

    fn on_spurious_congestion(&mut self) {
        self.inner.on_spurious_congestion();
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.inner.on_packet_size(bytes);
    }

    fn window(&self) -> u64 {
        self.inner.window().min(self.most)
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        self.inner.slow_start_threshold()
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.inner.pacing_rate()
    }

    fn resume_at(&mut self, window: u64, threshold: Option<u64>) {
        self.inner.resume_at(window, threshold);
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self::new(self.inner.clone_box(), self.most))
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{Span, Time};

    use super::*;
    use crate::newreno::NewReno;

    /// Told frame by frame that all of it has arrived, a window grows to its most, and by no more than a frame's.
    #[test]
    fn a_window_grows_to_its_most() {
        const PACKET: u64 = 1200;
        const MOST: u64 = 40 * PACKET;
        let mut all = Bounded::new(Box::new(NewReno::new(PACKET, 10 * PACKET)), MOST);
        for _ in 0..100 {
            for number in 0..4 {
                all.on_acked(&Acked {
                    now: Time::ZERO,
                    sent: Time::ZERO,
                    number,
                    bytes: PACKET,
                    app_limited: false,
                    smoothed_rtt: Span::from_millis(100),
                });
            }
            all.on_acks_done(AcksDone {
                now: Time::ZERO,
                in_flight: 0,
                app_limited: false,
            });
        }
        assert_eq!(all.window(), MOST);
        assert!(
            all.inner.window() < MOST + 4 * PACKET,
            "{}",
            all.inner.window()
        );
    }
}

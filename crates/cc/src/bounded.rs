//! Largest window, as configured: no controller has more in flight, nor grows towards more.

use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};

/// A controller with a largest window.
#[derive(Debug)]
pub(crate) struct Bounded {
    inner: Box<dyn Controller>,
    most: u64,
}

impl Bounded {
    pub(crate) fn new(inner: Box<dyn Controller>, most: u64) -> Self {
        Self { inner, most }
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
        let bounded = self.inner.window() >= self.most;
        self.inner.on_acked(&Acked {
            app_limited: packet.app_limited || bounded,
            ..*packet
        });
    }

    fn on_acks_done(&mut self, end: AcksDone) {
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
        Box::new(Self {
            inner: self.inner.clone_box(),
            most: self.most,
        })
    }
}

//! Largest window, as configured: no controller has more in flight, nor grows towards more.

use std::sync::OnceLock;

use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};

/// A controller with a largest window.
#[derive(Debug)]
pub(crate) struct Bounded {
    inner: Box<dyn Controller>,
    most: u64,
    /// What it says is asked for several times for each packet, and stays until it is told something.
    window: OnceLock<u64>,
    pacing_rate: OnceLock<Option<u64>>,
}

impl Bounded {
    pub(crate) fn new(inner: Box<dyn Controller>, most: u64) -> Self {
        Self {
            inner,
            most,
            window: OnceLock::new(),
            pacing_rate: OnceLock::new(),
        }
    }

    /// To be told something.
    fn told(&mut self) -> &mut dyn Controller {
        (self.window, self.pacing_rate) = (OnceLock::new(), OnceLock::new());
        &mut *self.inner
    }
}

impl Controller for Bounded {
    fn on_sent(&mut self, packet: Sent) {
        self.told().on_sent(packet);
    }

    fn on_window_limited(&mut self) {
        self.told().on_window_limited();
    }

    fn on_acked(&mut self, packet: &Acked) {
        // A window that may not be used is no evidence for a larger one (RFC 9002, section 7.8).
        let bounded = self.window() >= self.most;
        self.told().on_acked(&Acked {
            app_limited: packet.app_limited || bounded,
            ..*packet
        });
    }

    fn on_acks_done(&mut self, end: AcksDone) {
        self.told().on_acks_done(end);
    }

    fn on_lost(&mut self, packet: Lost) {
        self.told().on_lost(packet);
    }

    fn on_forgotten(&mut self, bytes: u64) {
        self.told().on_forgotten(bytes);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.told().on_congestion(event);
    }

    fn on_spurious_congestion(&mut self) {
        self.told().on_spurious_congestion();
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.told().on_packet_size(bytes);
    }

    fn window(&self) -> u64 {
        let bounded = || self.inner.window().min(self.most);
        *self.window.get_or_init(bounded)
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        self.inner.slow_start_threshold()
    }

    fn pacing_rate(&self) -> Option<u64> {
        *(self.pacing_rate).get_or_init(|| self.inner.pacing_rate())
    }

    fn resume_at(&mut self, window: u64, threshold: Option<u64>) {
        self.told().resume_at(window, threshold);
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self::new(self.inner.clone_box(), self.most))
    }
}

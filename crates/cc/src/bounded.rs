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

#[cfg(test)]
mod tests {
    use bentpipe_units::{Span, Time};

    use super::*;

    /// Says how often it was told something.
    #[derive(Debug)]
    struct Counts(u64);

    impl Controller for Counts {
        fn on_sent(&mut self, _: Sent) {
            self.0 += 1;
        }

        fn on_window_limited(&mut self) {
            self.0 += 1;
        }

        fn on_acked(&mut self, _: &Acked) {
            self.0 += 1;
        }

        fn on_acks_done(&mut self, _: AcksDone) {
            self.0 += 1;
        }

        fn on_lost(&mut self, _: Lost) {
            self.0 += 1;
        }

        fn on_forgotten(&mut self, _: u64) {
            self.0 += 1;
        }

        fn on_congestion(&mut self, _: &Congestion) {
            self.0 += 1;
        }

        fn on_spurious_congestion(&mut self) {
            self.0 += 1;
        }

        fn on_packet_size(&mut self, _: u64) {
            self.0 += 1;
        }

        fn window(&self) -> u64 {
            self.0
        }

        fn pacing_rate(&self) -> Option<u64> {
            Some(self.0)
        }

        fn resume_at(&mut self, _: u64, _: Option<u64>) {
            self.0 += 1;
        }

        fn clone_box(&self) -> Box<dyn Controller> {
            Box::new(Self(self.0))
        }
    }

    #[test]
    fn whatever_it_is_told_it_answers_anew() {
        const SENT: Sent = Sent {
            now: Time::ZERO,
            number: 0,
            bytes: 1200,
        };
        const ACKED: Acked = Acked {
            now: Time::ZERO,
            sent: Time::ZERO,
            number: 0,
            bytes: 1200,
            app_limited: false,
            smoothed_rtt: Span::ZERO,
        };
        const DONE: AcksDone = AcksDone {
            now: Time::ZERO,
            in_flight: 0,
            app_limited: false,
        };
        const LOST: Lost = Lost {
            now: Time::ZERO,
            number: 0,
            bytes: 1200,
        };
        const CONGESTION: Congestion = Congestion {
            now: Time::ZERO,
            sent: Time::ZERO,
            persistent: false,
            marked: false,
            lost: 1200,
        };
        let tell: [fn(&mut Bounded); 10] = [
            |all| all.on_sent(SENT),
            |all| all.on_window_limited(),
            |all| all.on_acked(&ACKED),
            |all| all.on_acks_done(DONE),
            |all| all.on_lost(LOST),
            |all| all.on_forgotten(1200),
            |all| all.on_congestion(&CONGESTION),
            |all| all.on_spurious_congestion(),
            |all| all.on_packet_size(1200),
            |all| all.resume_at(1200, None),
        ];
        let mut all = Bounded::new(Box::new(Counts(0)), 8);
        for (told, tell) in (1..).zip(tell) {
            tell(&mut all);
            assert_eq!(all.window(), told.min(8), "told {told} times");
            assert_eq!(all.pacing_rate(), Some(told), "told {told} times");
        }
        assert_eq!(all.clone_box().pacing_rate(), Some(10));
    }
}

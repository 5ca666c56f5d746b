//! Marked window: what CUBIC would have in flight with the same marks, and losses of a queue that others share.
//!
//! A mark is never the radio's: it says that a queue is shared, or kept short. Whoever only answers it by
//! a lower rate has that back with the next measurement, and whoever comes beside with a window is left with
//! nothing. So from a mark on the window of RFC 9438 bounds what is in flight, with the decrease of RFC 8511,
//! until that window would have been through, or a [trial](super::trial) has shown that nobody shares it. Where less is delivered than once was, somebody else is there:
//! then the window is also what is sent.

use bentpipe_units::Time;

use super::competitive_mode::Curve;
use super::constants::marked_window::*;

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(super) struct MarkedWindow {
    curve: Option<Curve>,
    /// W_est (section 4.3), bytes.
    reno: f64,
}

impl MarkedWindow {
    /// Bytes, where there are marks.
    pub(super) fn bytes(&self) -> Option<f64> {
        self.curve.map(|curve| curve.window)
    }

    /// A mark of a new round trip has come, with so much in flight; `share` of the window is left.
    pub(super) fn on_mark(&mut self, now: Time, in_flight: f64, share: f64) {
        let curve = (self.curve).get_or_insert_with(|| Curve::new(now, in_flight, in_flight));
        // What was not used is not known to be there (RFC 9438, section 5.8).
        curve.window = in_flight.clamp(UNUSED * curve.window, curve.window);
        curve.decrease(now, share);
        self.reno = curve.window;
    }

    /// A round trip of `rtt` seconds has ended, with a window of `own` bytes by the delivered rate.
    pub(super) fn on_round(&mut self, now: Time, rtt: f64, packet: f64, own: f64) {
        let Some(curve) = &mut self.curve else {
            return;
        };
        curve.grow(now, rtt, packet);
        self.reno += ALPHA * packet;
        curve.window = curve.window.max(self.reno);
        let over = EPOCHS * curve.k(packet) + ROUNDS * rtt;
        if now.since(curve.since()).as_secs_f64() > over && curve.window > REACHED * own {
            self.curve = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Span;

    use super::*;

    const PACKET: f64 = 1_500.0;

    fn at(round: u64) -> Time {
        Time::ZERO + Span::from_millis(100 * round)
    }

    /// 160 packets of 1500 bytes, and round trips of 100 ms.
    fn after_one_mark(rounds: u64) -> MarkedWindow {
        let mut window = MarkedWindow::default();
        window.on_mark(at(0), 160.0 * PACKET, SHARE);
        for round in 1..=rounds {
            window.on_round(at(round), 0.1, PACKET, 190.0 * PACKET);
        }
        window
    }

    #[test]
    fn a_mark_takes_its_share_and_the_window_comes_back_as_cubics() {
        let packets = |rounds| {
            after_one_mark(rounds)
                .bytes()
                .map(|bytes| (bytes / PACKET).round())
        };
        // K = cbrt(0.15 * 160 / 0.4) = 3.9 s.
        assert_eq!(
            [0, 10, 20, 38].map(packets),
            [136.0, 151.0, 158.0, 160.0].map(Some)
        );
    }

    #[test]
    fn it_ends_when_it_would_have_been_through() {
        let ends = (1..400).find(|rounds| after_one_mark(*rounds).bytes().is_none());
        // 2 K and eight rounds.
        assert_eq!(ends, Some(87));
    }

    #[test]
    fn marks_that_go_on_lower_it_further() {
        let mut window = after_one_mark(10);
        let mut before = window.bytes();
        for round in 11..20 {
            window.on_mark(at(round), before.unwrap_or_default(), SHARE);
            assert!(window.bytes() < before);
            before = window.bytes();
        }
    }
}

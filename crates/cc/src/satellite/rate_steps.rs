//! A rate that steps: it fell, and within some round trips it came back.
//!
//! Who drains the queue behind each fall, and asks for more once none has stood for some rounds, has found neither rate before it is
//! another. So where what a fall took has come back, as much stays in flight as fills the pipe at the highest rate of the last round
//! trips: while the rate is low it waits in the queue, and is there when the rate is back. What others have taken does not come back, or little of it.

use std::collections::VecDeque;

use bentpipe_units::Time;

use super::constants::competitive_mode::BETA;
use super::constants::rate_steps::*;
use super::{Congestion, Phase, Satellite};

/// Whether the rate steps, and what its steps have left.
#[derive(Debug, Clone, Default)]
pub(super) struct RateSteps {
    /// Bytes per second that the last rounds have brought.
    delivered: VecDeque<f64>,
    fall: Option<Fall>,
    /// How often a fall was taken back, and for how many rounds that is expected again.
    returns: u32,
    expected: u32,
    /// Share of the window that losses have taken.
    lost: f64,
    answered: Option<Time>,
}

/// A fall of the rate, bytes per second.
#[derive(Debug, Clone, Copy)]
struct Fall {
    from: f64,
    to: f64,
    /// Rounds since then.
    rounds: u32,
}

impl Fall {
    /// Whether `rate` takes at least half of it back: as many times more than it fell to as it fell from more than that.
    fn is_undone(&self, rate: f64) -> bool {
        rate > STEP * self.to && rate * rate > self.from * self.to
    }
}

impl RateSteps {
    /// A round has brought so many bytes per second, `delivered`, `None` where that says nothing of the path; whether the rate has `fallen`, which a queue has shown.
    fn on_round(&mut self, delivered: Option<f64>, fallen: bool) {
        let most = self.most();
        self.expected = self.expected.saturating_sub(1);
        self.lost = (self.lost - LOSS_FORGOTTEN).max(0.0);
        if let Some(rate) = delivered {
            if self.fall.is_some_and(|fall| fall.is_undone(rate)) {
                if self.expected == 0 {
                    (self.returns, self.lost) = (0, 0.0);
                }
                self.returns += 1;
                self.expected = EXPECTED_ROUNDS;
                self.fall = None;
            }
            if self.delivered.len() == ROUNDS {
                self.delivered.pop_front();
            }
            self.delivered.push_back(rate);
        }
        if let Some(fall) = &mut self.fall {
            fall.rounds += 1;
        }
        self.fall = self.fall.filter(|fall| fall.rounds <= RETURN_ROUNDS);
        if let Some(to) = delivered.filter(|to| fallen && most > STEP * to) {
            let (from, least) = (self.fall).map_or((most, to), |fall| (fall.from, fall.to));
            self.fall = Some(Fall {
                from: most.max(from),
                to: to.min(least),
                rounds: 0,
            });
        }
    }

    /// The highest rate of the last rounds, bytes per second.
    fn most(&self) -> f64 {
        self.delivered.iter().copied().fold(0.0, f64::max)
    }

    /// Whether a rate that falls now will come back soon.
    pub(super) fn are_expected(&self) -> bool {
        self.expected > 0
    }

    /// A queue has dropped or marked: what was kept was too much for it.
    pub(super) fn on_congestion(&mut self, event: &Congestion) {
        if self.answered.is_none_or(|from| event.sent > from) {
            self.answered = Some(event.now);
            self.lost = 1.0 - BETA * (1.0 - self.lost);
        }
    }

    /// Pipes of the highest rate of the last rounds that stay in flight.
    fn pipes(&self) -> f64 {
        match self.returns {
            _ if self.expected == 0 => 0.0,
            1 => FIRST_PIPES * (1.0 - self.lost),
            _ => PIPES * (1.0 - self.lost),
        }
    }
}

impl Satellite {
    /// A round has ended, in which so many bytes per second came back.
    pub(super) fn follow_steps(&mut self, now: Time, delivered: f64, app_limited: bool) {
        let held = self.is_behind_silence_by(now, 2.0);
        let known = !app_limited && !held && self.phase == Phase::Cruise;
        let fallen = self.rate_fall.is_some_and(|fall| fall.is_measured());
        (self.rate_steps).on_round(known.then_some(delivered), fallen);
    }

    /// Bytes that stay in flight for a rate that comes back: not while the queue is let run dry.
    pub(super) fn kept_for_steps(&self) -> f64 {
        if self.drain_probe.gain(self.last_acked).is_some() {
            return 0.0;
        }
        self.rate_steps.pipes() * self.rate_steps.most() * self.base()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in turn: what they brought, and what the rate fell to.
    fn after(rounds: &[(f64, bool)]) -> RateSteps {
        let mut steps = RateSteps::default();
        for (delivered, fallen) in rounds {
            steps.on_round(Some(*delivered), *fallen);
        }
        steps
    }

    #[test]
    fn what_a_fall_took_has_to_come_back() {
        let fallen = (250.0, true);
        assert!(!after(&[(1000.0, false), fallen, (250.0, false)]).are_expected());
        // Half of a fourfold fall is twice as much.
        assert!(!after(&[(1000.0, false), fallen, (490.0, false)]).are_expected());
        assert!(after(&[(1000.0, false), fallen, (510.0, false)]).are_expected());
    }

    #[test]
    fn the_highest_of_ten_rounds_is_kept_a_quarter_more_from_the_second_return_on() {
        let cycle = [(1000.0, false), (250.0, true), (700.0, false)];
        let mut steps = after(&cycle);
        assert_eq!(steps.pipes() * steps.most(), 1000.0);
        for (delivered, fallen) in cycle {
            steps.on_round(Some(delivered), fallen);
        }
        assert_eq!(steps.pipes() * steps.most(), 1250.0);
        for _ in 0..10 {
            steps.on_round(Some(400.0), false);
        }
        assert_eq!(steps.pipes() * steps.most(), 500.0);
        for _ in 0..EXPECTED_ROUNDS {
            steps.on_round(Some(400.0), false);
        }
        assert_eq!(steps.pipes(), 0.0);
    }

    #[test]
    fn a_fall_of_long_ago_was_no_step() {
        let mut steps = after(&[(1000.0, false), (250.0, true)]);
        for _ in 0..=RETURN_ROUNDS {
            steps.on_round(Some(250.0), false);
        }
        steps.on_round(Some(1000.0), false);
        assert!(!steps.are_expected());
    }

    #[test]
    fn losses_of_one_round_trip_take_their_share_once() {
        let mut steps = after(&[(1000.0, false), (250.0, true), (700.0, false)]);
        let at = |millis| Time::ZERO + bentpipe_units::Span::from_millis(millis);
        for (now, sent) in [(1000, 400), (1001, 402), (1600, 990), (1601, 1001)] {
            steps.on_congestion(&Congestion {
                now: at(now),
                sent: at(sent),
                persistent: false,
                marked: false,
                lost: 1_500,
            });
        }
        assert!((steps.pipes() - BETA * BETA).abs() < 1e-9);
    }
}

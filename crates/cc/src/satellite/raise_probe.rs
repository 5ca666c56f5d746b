//! Raise probe: where something that may be jitter keeps the rate from growing, a little more is sent for a moment.
//!
//! What the path does not carry makes the queue longer, and with it the mean round trip; jitter stays what it is. If twice in a row the
//! mean has not followed, all that stood meanwhile was jitter, and what stands up to that [`floor`](RaiseProbe::floor) is no queue. A
//! queue at one of the next probes, a mark, or a loss on a path that loses few halves it.
//!
//! Only jitter may be asked: it moves the mean of an eighth of a round trip nearly as much as that of a whole one. A queue that
//! others fill wanders over several round trips, and they give way to the probe, so that it would not show.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use super::constants::raise_probe::*;
use crate::convert::whole;

/// A round trip as it ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) now: Time,
    /// Seconds of round trip without a queue, and on average.
    pub(super) base: f64,
    pub(super) rtt: f64,
    /// Whether a queue, or jitter, keeps the rate from growing.
    pub(super) held_back: bool,
    /// Whether all was sent that the rate allows, and nothing else disturbed the queue.
    pub(super) steady: bool,
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct RaiseProbe {
    round: Samples,
    /// The steady rounds before, newest first.
    rounds: VecDeque<Samples>,
    round_steps: Steps,
    eighth: Samples,
    eighth_until: Time,
    eighth_steps: Steps,
    /// Rounds in a row held back, and how many make a probe due.
    held_back: u32,
    due_after: u32,
    running: Option<Raise>,
    /// Whether the probe before has shown no queue either.
    agreed: bool,
    floor: f64,
    /// Congestion of packets sent until then has been answered.
    answered: Time,
}

/// Round trips, seconds.
#[derive(Debug, Clone, Copy, Default)]
struct Samples {
    sum: f64,
    count: u32,
    /// Most that stood, seconds.
    most: f64,
}

/// Mean step from one mean to the next, seconds.
#[derive(Debug, Clone, Copy)]
struct Steps {
    mean: f64,
    /// The same, times the root of how many values there are in a mean.
    of_one: f64,
    count: u32,
    /// Steps that are averaged.
    over: u32,
    last: Option<Samples>,
}

#[derive(Debug, Clone, Copy)]
struct Raise {
    until: Time,
    /// When all of it has come back.
    shows: Time,
    /// Seconds of queue that it makes of a full path.
    more: f64,
    /// Rounds that are averaged before and afterwards.
    rounds: u32,
    before: Samples,
    after: Samples,
}

impl RaiseProbe {
    pub(super) fn new() -> Self {
        Self {
            round: Samples::default(),
            rounds: VecDeque::new(),
            round_steps: Steps::over(STEPS),
            eighth: Samples::default(),
            eighth_until: Time::ZERO,
            eighth_steps: Steps::over(8 * STEPS),
            held_back: 0,
            due_after: LEAST_WAIT,
            running: None,
            agreed: false,
            floor: 0.0,
            answered: Time::ZERO,
        }
    }

    /// Share of the rate that is sent beyond it.
    pub(super) fn gain(&self, now: Time) -> f64 {
        match &self.running {
            Some(raise) if now < raise.until => GAIN,
            _ => 0.0,
        }
    }

    /// Seconds above the base round trip that are no queue.
    pub(super) fn floor(&self) -> f64 {
        self.floor
    }

    /// The path is known from now on: what was measured had the train's own queue in it.
    pub(super) fn restart(&mut self) {
        *self = Self {
            floor: self.floor,
            answered: self.answered,
            ..Self::new()
        };
    }

    /// Mean step between the means of eighths of a round trip, seconds; 0 if those of whole ones are so much longer that it is a queue that
    /// wanders, or if too few are known.
    pub(super) fn jitter(&self) -> f64 {
        let (eighth, round) = (self.eighth_steps.mean, &self.round_steps);
        match round.count >= LEAST_STEPS && eighth >= EIGHTH_SHARE * round.mean {
            true => eighth,
            false => 0.0,
        }
    }

    /// By how much one round trip differs from another where that is jitter of each for itself, seconds: the means of eighths differ by
    /// the less, the more round trips there are in one. 0 as for [`jitter`](Self::jitter).
    pub(super) fn spread(&self) -> f64 {
        match self.jitter() > 0.0 {
            true => UNIFORM * self.eighth_steps.of_one,
            false => 0.0,
        }
    }

    /// A round trip, and how much of it seems to stand, whatever the floor, seconds.
    pub(super) fn on_sample(&mut self, now: Time, rtt: f64, standing: f64) {
        if now >= self.eighth_until {
            let eighth = std::mem::take(&mut self.eighth);
            self.eighth_steps.add(eighth);
            self.eighth_until = now + seconds(rtt / 8.0);
        }
        self.eighth.add(rtt, standing);
        self.round.add(rtt, standing);
    }

    /// Whether a probe has shown that there is no queue.
    pub(super) fn on_round(&mut self, round: &Round) -> bool {
        let samples = std::mem::take(&mut self.round);
        self.round_steps.add(samples);
        if !round.steady {
            self.running = None;
            self.held_back = 0;
            self.rounds.clear();
            return false;
        }
        self.rounds.push_front(samples);
        self.rounds.truncate(MOST_ROUNDS);
        self.held_back = match round.held_back {
            true => self.held_back + 1,
            false => 0,
        };
        match self.running {
            None => self.begin(round),
            // Of the first round that ends then a part had left before.
            Some(raise) if round.now < raise.shows + seconds(round.rtt) => {}
            Some(mut raise) => {
                raise.after.add(samples.mean(), samples.most);
                self.running = Some(raise);
                if raise.after.count == raise.rounds {
                    self.running = None;
                    return self.judge(&raise, round.base);
                }
            }
        }
        false
    }

    /// A queue has marked packets sent until `sent`. Once for all that was on its way `now`.
    pub(super) fn on_mark(&mut self, now: Time, sent: Time) {
        if sent > self.answered {
            self.answered = now;
            self.on_queue();
        }
    }

    /// Packets were lost, on a path that loses few.
    pub(super) fn on_loss(&mut self, now: Time, sent: Time) {
        if self.floor > 0.0 {
            self.on_mark(now, sent);
        }
    }

    /// There is a queue.
    pub(super) fn on_queue(&mut self) {
        self.floor *= 0.5;
        self.agreed = false;
        self.due_after = (2 * self.due_after).min(MOST_WAIT);
    }

    fn begin(&mut self, round: &Round) {
        let step = self.round_steps.mean;
        let wanted = NOISE * step;
        let more = wanted.min(MOST.min(MOST_SHARE * round.base)).max(LEAST);
        // The error of a mean falls with the root of their number.
        let rounds = LEAST_ROUNDS * (wanted / more).powi(2).max(1.0);
        let rounds = u32::try_from(whole(rounds.ceil())).unwrap_or(u32::MAX);
        let known = self.round_steps.count >= STEPS && self.rounds.len() >= rounds as usize;
        if self.held_back < self.due_after || !known || self.jitter() < JITTER {
            return;
        }
        let mut before = Samples::default();
        for samples in self.rounds.iter().take(rounds as usize) {
            before.add(samples.mean(), samples.most);
        }
        let until = round.now + seconds(more / GAIN);
        self.running = Some(Raise {
            until,
            shows: until + seconds(round.rtt),
            more,
            rounds,
            before,
            after: Samples::default(),
        });
    }

    fn judge(&mut self, raise: &Raise, base: f64) -> bool {
        self.held_back = 0;
        let moved = raise.after.mean() - raise.before.mean();
        if moved >= RESPONSE * raise.more {
            self.on_queue();
            return false;
        }
        if !std::mem::replace(&mut self.agreed, true) {
            // Once more, soon.
            self.held_back = LEAST_WAIT - 2;
            return false;
        }
        let stood = raise.before.most.max(raise.after.most);
        self.floor = self.floor.max(stood).min(MOST.min(MOST_SHARE * base));
        self.due_after = self.due_after.saturating_sub(LEAST_WAIT).max(LEAST_WAIT);
        true
    }
}

impl Samples {
    fn add(&mut self, rtt: f64, standing: f64) {
        self.sum += rtt;
        self.count += 1;
        self.most = self.most.max(standing);
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.count.max(1))
    }
}

impl Steps {
    fn over(over: u32) -> Self {
        Self {
            mean: 0.0,
            of_one: 0.0,
            count: 0,
            over,
            last: None,
        }
    }

    fn add(&mut self, samples: Samples) {
        if samples.count == 0 {
            return;
        }
        if let Some(last) = self.last.replace(samples) {
            let step = (samples.mean() - last.mean()).abs();
            let of_one = step * f64::from(samples.count.min(last.count).min(APART)).sqrt();
            self.count = (self.count + 1).min(self.over);
            self.mean += (step - self.mean) / f64::from(self.count);
            self.of_one += (of_one - self.of_one) / f64::from(self.count);
        }
    }
}

fn seconds(seconds: f64) -> Span {
    Span::from_nanos(whole(1e9 * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: f64 = 0.04;
    /// Samples per round trip.
    const SAMPLES: u32 = 64;

    fn held_back(now: Time) -> Round {
        Round {
            now,
            base: BASE,
            rtt: BASE,
            held_back: true,
            steady: true,
        }
    }

    /// Round trips of 40 ms held back by up to `jitter` seconds, of which there are `values` in a round trip, and by a queue that grows by
    /// `share` of what is sent in addition. The floor after each round.
    fn floors(jitter: f64, values: u32, share: f64, rounds: u32) -> Vec<f64> {
        let mut probe = RaiseProbe::new();
        let (mut now, mut queue, mut random, mut held) = (Time::ZERO, 0.0, 1_u64, 0.0);
        (0..rounds)
            .map(|_| {
                for sample in 0..SAMPLES {
                    if sample % (SAMPLES / values) == 0 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        held = jitter * (random >> 40) as f64 / (1_u64 << 24) as f64;
                    }
                    let step = BASE / f64::from(SAMPLES);
                    queue += share * probe.gain(now) * step;
                    now = now + seconds(step);
                    probe.on_sample(now, BASE + held + queue, held + queue);
                }
                probe.on_round(&held_back(now));
                probe.floor()
            })
            .collect()
    }

    #[test]
    fn jitter_that_does_not_follow_is_no_queue() {
        let floors = floors(0.008, 8, 0.0, 100);
        assert!(floors[99] > 0.004, "{floors:?}");
    }

    #[test]
    fn a_queue_that_follows_is_one() {
        let floors = floors(0.008, 8, 1.0, 400);
        assert!(floors.iter().all(|floor| *floor == 0.0), "{floors:?}");
    }

    #[test]
    fn what_changes_once_in_a_round_trip_is_not_asked() {
        let floors = floors(0.008, 1, 0.0, 400);
        assert!(floors.iter().all(|floor| *floor == 0.0), "{floors:?}");
    }

    #[test]
    fn a_path_without_jitter_is_not_asked() {
        let mut probe = RaiseProbe::new();
        let mut now = Time::ZERO;
        for _ in 0..100 {
            now = now + seconds(BASE);
            probe.on_sample(now, BASE + 0.01, 0.01);
            probe.on_round(&held_back(now));
            assert_eq!(probe.gain(now), 0.0);
        }
    }

    #[test]
    fn losses_of_one_round_trip_halve_what_is_taken_for_jitter_once() {
        let mut probe = RaiseProbe::new();
        probe.floor = 0.008;
        let at = |milliseconds| Time::ZERO + Span::from_millis(milliseconds);
        probe.on_loss(at(100), at(50));
        assert_eq!(probe.floor(), 0.004);
        probe.on_loss(at(120), at(90));
        assert_eq!(probe.floor(), 0.004, "of the same round trip");
        probe.on_loss(at(160), at(110));
        assert_eq!(probe.floor(), 0.002);
    }
}

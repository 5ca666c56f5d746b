//! The decision what the event loop does next, without a clock.

use bentpipe_units::{Span, Time};

/// What the loop does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Something is due: see to it.
    Go,
    /// Something is due too soon for a sleep to end in time: watch for packets until then.
    Watch,
    /// Sleep for so long, or until a packet comes in.
    Sleep(Span),
    /// Sleep for so long, whatever comes in.
    Rest(Span),
    /// Sleep until a packet comes in.
    Wait,
    /// The run is over.
    End,
}

/// How the loop divides its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// See to each packet at its moment, and get up so long before a departure.
    Prompt(Span),
    /// See to packets in batches: there is no time to see to each.
    Batches,
}

/// How long a batch gathers. A packet is late by half of it on average.
const BATCH: Span = Span::from_nanos(40_000);

/// Decides: `due` is when the next packet leaves the model, `end` when the run is over.
pub(super) fn next(now: Time, due: Option<Time>, end: Option<Time>, mode: Mode) -> Step {
    if end.is_some_and(|end| end <= now) {
        return Step::End;
    }
    let wake = match (mode, due) {
        (_, Some(due)) if due <= now => return Step::Go,
        (Mode::Prompt(wake), Some(due)) if due.since(now) <= wake => return Step::Watch,
        (Mode::Prompt(wake), _) => wake,
        (Mode::Batches, _) => return Step::Rest(BATCH),
    };
    let rise = due.map(|due| Span::from_nanos(due.since(now).as_nanos() - wake.as_nanos()));
    let rest = end.map(|end| end.since(now));
    match [rise, rest].into_iter().flatten().min() {
        Some(span) => Step::Sleep(span),
        None => Step::Wait,
    }
}

/// How long before a departure the loop gets up: the lateness that nine in ten of
/// the machine's timers keep, followed as it changes. An idle virtual machine takes
/// 100 us to wake where a busy one takes 10, and the longer watch is then for free.
#[derive(Debug)]
pub(super) struct Margin(Span);

impl Margin {
    const LEAST: u64 = 5_000;
    const MOST: u64 = 200_000;
    /// Nine steps down weigh as much as one up, which settles at the ninth decile.
    const DOWN: u64 = 500;
    const UP: u64 = 9 * Self::DOWN;

    pub fn span(&self) -> Span {
        self.0
    }

    /// A sleep has ended `late`.
    pub fn learn(&mut self, late: Span) {
        let now = self.0.as_nanos();
        let next = if late > self.0 {
            now + Self::UP
        } else {
            now.saturating_sub(Self::DOWN)
        };
        self.0 = Span::from_nanos(next.clamp(Self::LEAST, Self::MOST));
    }
}

impl Default for Margin {
    fn default() -> Self {
        Self(Span::from_nanos(100_000))
    }
}

/// Whether the processor has time for seeing to each packet at its moment.
///
/// The kernel takes the processor away from a real-time thread that leaves less than
/// 5 % of it (sched(7), `sched_rt_runtime_us`), and for 50 ms at that. Watching for the
/// moment, and waking up for each packet, are what can be left out.
#[derive(Debug)]
pub(super) struct Load {
    since: Time,
    /// Processor time used by then.
    used: Span,
    high: bool,
}

impl Load {
    const PERIOD: Span = Span::from_millis(5);
    /// Percent of a period above which the load is high.
    const HIGH: u64 = 75;
    /// Percent of a period below which it no longer is.
    const LOW: u64 = 40;

    /// An unused processor.
    pub fn new(now: Time, used: Span) -> Self {
        Self {
            since: now,
            used,
            high: false,
        }
    }

    /// Whether the processor time that the loop has used is of interest again.
    pub fn wants(&self, now: Time) -> bool {
        now.since(self.since) >= Self::PERIOD
    }

    /// The loop has used so much processor time since it began.
    pub fn learn(&mut self, now: Time, used: Span) {
        let period = now.since(self.since).as_nanos();
        let busy = used.as_nanos().saturating_sub(self.used.as_nanos());
        let most = if self.high { Self::LOW } else { Self::HIGH };
        *self = Self {
            since: now,
            used,
            high: busy.saturating_mul(100) > period.saturating_mul(most),
        };
    }

    /// How to divide the time, with such a margin when there is enough.
    pub fn mode(&self, margin: Span) -> Mode {
        if self.high {
            Mode::Batches
        } else {
            Mode::Prompt(margin)
        }
    }
}

/// The part of a processor that the loop takes in its busiest second: the kernel counts
/// the time of real-time threads by seconds (`sched_rt_period_us`).
#[derive(Debug)]
pub(super) struct BusiestSecond {
    since: Time,
    used: Span,
    share: f64,
}

impl BusiestSecond {
    const SECOND: Span = Span::from_millis(1000);

    /// From now on.
    pub fn new(now: Time, used: Span) -> Self {
        let share = 0.0;
        Self {
            since: now,
            used,
            share,
        }
    }

    /// The loop has used so much processor time since it began.
    pub fn learn(&mut self, now: Time, used: Span) {
        let period = now.since(self.since);
        if period < Self::SECOND {
            return;
        }
        let busy = used.as_nanos().saturating_sub(self.used.as_nanos());
        self.share = self
            .share
            .max(Span::from_nanos(busy).as_secs_f64() / period.as_secs_f64());
        (self.since, self.used) = (now, used);
    }

    /// The largest share since this was last asked.
    pub fn take(&mut self) -> f64 {
        std::mem::take(&mut self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAKE: Span = Span::from_nanos(20);

    fn step(due: Option<u64>, end: Option<u64>) -> Step {
        next(
            Time::from_nanos(1000),
            due.map(Time::from_nanos),
            end.map(Time::from_nanos),
            Mode::Prompt(WAKE),
        )
    }

    #[test]
    fn what_is_due_goes_at_once() {
        assert_eq!(step(Some(1000), None), Step::Go);
        assert_eq!(step(Some(900), Some(2000)), Step::Go);
    }

    #[test]
    fn the_last_moment_before_a_departure_is_not_slept_through() {
        assert_eq!(step(Some(1020), None), Step::Watch);
        assert_eq!(step(Some(1021), None), Step::Sleep(Span::from_nanos(1)));
    }

    #[test]
    fn an_idle_link_sleeps_until_the_end_or_the_next_packet() {
        assert_eq!(step(None, None), Step::Wait);
        assert_eq!(step(None, Some(5000)), Step::Sleep(Span::from_nanos(4000)));
        assert_eq!(
            step(Some(9000), Some(1500)),
            Step::Sleep(Span::from_nanos(500))
        );
    }

    #[test]
    fn the_end_comes_before_all_else() {
        assert_eq!(step(Some(900), Some(1000)), Step::End);
    }

    #[test]
    fn the_margin_settles_where_nine_in_ten_wakes_are_in_time() {
        let mut margin = Margin::default();
        for wake in 0..10_000u64 {
            // Evenly from 0 to 99 us late, in an order without a trend.
            margin.learn(Span::from_nanos(wake * 37 % 100 * 1000));
        }
        let micros = margin.span().as_nanos() / 1000;
        assert!((80..=99).contains(&micros), "{micros} us");
    }

    #[test]
    fn the_margin_stays_in_its_bounds() {
        let mut margin = Margin::default();
        (0..10_000).for_each(|_| margin.learn(Span::from_millis(10)));
        assert_eq!(margin.span(), Span::from_nanos(Margin::MOST));
        (0..10_000).for_each(|_| margin.learn(Span::ZERO));
        assert_eq!(margin.span(), Span::from_nanos(Margin::LEAST));
    }

    #[test]
    fn under_load_what_is_not_due_waits_for_its_batch() {
        let step = |due| {
            next(
                Time::from_nanos(1000),
                Some(Time::from_nanos(due)),
                None,
                Mode::Batches,
            )
        };
        assert_eq!(step(1000), Step::Go);
        assert_eq!(step(1001), Step::Rest(BATCH));
    }

    #[test]
    fn a_loop_without_sleep_goes_over_to_batches_until_there_is_time_again() {
        let margin = Span::from_nanos(100_000);
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut load = Load::new(at(0), Span::ZERO);
        assert!(!load.wants(at(4)) && load.wants(at(5)));
        assert_eq!(load.mode(margin), Mode::Prompt(margin));
        load.learn(at(5), Span::from_millis(5));
        assert_eq!(load.mode(margin), Mode::Batches);
        load.learn(at(15), Span::from_millis(10));
        assert_eq!(load.mode(margin), Mode::Batches, "half is not low");
        load.learn(at(25), Span::from_millis(13));
        assert_eq!(load.mode(margin), Mode::Prompt(margin));
    }

    #[test]
    fn the_busiest_second_is_remembered_until_it_is_told() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut busiest = BusiestSecond::new(at(0), Span::ZERO);
        busiest.learn(at(500), Span::from_millis(500));
        busiest.learn(at(1000), Span::from_millis(900));
        busiest.learn(at(2000), Span::from_millis(1000));
        assert!((busiest.take() - 0.9).abs() < 1e-9);
        assert!(busiest.take().abs() < 1e-9);
    }
}

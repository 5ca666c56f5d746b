//! What to do next, without a clock.

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
    /// Sleep until a packet comes in.
    Wait,
    /// The run is over.
    End,
}

/// Decides: `due` is when the next packet leaves the model, `end` when the run is
/// over, `wake` how long before a departure the loop gets up.
pub(super) fn next(now: Time, due: Option<Time>, end: Option<Time>, wake: Span) -> Step {
    if end.is_some_and(|end| end <= now) {
        return Step::End;
    }
    let rise = match due {
        Some(due) if due <= now => return Step::Go,
        Some(due) if due.since(now) <= wake => return Step::Watch,
        Some(due) => Some(Span::from_nanos(
            due.since(now).as_nanos() - wake.as_nanos(),
        )),
        None => None,
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    const WAKE: Span = Span::from_nanos(20);

    fn step(due: Option<u64>, end: Option<u64>) -> Step {
        next(
            Time::from_nanos(1000),
            due.map(Time::from_nanos),
            end.map(Time::from_nanos),
            WAKE,
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
}

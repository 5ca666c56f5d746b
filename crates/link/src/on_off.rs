//! An on-off process: the periods in which a source sends, exact or drawn.

use bentpipe_units::{Span, Time, truncated};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::spec::OnOff;

/// The times of sending, one after the other. Moments asked for must not decrease.
#[derive(Debug)]
pub(crate) struct OnOffPeriods {
    times: OnOff,
    /// The period of sending in force or to come, up to its end; it never ends without
    /// pauses.
    begins: Time,
    ends: Option<Time>,
    random: ChaCha8Rng,
}

impl OnOffPeriods {
    /// `random` draws the lengths, where they are exponential.
    pub fn new(times: OnOff, random: ChaCha8Rng) -> Self {
        let begins = Time::ZERO + times.from;
        let mut periods = Self {
            times,
            begins,
            ends: None,
            random,
        };
        periods.ends = times.pauses.map(|(on, _)| begins + periods.length(on));
        periods
    }

    /// The first moment from `at` on in a time of sending; `None` after the last.
    pub fn next(&mut self, at: Time) -> Option<Time> {
        while self.ends.is_some_and(|ends| at >= ends) {
            self.advance(at)?;
        }
        let next = at.max(self.begins);
        let over = self
            .times
            .until
            .is_some_and(|until| next >= Time::ZERO + until);
        (!over && next.as_nanos() < u64::MAX).then_some(next)
    }

    /// Goes on by one period, or by all whole ones that are over by `at` where all are
    /// alike. `None`: time itself is over.
    fn advance(&mut self, at: Time) -> Option<()> {
        let ends = self.ends.filter(|ends| ends.as_nanos() < u64::MAX)?;
        let (on, off) = self.times.pauses?;
        let begins = if self.times.exponential {
            ends + self.length(off)
        } else {
            let period = (on + off).as_nanos().max(1);
            let periods = at.since(ends).as_nanos() / period + 1;
            self.begins + Span::from_nanos(periods.saturating_mul(period))
        };
        self.begins = begins;
        self.ends = Some(begins + self.length(on));
        Some(())
    }

    /// A time of `mean`, at least a nanosecond, so that time goes on.
    fn length(&mut self, mean: Span) -> Span {
        if !self.times.exponential {
            return mean;
        }
        let unit: f64 = self.random.random();
        let nanos = truncated(-(1.0 - unit).ln() * mean.as_nanos() as f64);
        Span::from_nanos(nanos.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::{OnOff, OnOffPeriods, Span, Time};
    use crate::random::{self, Stage};

    fn periods(exponential: bool, until: Option<Span>) -> OnOffPeriods {
        let times = OnOff {
            from: Span::from_millis(5),
            until,
            pauses: Some((Span::from_millis(20), Span::from_millis(30))),
            exponential,
        };
        OnOffPeriods::new(times, random::stream(1, Stage::Cross))
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn periods_and_pauses_alternate_from_the_beginning_to_the_end() {
        let mut periods = periods(false, Some(Span::from_millis(1_000)));
        for (at, next) in [
            (0, 5),
            (5, 5),
            (24, 24),
            (25, 55),
            (74, 74),
            (76, 105),
            (710, 710),
        ] {
            assert_eq!(periods.next(ms(at)), Some(ms(next)), "{at} ms");
        }
        assert_eq!(periods.next(ms(980)), None);
        assert_eq!(periods.next(Time::from_nanos(u64::MAX)), None);
    }

    #[test]
    fn exponential_periods_take_their_share_however_they_are_asked_for() {
        let (mut often, mut seldom) = (periods(true, None), periods(true, None));
        let mut active = 0;
        for at in 0..100_000 {
            let next = often.next(ms(at));
            active += u32::from(next == Some(ms(at)));
            if at % 977 == 0 {
                assert_eq!(seldom.next(ms(at)), next, "{at} ms");
            }
        }
        // 20 ms of every 50: 40 %, of 2,000 periods.
        assert!((38_000..42_000).contains(&active), "{active}");
    }
}

//! When somebody else sends: always, or in turns with pauses.

use bentpipe_units::{Span, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::scenario::Turns;

/// The times of sending, one after the other. Moments asked for must not decrease.
#[derive(Debug)]
pub(crate) struct Activity {
    turns: Turns,
    /// The turn of sending in force or to come, up to its end; it never ends without
    /// pauses.
    begins: Time,
    ends: Option<Time>,
    random: ChaCha8Rng,
}

impl Activity {
    /// `random` draws the lengths, where they are exponential.
    pub fn new(turns: Turns, random: ChaCha8Rng) -> Self {
        let begins = Time::ZERO + turns.from;
        let mut activity = Self {
            turns,
            begins,
            ends: None,
            random,
        };
        activity.ends = turns.pauses.map(|(on, _)| begins + activity.length(on));
        activity
    }

    /// The first moment from `at` on in a time of sending; `None` after the last.
    pub fn next(&mut self, at: Time) -> Option<Time> {
        while self.ends.is_some_and(|ends| at >= ends) {
            self.turn(at)?;
        }
        let next = at.max(self.begins);
        let over = self
            .turns
            .until
            .is_some_and(|until| next >= Time::ZERO + until);
        (!over && next.as_nanos() < u64::MAX).then_some(next)
    }

    /// Goes on by one turn, or by all whole ones that are over by `at` where all are
    /// alike. `None`: time itself is over.
    fn turn(&mut self, at: Time) -> Option<()> {
        let ends = self.ends.filter(|ends| ends.as_nanos() < u64::MAX)?;
        let (on, off) = self.turns.pauses?;
        let begins = if self.turns.exponential {
            ends + self.length(off)
        } else {
            let period = (on + off).as_nanos().max(1);
            let turns = at.since(ends).as_nanos() / period + 1;
            self.begins + Span::from_nanos(turns.saturating_mul(period))
        };
        self.begins = begins;
        self.ends = Some(begins + self.length(on));
        Some(())
    }

    /// A time of `mean`, at least a nanosecond, so that time goes on.
    fn length(&mut self, mean: Span) -> Span {
        if !self.turns.exponential {
            return mean;
        }
        let unit: f64 = self.random.random();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the logarithm of 1 - unit is not positive and not below -37"
        )]
        let nanos = (-(1.0 - unit).ln() * mean.as_nanos() as f64) as u64;
        Span::from_nanos(nanos.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::{Activity, Span, Time, Turns};
    use crate::random::{self, Stage};

    fn activity(exponential: bool, until: Option<Span>) -> Activity {
        let turns = Turns {
            from: Span::from_millis(5),
            until,
            pauses: Some((Span::from_millis(20), Span::from_millis(30))),
            exponential,
        };
        Activity::new(turns, random::stream(1, Stage::Cross))
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn turns_and_pauses_alternate_from_the_beginning_to_the_end() {
        let mut activity = activity(false, Some(Span::from_millis(1_000)));
        for (at, next) in [
            (0, 5),
            (5, 5),
            (24, 24),
            (25, 55),
            (74, 74),
            (76, 105),
            (710, 710),
        ] {
            assert_eq!(activity.next(ms(at)), Some(ms(next)), "{at} ms");
        }
        assert_eq!(activity.next(ms(980)), None);
        assert_eq!(activity.next(Time::from_nanos(u64::MAX)), None);
    }

    #[test]
    fn exponential_turns_take_their_share_however_they_are_asked_for() {
        let (mut often, mut seldom) = (activity(true, None), activity(true, None));
        let mut active = 0;
        for at in 0..100_000 {
            let next = often.next(ms(at));
            active += u32::from(next == Some(ms(at)));
            if at % 977 == 0 {
                assert_eq!(seldom.next(ms(at)), next, "{at} ms");
            }
        }
        // 20 ms of every 50: 40 %, of 2,000 turns.
        assert!((38_000..42_000).contains(&active), "{active}");
    }
}

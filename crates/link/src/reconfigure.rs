//! A low constellation changes satellites at fixed moments, Starlink every 15 s:
//! another delay, a gap, and losses while the new path settles.

use bentpipe_units::{Span, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::random::{self, Stage};
use crate::scenario::Reconfigure;

/// What holds at each moment. The draws belong to the change's number, so any
/// moment can be asked for in any order.
#[derive(Debug)]
pub(crate) struct Reconfiguration {
    spec: Reconfigure,
    random: ChaCha8Rng,
    /// The change whose delay was drawn last, and that delay.
    drawn: Option<(u64, Span)>,
}

impl Reconfiguration {
    pub fn new(spec: Reconfigure, seed: u64) -> Self {
        Self {
            spec,
            random: random::stream(seed, Stage::Reconfiguration),
            drawn: None,
        }
    }

    /// How many changes there were until `at`, and how long the last one is past.
    fn last(&self, at: Time) -> Option<(u64, Span)> {
        let since = at.as_nanos().checked_sub(self.spec.first.as_nanos())?;
        let every = self.spec.every.as_nanos();
        Some((since / every, Span::from_nanos(since % every)))
    }

    /// When the gap that `at` lies in is over.
    pub fn gap_over(&self, at: Time) -> Option<Time> {
        let (_, past) = self.last(at)?;
        (past < self.spec.gap)
            .then(|| at + Span::from_nanos(self.spec.gap.as_nanos() - past.as_nanos()))
    }

    /// The chance of a loss at `at`.
    pub fn loss(&self, at: Time) -> f64 {
        match self.last(at) {
            Some((_, past)) if past >= self.spec.gap && past < self.spec.gap + self.spec.burst => {
                self.spec.loss.as_f64()
            }
            _ => 0.0,
        }
    }

    /// What the satellite of `at` adds to the delay.
    pub fn extra_delay(&mut self, at: Time) -> Span {
        let change = self.last(at).map_or(0, |(number, _)| number + 1);
        if let Some((drawn, delay)) = self.drawn
            && drawn == change
        {
            return delay;
        }
        // Two 32-bit words for each change, read where they lie in the stream.
        self.random.set_word_pos(u128::from(change) * 2);
        let delay = Span::from_nanos(self.random.random_range(0..=self.spec.step.as_nanos()));
        self.drawn = Some((change, delay));
        delay
    }
}

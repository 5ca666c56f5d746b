//! Chances that are drawn for one packet after the other.

use bentpipe_units::Probability;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::random::{self, Stage};
use crate::spec::Bounded;

/// Independent draws, of which only so many in a row may come true.
#[derive(Debug)]
pub(crate) struct Chance {
    chance: f64,
    max_burst: u32,
    in_a_row: u32,
    random: ChaCha8Rng,
}

impl Chance {
    /// Independent draws without a bound.
    pub fn new(chance: Probability, seed: u64, stage: Stage) -> Self {
        let bounded = Bounded {
            chance,
            max_burst: u32::MAX,
        };
        Self::bounded(bounded, seed, stage)
    }

    /// After `max_burst` in a row the next one is spared without a draw.
    pub fn bounded(spec: Bounded, seed: u64, stage: Stage) -> Self {
        Self {
            chance: spec.chance.as_f64(),
            max_burst: spec.max_burst,
            in_a_row: 0,
            random: random::stream(seed, stage),
        }
    }

    /// Whether it comes true for the next one.
    pub fn happens(&mut self) -> bool {
        let happens = self.in_a_row < self.max_burst
            && self.chance > 0.0
            && self.random.random::<f64>() < self.chance;
        self.in_a_row = if happens {
            self.in_a_row.saturating_add(1)
        } else {
            0
        };
        happens
    }

    /// Any number, from the same stream.
    pub fn number(&mut self) -> u64 {
        self.random.random()
    }
}

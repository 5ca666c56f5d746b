//! Delay variation.

use bentpipe_units::{Span, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::random::{self, Stage};
use crate::spec;

/// What is added to the delay. A draw that holds for a while belongs to its number,
/// so any moment can be asked for in any order.
#[derive(Debug)]
pub(crate) struct Jitter {
    spec: spec::Jitter,
    random: ChaCha8Rng,
    /// The draw in force, by number, and what it gave.
    drawn: Option<(u64, Span)>,
}

impl Jitter {
    pub fn new(spec: spec::Jitter, seed: u64) -> Self {
        Self {
            spec,
            random: random::stream(seed, Stage::Jitter),
            drawn: None,
        }
    }

    /// For a packet that left at `left`.
    pub fn extra_delay(&mut self, left: Time) -> Span {
        let Some(every) = self.spec.every else {
            return self.draw();
        };
        let number = left.as_nanos() / every.as_nanos().max(1);
        if let Some((drawn, delay)) = self.drawn
            && drawn == number
        {
            return delay;
        }
        // Two 32-bit words for each draw, read where they lie in the stream.
        self.random.set_word_pos(u128::from(number) * 2);
        let delay = self.draw();
        self.drawn = Some((number, delay));
        delay
    }

    fn draw(&mut self) -> Span {
        Span::from_nanos(self.random.random_range(0..=self.spec.up_to.as_nanos()))
    }
}

//! The delay that each satellite of a low constellation adds.

use bentpipe_units::{Span, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::random::{self, Stage};
use crate::spec::Reconfigure;

/// Another delay after each change of satellite, the same for both directions of a link, which
/// one satellite serves. The draws belong to the change's number,
/// so any moment can be asked for in any order.
#[derive(Debug)]
pub(crate) struct ReconfigurationDelay {
    spec: Reconfigure,
    random: ChaCha8Rng,
    /// The change whose delay was drawn last, and that delay.
    drawn: Option<(u64, Span)>,
}

impl ReconfigurationDelay {
    /// `None` where every satellite is as far away.
    pub fn new(spec: Reconfigure, seed: u64) -> Option<Self> {
        (spec.step > Span::ZERO).then(|| Self {
            spec,
            random: random::stream(seed, Stage::Reconfiguration),
            drawn: None,
        })
    }

    /// What the satellite of `at` adds to the delay.
    pub fn extra_delay(&mut self, at: Time) -> Span {
        let change = self.spec.last(at).map_or(0, |(number, _)| number + 1);
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

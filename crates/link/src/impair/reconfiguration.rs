//! Losses while the path over another satellite settles.

use bentpipe_units::{Probability, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::random::{self, Stage};
use crate::spec::Reconfigure;

/// Losses for a while after each change of satellite.
#[derive(Debug)]
pub(crate) struct SettlingLosses {
    spec: Reconfigure,
    random: ChaCha8Rng,
}

impl SettlingLosses {
    /// `None` where a change costs no packets.
    pub fn new(spec: Reconfigure, seed: u64) -> Option<Self> {
        (spec.loss > Probability::ZERO).then(|| Self {
            spec,
            random: random::stream(seed, Stage::ReconfigurationLoss),
        })
    }

    /// Whether a packet that leaves at `left` is lost.
    pub fn loses(&mut self, left: Time) -> bool {
        let settling = self.spec.last(left).is_some_and(|(_, past)| {
            past >= self.spec.gap && past < self.spec.gap + self.spec.burst
        });
        settling && self.random.random::<f64>() < self.spec.loss.as_f64()
    }
}

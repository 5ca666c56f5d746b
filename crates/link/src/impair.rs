//! What the air does to a packet: independent loss.

use bentpipe_units::Probability;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Loses each packet with the same chance, independent of all others.
#[derive(Debug)]
pub struct Bernoulli {
    loss: f64,
    random: ChaCha8Rng,
}

impl Bernoulli {
    /// Losses that are the same for the same `seed`.
    pub fn new(loss: Probability, seed: u64) -> Self {
        Self {
            loss: loss.as_f64(),
            random: ChaCha8Rng::seed_from_u64(seed),
        }
    }

    /// Whether the next packet is lost.
    pub fn loses(&mut self) -> bool {
        self.loss > 0.0 && self.random.random::<f64>() < self.loss
    }
}

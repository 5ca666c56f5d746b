//! Random draws: one stream for each stage, all from the same seed.
//!
//! A stage that is added or draws more often does not change another's draws.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The stages that draw.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stage {
    Loss = 1,
    Corruption = 2,
    Duplication = 3,
    Reordering = 4,
    Reconfiguration = 5,
    Management = 6,
    Polls = 7,
    Access = 8,
    ReconfigurationLoss = 9,
    /// The first of the cross-traffic sources; each has its own.
    Cross = 1 << 16,
}

pub(crate) fn stream(seed: u64, stage: Stage) -> ChaCha8Rng {
    numbered(seed, stage, 0)
}

pub(crate) fn numbered(seed: u64, stage: Stage, number: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stage as u64 + number);
    random
}

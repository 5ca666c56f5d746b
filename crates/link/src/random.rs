//! Random draws: a seed for each direction of a run's links, and of each seed one
//! stream for each stage.
//!
//! A stage that is added or draws more often does not change another's draws.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// The seeds of a link's two directions.
///
/// Whoever runs links takes them from here, so that the emulator and the simulator
/// lose the same packets in the same run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeds {
    /// Gateway to terminal.
    pub forward: Seed,
    /// Terminal to gateway.
    pub r#return: Seed,
}

/// What one direction draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed {
    /// For itself.
    pub(crate) own: u64,
    /// Together with the other direction of its link: what belongs to the satellite.
    pub(crate) shared: u64,
}

/// A direction by itself, without another one.
impl From<u64> for Seed {
    fn from(own: u64) -> Self {
        Self { own, shared: own }
    }
}

impl Seeds {
    /// Of the satellite link `number`, counted from 0, in a run with the seed `run`.
    pub fn of_link(run: u64, number: u32) -> Self {
        Self::numbered(run, u64::from(number))
    }

    /// Of the ground hop behind the gateway of link `number`.
    pub fn of_ground(run: u64, number: u32) -> Self {
        Self::numbered(run, (1 << 32) + u64::from(number))
    }

    fn numbered(run: u64, link: u64) -> Self {
        let seed = |number: u64| run ^ number.wrapping_mul(GOLDEN);
        let shared = seed(2 * link + 1);
        let direction = |own| Seed { own, shared };
        Self {
            forward: direction(shared),
            r#return: direction(seed(2 * link + 2)),
        }
    }
}

/// Spreads numbers over 64 bits: 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The seed of the link that takes over from one with `seed`.
pub(crate) fn after_switch(seed: Seed) -> Seed {
    Seed {
        own: mixed(seed.own),
        shared: mixed(seed.shared),
    }
}

fn mixed(seed: u64) -> u64 {
    // Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators": SplitMix64.
    let mut mixed = seed.wrapping_add(GOLDEN);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

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
    Jitter = 10,
    /// The first of the cross-traffic sources; each has its own.
    Cross = 1 << 16,
    /// The first of the contending terminals on a carrier; each has its own.
    ContendingTerminals = 1 << 17,
}

pub(crate) fn stream(seed: u64, stage: Stage) -> ChaCha8Rng {
    numbered(seed, stage, 0)
}

pub(crate) fn numbered(seed: u64, stage: Stage, number: u64) -> ChaCha8Rng {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(stage as u64 + number);
    random
}

#[cfg(test)]
mod tests {
    use super::{Seeds, after_switch};

    #[test]
    fn no_two_directions_of_a_run_share_a_seed() {
        for run in [0, 1, u64::MAX] {
            let links = (0..100)
                .flat_map(|number| [Seeds::of_link(run, number), Seeds::of_ground(run, number)]);
            assert!(
                links
                    .clone()
                    .all(|link| link.forward.shared == link.r#return.shared)
            );
            let mut seeds: Vec<_> = links
                .flat_map(|seeds| [seeds.forward, seeds.r#return])
                .flat_map(|seed| [seed, after_switch(seed), after_switch(after_switch(seed))])
                .map(|seed| seed.own)
                .collect();
            let all = seeds.len();
            seeds.sort_unstable();
            seeds.dedup();
            assert_eq!(seeds.len(), all);
        }
    }
}

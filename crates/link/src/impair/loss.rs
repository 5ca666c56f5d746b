//! Losses: independent, in bounded bursts, in two states, in step, or as recorded.

use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::chance::Chance;
use crate::random::{self, Stage};
use crate::spec::{AtEnd, GilbertElliott, LossSpec, LossTrace, Periodic};

/// Decides about one packet or frame after the other.
#[derive(Debug)]
pub struct Losses(Model);

#[derive(Debug)]
enum Model {
    Chance(Chance),
    Fragmented {
        chance: Chance,
        fragments: u32,
    },
    GilbertElliott {
        spec: GilbertElliott,
        bad: bool,
        random: ChaCha8Rng,
    },
    Periodic {
        spec: Periodic,
        number: u64,
    },
    Trace {
        spec: Arc<LossTrace>,
        number: usize,
    },
}

impl Losses {
    /// Losses that are the same for the same `seed`.
    pub fn new(spec: &LossSpec, seed: u64) -> Self {
        Self(match spec {
            LossSpec::Bernoulli(chance) => Model::Chance(Chance::new(*chance, seed, Stage::Loss)),
            LossSpec::Bounded(spec) => Model::Chance(Chance::bounded(*spec, seed, Stage::Loss)),
            LossSpec::Fragmented(spec) => Model::Fragmented {
                chance: Chance::new(spec.chance, seed, Stage::Loss),
                fragments: spec.fragments,
            },
            LossSpec::GilbertElliott(spec) => {
                let mut random = random::stream(seed, Stage::Loss);
                // It begins as it goes on: in the bad state as often as it is bad.
                let (p, r) = (spec.to_bad.as_f64(), spec.to_good.as_f64());
                let bad = random.random::<f64>() * (p + r) < p;
                Model::GilbertElliott {
                    spec: *spec,
                    bad,
                    random,
                }
            }
            LossSpec::Periodic(spec) => Model::Periodic {
                spec: *spec,
                number: 0,
            },
            LossSpec::Trace(spec) => Model::Trace {
                spec: Arc::clone(spec),
                number: 0,
            },
        })
    }

    /// Whether the next one is lost.
    pub fn loses(&mut self) -> bool {
        match &mut self.0 {
            Model::Chance(chance) => chance.happens(),
            // Each is drawn, as each is sent: one does not know of the other.
            Model::Fragmented { chance, fragments } => {
                (0..*fragments).fold(false, |lost, _| chance.happens() || lost)
            }
            Model::GilbertElliott { spec, bad, random } => {
                let loss = if *bad { spec.loss_bad } else { spec.loss_good };
                let lost = random.random::<f64>() < loss.as_f64();
                let change = if *bad { spec.to_good } else { spec.to_bad };
                if random.random::<f64>() < change.as_f64() {
                    *bad = !*bad;
                }
                lost
            }
            Model::Periodic { spec, number } => {
                let place = *number;
                *number += 1;
                place
                    .checked_sub(u64::from(spec.first))
                    .is_some_and(|place| {
                        place % u64::from(spec.every.max(1)) < u64::from(spec.lose)
                    })
            }
            Model::Trace { spec, number } => {
                let fates = spec.fates.as_bytes();
                let place = *number;
                *number = place.saturating_add(1);
                match (fates.get(place), spec.at_end) {
                    (Some(fate), _) => *fate == b'x',
                    (None, AtEnd::Loop) => fates[place % fates.len()] == b'x',
                    (None, AtEnd::Hold) => fates.last() == Some(&b'x'),
                    (None, AtEnd::End) => true,
                }
            }
        }
    }
}

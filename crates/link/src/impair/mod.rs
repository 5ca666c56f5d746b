//! What the air does to a packet, one effect per file.

pub mod outage;
pub mod chance;
pub mod loss;

use bentpipe_units::{Probability, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::random::{self, Stage};
use crate::reconfigure::Reconfiguration;
use crate::scenario::{CorruptSpec, DirectionSpec, LossPer, LossSpec, OutagePackets};
use crate::{Cause, Packet};
use chance::Chance;
use loss::Losses;
use outage::Outages;

/// All impairments of one direction.
#[derive(Debug)]
pub struct Impairments {
    /// The link is down for good from then on.
    ends: Option<Time>,
    /// Somebody switched it off.
    pub(crate) down: bool,
    outages: Outages,
    reconfiguration: Option<(Reconfiguration, ChaCha8Rng)>,
    losses: Losses,
    per_frame: bool,
    pub(crate) corruption: Chance,
    pub(crate) duplication: Chance,
}

impl Impairments {
    pub(crate) fn new(spec: &DirectionSpec, seed: u64) -> Self {
        Self {
            ends: spec.ends(),
            down: false,
            outages: Outages::new(&spec.outages, OutagePackets::Lost),
            reconfiguration: spec
                .reconfigure
                .filter(|reconfigure| reconfigure.loss > Probability::ZERO)
                .map(|reconfigure| {
                    // The losses have a stream apart from the delays'.
                    let random = random::stream(seed, Stage::ReconfigurationLoss);
                    (Reconfiguration::new(reconfigure, seed), random)
                }),
            losses: Losses::new(&spec.loss, seed),
            per_frame: matches!(spec.loss_per, Some(LossPer::Bbframe | LossPer::Burst)),
            corruption: match spec.corrupt {
                CorruptSpec::Independent(chance) => Chance::new(chance, seed, Stage::Corruption),
                CorruptSpec::Bounded(spec) => Chance::bounded(spec, seed, Stage::Corruption),
            },
            duplication: Chance::new(spec.duplicate, seed, Stage::Duplication),
        }
    }

    /// Other losses from now on.
    pub(crate) fn set_loss(&mut self, spec: &LossSpec, seed: u64) {
        self.losses = Losses::new(spec, seed);
    }

    /// What befalls a packet whose last bit leaves at `left`.
    pub(crate) fn packet_fate(&mut self, left: Time) -> Option<Cause> {
        if self.down
            || self.ends.is_some_and(|ends| left >= ends)
            || self.outages.over(left).is_some()
        {
            return Some(Cause::Outage);
        }
        if let Some((reconfiguration, random)) = &mut self.reconfiguration {
            let loss = reconfiguration.loss(left);
            if loss > 0.0 && random.random::<f64>() < loss {
                return Some(Cause::Reconfiguration);
            }
        }
        (!self.per_frame && self.losses.loses()).then_some(Cause::Loss)
    }

    /// What befalls a frame whose last symbol leaves at `left`.
    pub(crate) fn frame_fate(&mut self, _left: Time) -> Option<Cause> {
        (self.per_frame && self.losses.loses()).then_some(Cause::Loss)
    }

    /// Damages `packet` if it is its turn.
    pub(crate) fn damage<P: Packet>(&mut self, packet: &mut P) -> Damage {
        if !self.corruption.happens() {
            Damage::None
        } else if packet.corrupt(self.corruption.number()) {
            Damage::Done
        } else {
            Damage::Impossible
        }
    }
}

/// What became of a packet that was to be damaged.
pub(crate) enum Damage {
    None,
    Done,
    Impossible,
}

//! Damage: single bits turned over.

use super::chance::Chance;
use crate::packet::Packet;
use crate::random::Stage;
use crate::spec::CorruptSpec;

/// Decides which packets come out damaged.
#[derive(Debug)]
pub(crate) struct Corruption(Chance);

/// What became of a packet that could be damaged.
pub(crate) enum Damage {
    /// It was not its turn.
    None,
    /// It is damaged.
    Done,
    /// It cannot come out damaged.
    Impossible,
}

impl Corruption {
    pub fn new(spec: CorruptSpec, seed: u64) -> Self {
        Self(match spec {
            CorruptSpec::Independent(chance) => Chance::new(chance, seed, Stage::Corruption),
            CorruptSpec::Bounded(spec) => Chance::bounded(spec, seed, Stage::Corruption),
        })
    }

    /// Damages `packet` if it is its turn.
    pub fn damage<P: Packet>(&mut self, packet: &mut P) -> Damage {
        if !self.0.happens() {
            Damage::None
        } else if packet.corrupt(self.0.number()) {
            Damage::Done
        } else {
            Damage::Impossible
        }
    }
}

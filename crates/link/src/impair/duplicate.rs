//! Duplication: second copies.

use bentpipe_units::Probability;

use super::chance::Chance;
use crate::packet::Packet;
use crate::random::Stage;

/// Decides which packets come out twice.
#[derive(Debug)]
pub(crate) struct Duplication(Chance);

impl Duplication {
    pub fn new(chance: Probability, seed: u64) -> Self {
        Self(Chance::new(chance, seed, Stage::Duplication))
    }

    /// The second copy, if it is the packet's turn and it can be copied.
    pub fn copy<P: Packet>(&mut self, packet: &P) -> Option<P> {
        self.0.happens().then(|| packet.duplicate()).flatten()
    }
}

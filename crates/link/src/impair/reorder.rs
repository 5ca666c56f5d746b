//! Reordering: packets that arrive late, so that others overtake them.

use bentpipe_units::Span;

use super::chance::Chance;
use crate::random::Stage;
use crate::spec::Reorder;

/// Decides which packets are overtaken.
#[derive(Debug)]
pub(crate) struct Reordering {
    chance: Chance,
    by: Span,
}

impl Reordering {
    pub fn new(spec: Reorder, seed: u64) -> Self {
        Self {
            chance: Chance::new(spec.chance, seed, Stage::Reordering),
            by: spec.by,
        }
    }

    /// How much later the next packet arrives, if it is its turn.
    pub fn lateness(&mut self) -> Option<Span> {
        self.chance.happens().then_some(self.by)
    }
}

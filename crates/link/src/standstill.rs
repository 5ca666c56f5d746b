//! Times in which the transmitter stands still and packets wait.

use bentpipe_units::Time;

use crate::impair::outage::Outages;
use crate::reconfigure::Reconfiguration;
use crate::scenario::{DirectionSpec, OutagePackets};

/// Outages that hold packets, and the gaps of a constellation's changes.
#[derive(Debug)]
pub(crate) struct Standstill {
    outages: Outages,
    gaps: Option<Reconfiguration>,
}

impl Standstill {
    pub fn new(spec: &DirectionSpec, seed: u64) -> Self {
        Self {
            outages: Outages::new(&spec.outages, OutagePackets::Wait),
            gaps: spec
                .reconfigure
                .filter(|reconfigure| reconfigure.gap.as_nanos() > 0)
                .map(|reconfigure| Reconfiguration::new(reconfigure, seed)),
        }
    }

    /// The first moment from `at` on at which it may send.
    pub fn clear(&self, at: Time) -> Time {
        if self.gaps.is_none() && self.outages.are_none() {
            return at;
        }
        let mut at = at;
        // Each round passes the end of an outage or gap. Endless chains of them
        // exist (two that fill each other's pauses), so there is an end.
        for _ in 0..1000 {
            let over = self
                .outages
                .over(at)
                .or_else(|| self.gaps.as_ref().and_then(|gaps| gaps.gap_over(at)));
            match over {
                Some(over) => at = over,
                None => return at,
            }
        }
        at
    }
}

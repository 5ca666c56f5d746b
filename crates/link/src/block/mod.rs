//! The gate of the transmitter: what stops it while packets wait, one cause per file.

mod gap;
mod outage;

use bentpipe_units::Time;

use crate::spec::DirectionSpec;
use gap::Gaps;
use outage::WaitingOutages;

/// The gate: closed during outages that hold packets, and in the gaps
/// of a constellation's changes of satellite.
#[derive(Debug)]
pub(crate) struct TransmitterGate {
    outages: WaitingOutages,
    gaps: Option<Gaps>,
}

impl TransmitterGate {
    pub fn new(spec: &DirectionSpec) -> Self {
        Self {
            outages: WaitingOutages::new(&spec.outages),
            gaps: spec.reconfigure.and_then(Gaps::new),
        }
    }

    /// The first moment from `at` on at which the transmitter may send.
    pub fn opens(&self, at: Time) -> Time {
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
                .or_else(|| self.gaps.as_ref().and_then(|gaps| gaps.over(at)));
            match over {
                Some(over) => at = over,
                None => return at,
            }
        }
        at
    }
}

//! Scheduled outages in which the transmitter stops and packets wait.

use bentpipe_units::Time;

use crate::spec::{Outage, OutagePackets};

/// The outages that hold packets.
#[derive(Debug)]
pub(crate) struct WaitingOutages(Vec<Outage>);

impl WaitingOutages {
    pub fn new(all: &[Outage]) -> Self {
        let waiting = |outage: &&Outage| outage.packets == OutagePackets::Wait;
        Self(all.iter().filter(waiting).copied().collect())
    }

    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// When the outage that `at` lies in is over.
    pub fn over(&self, at: Time) -> Option<Time> {
        Outage::over(&self.0, at)
    }
}

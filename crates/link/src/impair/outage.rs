//! Outages in which everything is lost: scheduled, begun by a change, or for good.

use bentpipe_units::Time;

use crate::spec::{DirectionSpec, LinkOutage, Outage, OutagePackets};

/// The times in which nothing comes through.
#[derive(Debug)]
pub(crate) struct LossyOutages {
    scheduled: Vec<Outage>,
    /// The outage that a change began lasts until then.
    until: Time,
    /// The link is down for good from then on.
    ends: Option<Time>,
}

impl LossyOutages {
    pub fn new(spec: &DirectionSpec) -> Self {
        let lost = |outage: &&Outage| outage.packets == OutagePackets::Lost;
        Self {
            scheduled: spec.outages.iter().filter(lost).copied().collect(),
            until: Time::ZERO,
            ends: spec.ends(),
        }
    }

    /// What a change says at `at`.
    pub fn set(&mut self, at: Time, outage: LinkOutage) {
        self.until = match outage {
            LinkOutage::Switched(true) => Time::from_nanos(u64::MAX),
            LinkOutage::Switched(false) => Time::ZERO,
            LinkOutage::For(span) => self.until.max(at + span),
        };
    }

    /// Whether what leaves at `left` is lost.
    pub fn covers(&self, left: Time) -> bool {
        left < self.until
            || self.ends.is_some_and(|ends| left >= ends)
            || Outage::over(&self.scheduled, left).is_some()
    }
}

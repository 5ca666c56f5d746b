//! Outages by schedule.

use bentpipe_units::{Span, Time};

use crate::scenario::{Outage, OutagePackets};

/// The outages of one kind.
#[derive(Debug)]
pub(crate) struct Outages(Vec<Outage>);

impl Outages {
    pub fn new(all: &[Outage], kind: OutagePackets) -> Self {
        Self(
            all.iter()
                .filter(|outage| outage.packets == kind)
                .copied()
                .collect(),
        )
    }

    pub fn are_none(&self) -> bool {
        self.0.is_empty()
    }

    /// When the outage that `at` lies in is over, or `None` outside of all.
    pub fn over(&self, at: Time) -> Option<Time> {
        self.0
            .iter()
            .filter_map(|outage| {
                let since = at.as_nanos().checked_sub(outage.from.as_nanos())?;
                let since = outage.every.map_or(since, |every| since % every.as_nanos());
                let left = outage.r#for.as_nanos().checked_sub(since)?;
                (left > 0).then(|| at + Span::from_nanos(left))
            })
            .max()
    }
}

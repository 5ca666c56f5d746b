//! The impairments of the air, one effect per file, in the order in which a packet meets them.

mod chance;
mod outage;
mod reconfiguration;
mod loss;
mod corrupt;
mod duplicate;
mod reorder;

use bentpipe_units::{Span, Time};

use crate::accounting::Accounting;
use crate::counters::Cause;
use crate::entry::{Entry, Load, Sent};
use crate::packet::Packet;
use crate::spec::{Change, DirectionSpec, LinkOutage, LossPer};
use corrupt::{Corruption, Damage};
use duplicate::Duplication;
use loss::Losses;
use outage::LossyOutages;
use reconfiguration::SettlingLosses;
use reorder::Reordering;

/// All impairments of one direction.
#[derive(Debug)]
pub struct Impairments {
    outages: LossyOutages,
    settling: Option<SettlingLosses>,
    losses: Losses,
    losses_per_frame: bool,
    corruption: Corruption,
    duplication: Duplication,
    reordering: Option<Reordering>,
}

/// A packet that survived.
pub(crate) struct Survivor<P> {
    pub packet: P,
    /// A second copy of it, which comes out first.
    pub copy: Option<P>,
    /// It is overtaken: it arrives so much later.
    pub late: Option<Span>,
}

impl Impairments {
    pub(crate) fn new(spec: &DirectionSpec, seed: u64) -> Self {
        Self {
            outages: LossyOutages::new(spec),
            settling: spec
                .reconfigure
                .and_then(|reconfigure| SettlingLosses::new(reconfigure, seed)),
            losses: Losses::new(&spec.loss, seed),
            losses_per_frame: matches!(spec.loss_per, Some(LossPer::Bbframe | LossPer::Burst)),
            corruption: Corruption::new(spec.corrupt, seed),
            duplication: Duplication::new(spec.duplicate, seed),
            reordering: spec.reorder.map(|reorder| Reordering::new(reorder, seed)),
        }
    }

    /// Others from now on, where the change has any.
    pub(crate) fn change(&mut self, change: &Change, seed: u64) {
        if let Some(loss) = &change.loss {
            self.losses = Losses::new(loss, seed);
        }
        if let Some(corrupt) = change.corrupt {
            self.corruption = Corruption::new(corrupt, seed);
        }
        if let Some(chance) = change.duplicate {
            self.duplication = Duplication::new(chance, seed);
        }
        if let Some(reorder) = change.reorder {
            self.reordering = Some(Reordering::new(reorder, seed));
        }
    }

    /// An outage from `at` on, or the end of one.
    pub(crate) fn set_outage(&mut self, at: Time, outage: LinkOutage) {
        self.outages.set(at, outage);
    }

    /// What befalls a frame whose last symbol leaves.
    pub(crate) fn frame_fate(&mut self) -> Option<Cause> {
        (self.losses_per_frame && self.losses.loses()).then_some(Cause::Loss)
    }

    /// What befalls a packet whose last bit leaves at `left`; `None` where nothing of it
    /// comes out.
    pub(crate) fn apply<P: Packet>(
        &mut self,
        left: Time,
        sent: Sent<P>,
        accounting: &mut Accounting<P>,
    ) -> Option<Survivor<P>> {
        let Sent { entry, fate } = sent;
        if let Some(cause) = fate.or_else(|| self.packet_fate(left)) {
            accounting.drop(left, entry, cause);
            return None;
        }
        let Load::Ours(mut packet) = entry.load else {
            return None;
        };
        let damage = self.corruption.damage(&mut packet);
        if matches!(damage, Damage::Impossible) {
            let load = Load::Ours(packet);
            accounting.drop(left, Entry { load, ..entry }, Cause::Corruption);
            return None;
        }
        let copy = self.duplication.copy(&packet);
        let late = self.reordering.as_mut().and_then(Reordering::lateness);
        let counters = &mut accounting.counters;
        counters.corrupted += u64::from(matches!(damage, Damage::Done));
        if copy.is_some() {
            counters.duplicated += 1;
            counters.duplicated_bytes += u64::from(entry.len);
        }
        counters.reordered += u64::from(late.is_some());
        Some(Survivor { packet, copy, late })
    }

    fn packet_fate(&mut self, left: Time) -> Option<Cause> {
        if self.outages.covers(left) {
            return Some(Cause::Outage);
        }
        if self
            .settling
            .as_mut()
            .is_some_and(|settling| settling.loses(left))
        {
            return Some(Cause::Reconfiguration);
        }
        (!self.losses_per_frame && self.losses.loses()).then_some(Cause::Loss)
    }
}

//! Application of changes to a run's links, between two packets: asked for, or scheduled.

use bentpipe_units::Time;
use ipnet::IpNet;

use super::Emulator;
use crate::address;
use crate::link_update::{self, AppliedChange, LinkUpdate, NewAddress, UpdateError};
use crate::schedule::PlannedChange;

impl Emulator {
    /// Updates links, all or none.
    pub(super) fn update(
        &mut self,
        now: Time,
        updates: Vec<LinkUpdate>,
    ) -> Result<Vec<AppliedChange>, UpdateError> {
        if self.changes.len() + updates.len() > link_update::MOST {
            return Err(UpdateError::TooMany);
        }
        // What can fail comes first; what it has done is undone if the rest fails.
        let mut readdressed: Vec<(usize, Vec<IpNet>)> = Vec::new();
        for update in &updates {
            let Some(new) = &update.address else { continue };
            let before = self.links[update.link].terminal.addresses().to_vec();
            if let Err(error) = self.readdress(update.link, new) {
                for (link, addresses) in readdressed {
                    let terminal = &mut self.links[link].terminal;
                    if let Err(error) = terminal.replace_addresses(&addresses) {
                        tracing::error!("putting an address back: {error}");
                    }
                }
                return Err(error);
            }
            readdressed.push((update.link, before));
        }
        let applied: Vec<_> = updates
            .into_iter()
            .map(|update| self.apply_change(now, update))
            .collect();
        self.changes.extend(applied.iter().cloned());
        Ok(applied)
    }

    /// Applies what cannot fail of an update.
    fn apply_change(&mut self, now: Time, update: LinkUpdate) -> AppliedChange {
        let directions = update.directions();
        let link = &mut self.links[update.link];
        link.forward.model.apply(now, &update.change.forward);
        link.r#return.model.apply(now, &update.change.r#return);
        AppliedChange {
            at_s: now.since(Time::ZERO).as_secs_f64(),
            link: link.name.clone(),
            direction: directions,
            what: update.what,
            planned: false,
            addresses: match update.address {
                Some(_) => link.terminal.addresses().to_vec(),
                None => Vec::new(),
            },
        }
    }

    /// Gives a link's terminal other addresses.
    fn readdress(&mut self, link: usize, new: &NewAddress) -> Result<(), UpdateError> {
        let link = &mut self.links[link];
        let new = match new {
            NewAddress::These(new) => new.clone(),
            NewAddress::Next => {
                address::next_addresses(link.terminal.addresses(), link.gateway.addresses())?
            }
        };
        Ok(link.terminal.replace_addresses(&new)?)
    }

    /// Does what is planned for this moment.
    pub(super) fn apply_planned(&mut self, now: Time) {
        while let Some((at, planned)) = self.schedule.take(now) {
            let applied = self.follow_plan(now, at, planned);
            self.changes.push(applied);
        }
    }

    /// Does what the link model does not do of a planned change, and tells of all of it.
    fn follow_plan(&mut self, now: Time, at: Time, planned: PlannedChange) -> AppliedChange {
        let link = planned.link;
        let mut applied = AppliedChange {
            at_s: at.since(Time::ZERO).as_secs_f64(),
            link: self.links[link].name.clone(),
            direction: planned.directions,
            what: planned.what,
            planned: true,
            addresses: Vec::new(),
        };
        if !planned.new_address {
            return applied;
        }
        match self.readdress(link, &NewAddress::Next) {
            Ok(()) => {
                applied.at_s = now.since(Time::ZERO).as_secs_f64();
                applied.addresses = self.links[link].terminal.addresses().to_vec();
            }
            Err(error) => {
                let doubt = format!(
                    "{}: the scenario's new address could not be given: {error}",
                    applied.link
                );
                tracing::error!("{doubt}");
                self.doubts.push(doubt);
            }
        }
        applied
    }
}

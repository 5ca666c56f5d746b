//! Application of changes to a run's links, between two packets: asked for, or scheduled.

use bentpipe_link::scenario::Change;
use bentpipe_units::Time;
use ipnet::IpNet;

use super::Emulator;
use crate::address;
use crate::direction::{DirectionId, DirectionName};
use crate::link_update::{self, AppliedChange, LinkUpdate, NewAddress, UpdateError};
use crate::schedule::{PlannedChange, Task};

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
        let changes = [
            (DirectionName::Forward, update.forward),
            (DirectionName::Return, update.r#return),
        ];
        for (name, change) in changes {
            let link = update.link;
            let (id, Some(mut change)) = (DirectionId { link, name }, change) else {
                continue;
            };
            if let Some(span) = update.outage_for {
                change.outage = Some(true);
                self.schedule.forget_outage(id);
                self.schedule.add(now + span, Task::EndOutage(id));
            } else if change.outage.is_some() || change.link.is_some() {
                self.schedule.forget_outage(id);
            }
            self.links[link].state_mut(name).model.apply(now, &change);
        }
        let link = &self.links[update.link];
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

    /// Does what was scheduled for this moment.
    pub(super) fn do_tasks(&mut self, now: Time) {
        while let Some((at, task)) = self.schedule.take(now) {
            match task {
                Task::EndOutage(id) => {
                    let change = Change {
                        outage: Some(false),
                        ..Change::default()
                    };
                    let state = self.links[id.link].state_mut(id.name);
                    state.model.apply(now, &change);
                }
                Task::Planned(link, planned) => {
                    let applied = self.apply_planned(now, at, link, planned);
                    self.changes.push(applied);
                }
            }
        }
    }

    /// Does what the link model does not do of a planned change, and tells of all of it.
    fn apply_planned(
        &mut self,
        now: Time,
        at: Time,
        link: usize,
        planned: PlannedChange,
    ) -> AppliedChange {
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

//! Changes of a run's links between two packets: ordered from outside, or planned.

use bentpipe_link::scenario::Change;
use bentpipe_units::Time;
use ipnet::IpNet;

use super::Emulator;
use crate::change::{self, ChangeError, Changed, NewAddress, Order, Planned, Task};
use bentpipe_os::tun::Tun;

impl Emulator {
    /// Changes links as ordered, all or none.
    pub(super) fn change(
        &mut self,
        now: Time,
        orders: Vec<Order>,
    ) -> Result<Vec<Changed>, ChangeError> {
        if self.changes.len() + orders.len() > change::MOST {
            return Err(ChangeError::TooMany);
        }
        // What can fail comes first; what it has done is undone if the rest fails.
        let mut readdressed: Vec<(usize, Vec<IpNet>)> = Vec::new();
        for order in &orders {
            let Some(new) = &order.address else { continue };
            let before = self.near(order.link).addresses().to_vec();
            if let Err(error) = self.readdress(order.link, new) {
                for (link, addresses) in readdressed {
                    if let Err(error) = self.near(link).replace_addresses(&addresses) {
                        tracing::error!("putting an address back: {error}");
                    }
                }
                return Err(error);
            }
            readdressed.push((order.link, before));
        }
        let done: Vec<_> = orders
            .into_iter()
            .map(|order| self.obey(now, order))
            .collect();
        self.changes.extend(done.iter().cloned());
        Ok(done)
    }

    /// Does what cannot fail of an order.
    fn obey(&mut self, now: Time, order: Order) -> Changed {
        let direction = match (&order.forward, &order.r#return) {
            (Some(_), None) => "forward",
            (None, Some(_)) => "return",
            _ => "both",
        };
        for (lane, change) in [order.forward, order.r#return].into_iter().enumerate() {
            let (lane, Some(mut change)) = (2 * order.link + lane, change) else {
                continue;
            };
            if let Some(span) = order.outage_for {
                change.outage = Some(true.into());
                self.agenda.forget_outage(lane);
                self.agenda.add(now + span, Task::Restore(lane));
            } else if change.outage.is_some() || change.link.is_some() {
                self.agenda.forget_outage(lane);
            }
            self.lanes[lane].link.apply(now, &change);
        }
        Changed {
            at_s: now.since(Time::ZERO).as_secs_f64(),
            link: self.names[order.link].clone(),
            direction,
            what: order.what,
            planned: false,
            addresses: match order.address {
                Some(_) => self.near(order.link).addresses().to_vec(),
                None => Vec::new(),
            },
        }
    }

    /// Gives a link's near end other addresses.
    fn readdress(&mut self, link: usize, new: &NewAddress) -> Result<(), ChangeError> {
        let new = match new {
            NewAddress::These(new) => new.clone(),
            NewAddress::Next => {
                let far = self.ports[2 * link].tun.addresses().to_vec();
                change::next_addresses(self.near(link).addresses(), &far)?
            }
        };
        Ok(self.near(link).replace_addresses(&new)?)
    }

    /// The device at a link's near end.
    fn near(&mut self, link: usize) -> &mut Tun {
        &mut self.ports[2 * link + 1].tun
    }

    /// Does what was planned for this moment.
    pub(super) fn do_tasks(&mut self, now: Time) {
        while let Some((at, task)) = self.agenda.take(now) {
            match task {
                Task::Restore(lane) => self.lanes[lane].link.apply(
                    now,
                    &Change {
                        outage: Some(false.into()),
                        ..Change::default()
                    },
                ),
                Task::Planned(link, planned) => {
                    let changed = self.follow(now, at, link, planned);
                    self.changes.push(changed);
                }
            }
        }
    }

    /// Does what the link model does not do of a planned change, and tells of all of it.
    fn follow(&mut self, now: Time, at: Time, link: usize, planned: Planned) -> Changed {
        let Planned {
            direction,
            what,
            new_address,
        } = planned;
        let mut changed = Changed {
            at_s: at.since(Time::ZERO).as_secs_f64(),
            link: self.names[link].clone(),
            direction,
            what,
            planned: true,
            addresses: Vec::new(),
        };
        if !new_address {
            return changed;
        }
        match self.readdress(link, &NewAddress::Next) {
            Ok(()) => {
                changed.at_s = now.since(Time::ZERO).as_secs_f64();
                changed.addresses = self.near(link).addresses().to_vec();
            }
            Err(error) => {
                let doubt = format!(
                    "{}: the scenario's new address could not be given: {error}",
                    self.names[link]
                );
                tracing::error!("{doubt}");
                self.doubts.push(doubt);
            }
        }
        changed
    }
}

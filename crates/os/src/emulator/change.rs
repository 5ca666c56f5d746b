//! What is changed about a link while it runs, now or at a moment to come.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bentpipe_link::scenario::Change;
use bentpipe_units::{Span, Time};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::tun::TunError;

/// What is to change about one link. All of it happens between two packets, or nothing.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// The link's place among the plans.
    pub link: usize,
    /// What changes about the forward direction.
    pub forward: Option<Change>,
    /// What changes about the return direction.
    pub r#return: Option<Change>,
    /// Nothing comes through either changed direction for so long, beginning now.
    pub outage_for: Option<Span>,
    /// The near end's device gets another address.
    pub address: Option<NewAddress>,
    /// What the certificate says of it.
    pub what: String,
}

/// Another address for the device at a link's near end, in place of those that the
/// emulator has given to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewAddress {
    /// In each network the next address that neither end has.
    Next,
    /// These, in place of those of the same families.
    These(Vec<IpNet>),
}

/// A change that was made, as the certificate tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Changed {
    /// When, since the run began.
    pub at_s: f64,
    /// The link's name.
    pub link: String,
    /// "forward", "return" or "both".
    pub direction: &'static str,
    /// What was changed.
    pub what: String,
    /// The addresses that the terminal's device has had since then, if they changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpNet>,
}

impl fmt::Display for Changed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            "both" => "",
            direction => &format!(" {direction}"),
        };
        write!(
            out,
            "{:.3} s: {}{direction}: {}",
            self.at_s, self.link, self.what
        )?;
        for (number, address) in self.addresses.iter().enumerate() {
            let before = if number == 0 {
                ", the terminal is now "
            } else {
                " and "
            };
            write!(out, "{before}{address}")?;
        }
        Ok(())
    }
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The device would not take its new address.
    #[error(transparent)]
    Address(#[from] TunError),
    /// There is no address to be had.
    #[error(transparent)]
    NoAddress(#[from] NoAddress),
    /// The certificate lists every change, and has no room for more.
    #[error("{MOST} changes have been made to this run, which is all that its certificate lists")]
    TooMany,
    /// The run has ended, or has no time to answer.
    #[error("the emulator did not answer within {} s: it is ending, or has no time", PATIENCE.as_secs())]
    Silent,
}

/// Changes that a certificate lists.
pub(super) const MOST: usize = 10_000;
/// How long to wait for the loop.
pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// What is to happen at moments to come, the next one first.
#[derive(Debug, Default)]
pub(super) struct Agenda(Vec<(Time, Task)>);

/// Something that happens at its moment.
#[derive(Debug)]
pub(super) enum Task {
    /// A lane's outage ends.
    Restore(usize),
    /// A link's near end gets its next address.
    Readdress(usize),
}

impl Agenda {
    pub fn add(&mut self, at: Time, task: Task) {
        let place = self.0.partition_point(|(other, _)| *other <= at);
        self.0.insert(place, (at, task));
    }

    /// When the next task is due.
    pub fn next(&self) -> Option<Time> {
        self.0.first().map(|(at, _)| *at)
    }

    /// A task that is due.
    pub fn take(&mut self, now: Time) -> Option<Task> {
        (self.next()? <= now).then(|| self.0.remove(0).1)
    }

    /// Another outage of that lane, or its end, takes the place of the planned end.
    pub fn forget_outage(&mut self, lane: usize) {
        self.0
            .retain(|(_, task)| !matches!(task, Task::Restore(other) if *other == lane));
    }
}

/// Why there is no next address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    /// The emulator gave it none.
    #[error(
        "the emulator has not given the terminal's device an address, so it cannot change it: give one with --terminal-address, like 10.0.0.1/29"
    )]
    None,
    /// Its network is used up.
    #[error(
        "{0} has no neighbour that is free: take a larger network (a /29 has six addresses), or name the new address"
    )]
    Full(IpNet),
}

/// How far to look for a free address.
const NEIGHBOURS: u32 = 64;

/// For each address of `own` the next one of its network that is in neither list.
pub fn next_addresses(own: &[IpNet], other: &[IpNet]) -> Result<Vec<IpNet>, NoAddress> {
    if own.is_empty() {
        return Err(NoAddress::None);
    }
    let mut taken: Vec<_> = own.iter().chain(other).map(IpNet::addr).collect();
    let mut next = Vec::new();
    for address in own {
        let found = (1..=NEIGHBOURS)
            .filter_map(|step| neighbour(*address, step))
            .find(|candidate| !taken.contains(candidate))
            .ok_or(NoAddress::Full(*address))?;
        taken.push(found);
        next.push(
            IpNet::new(found, address.prefix_len()).expect("the length was one of its family"),
        );
    }
    Ok(next)
}

/// The address `step` further on in the network, from its end to its beginning.
fn neighbour(address: IpNet, step: u32) -> Option<IpAddr> {
    let bits = u32::from(address.max_prefix_len() - address.prefix_len());
    let hosts = u128::MAX.checked_shr(128 - bits).unwrap_or(0);
    let number = match address.addr() {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let host = ((number & hosts) + u128::from(step)) & hosts;
    // The first names the network; IPv4's last is everybody (RFC 919).
    if host == 0 || (address.addr().is_ipv4() && host == hosts) {
        return None;
    }
    let number = (number & !hosts) | host;
    Some(match address {
        IpNet::V4(_) => Ipv4Addr::from(u32::try_from(number).ok()?).into(),
        IpNet::V6(_) => Ipv6Addr::from(number).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_next_address_is_free_and_of_the_same_network() {
        let cases: [(&str, &[&str], &str); 5] = [
            ("10.0.0.1/24", &["10.0.0.2/24"], "10.0.0.3/24"),
            ("10.0.0.254/24", &["10.0.0.1/24"], "10.0.0.2/24"),
            ("10.0.0.9/29", &[], "10.0.0.10/29"),
            ("10.255.255.254/8", &[], "10.0.0.1/8"),
            ("fd00::1/64", &["fd00::2/64"], "fd00::3/64"),
        ];
        for (own, other, next) in cases {
            assert_eq!(
                next_addresses(&nets(&[own]), &nets(other)),
                Ok(nets(&[next])),
                "{own}"
            );
        }
    }

    #[test]
    fn a_network_without_a_free_address_is_named() {
        for (own, other) in [
            ("10.0.0.1/30", "10.0.0.2/30"),
            ("10.0.0.1/32", "10.0.0.2/32"),
        ] {
            let error = next_addresses(&nets(&[own]), &nets(&[other])).unwrap_err();
            assert!(error.to_string().starts_with(own), "{error}");
        }
        let none = next_addresses(&[], &nets(&["10.0.0.2/30"])).unwrap_err();
        assert!(none.to_string().contains("--terminal-address"), "{none}");
    }

    #[test]
    fn two_addresses_of_one_network_get_two_others() {
        let next = next_addresses(&nets(&["10.0.0.1/24", "10.0.0.2/24"]), &[]).unwrap();
        assert_eq!(next, nets(&["10.0.0.3/24", "10.0.0.4/24"]));
    }

    #[test]
    fn tasks_come_at_their_moments_and_in_order() {
        let at = Time::from_nanos;
        let mut agenda = Agenda::default();
        agenda.add(at(30), Task::Restore(3));
        agenda.add(at(10), Task::Restore(1));
        agenda.add(at(20), Task::Readdress(1));
        assert_eq!(agenda.next(), Some(at(10)));
        assert!(agenda.take(at(9)).is_none());
        agenda.forget_outage(1);
        assert!(matches!(agenda.take(at(25)), Some(Task::Readdress(1))));
        assert!(agenda.take(at(25)).is_none());
        assert_eq!(agenda.next(), Some(at(30)));
    }
}

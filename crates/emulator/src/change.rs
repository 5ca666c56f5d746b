//! What is changed about a link while it runs, now or at a moment to come.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bentpipe_link::{Change, ScheduledChange};
use bentpipe_units::{Span, Time};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use bentpipe_os::tun::TunError;

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
    /// Whether the scenario planned it; otherwise it was asked for from outside.
    pub planned: bool,
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
        if self.planned {
            out.write_str(" (planned)")?;
        }
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
pub(super) struct Agenda(VecDeque<(Time, Task)>);

/// Something that happens at its moment.
#[derive(Debug)]
pub(super) enum Task {
    /// A lane's outage ends.
    Restore(usize),
    /// A change that the scenario plans for a link.
    Planned(usize, Planned),
}

/// A change that the scenario plans, as it is told of. The link model makes it by itself,
/// except for an address, of which the model knows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    /// "forward", "return" or "both".
    pub direction: &'static str,
    /// What changes.
    pub what: String,
    /// The near end gets its next address.
    pub new_address: bool,
}

/// What a scenario plans for a link with these changes, each with its moment, and
/// with a new address at some of its switches.
pub(super) fn planned(
    forward: &[ScheduledChange],
    back: &[ScheduledChange],
    new_address_at: &[Span],
) -> Vec<(Span, Planned)> {
    let plan = |direction, what: String, new_address| Planned {
        direction,
        what,
        new_address,
    };
    let addresses = new_address_at
        .iter()
        .map(|at| (*at, plan("both", "switch, new_address=true".into(), true)));
    let directions = [(forward, "forward"), (back, "return")].into_iter();
    let changes = directions.flat_map(|(changes, direction)| {
        changes.iter().filter_map(move |scheduled| {
            let what = scheduled.change.to_string();
            let at = scheduled.at;
            match (&scheduled.change.link, direction) {
                (None, _) => Some((at, plan(direction, what, false))),
                // A switch is of both directions, and told once.
                (Some(_), "forward") if !new_address_at.contains(&at) => {
                    Some((at, plan("both", what, false)))
                }
                (Some(_), _) => None,
            }
        })
    });
    addresses.chain(changes).collect()
}

impl Agenda {
    pub fn add(&mut self, at: Time, task: Task) {
        let place = self.0.partition_point(|(other, _)| *other <= at);
        self.0.insert(place, (at, task));
    }

    /// When the next task is due.
    pub fn next(&self) -> Option<Time> {
        self.0.front().map(|(at, _)| *at)
    }

    /// A task that is due, and since when.
    pub fn take(&mut self, now: Time) -> Option<(Time, Task)> {
        self.0.pop_front_if(|(at, _)| *at <= now)
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
        agenda.add(at(20), Task::Restore(2));
        assert_eq!(agenda.next(), Some(at(10)));
        assert!(agenda.take(at(9)).is_none());
        agenda.forget_outage(1);
        let (since, task) = agenda.take(at(25)).unwrap();
        assert!(since == at(20) && matches!(task, Task::Restore(2)));
        assert!(agenda.take(at(25)).is_none());
        assert_eq!(agenda.next(), Some(at(30)));
    }

    #[test]
    fn a_scenarios_plan_is_told_direction_by_direction_and_its_switches_once() {
        let link = "rate = \"9 Mbit/s\"\ndelay = \"9 ms\"\nqueue = \"9 kB\"";
        let text = format!(
            "name = \"planned\"\n\
             [forward]\n{link}\nchange = [{{ at = \"1 s\", rate = \"5 Mbit/s\", loss = \"1 %\" }}]\n\
             [return]\n{link}\nchange = [{{ at = \"95 s\", outage = true }}]\n\
             [[switch]]\nat = \"90 s\"\n\
             [switch.forward]\n{link}\n[switch.return]\n{link}\n"
        );
        let scenario = bentpipe_link::Scenario::parse(&text).unwrap();
        let told = |new_address_at: &[Span]| -> Vec<_> {
            planned(
                &scenario.forward.change,
                &scenario.r#return.change,
                new_address_at,
            )
            .into_iter()
            .map(|(at, it)| {
                (
                    at.as_nanos() / 1_000_000,
                    it.direction,
                    it.what,
                    it.new_address,
                )
            })
            .collect()
        };
        let rate = (1000, "forward", "loss=1 %, rate=5 Mbit/s".to_owned(), false);
        let outage = (95_000, "return", "outage=true".to_owned(), false);
        assert_eq!(
            told(&[]),
            [
                rate.clone(),
                (90_000, "both", "switch".into(), false),
                outage.clone()
            ]
        );
        assert_eq!(
            told(&[Span::from_millis(90_000)]),
            [
                (90_000, "both", "switch, new_address=true".into(), true),
                rate,
                outage
            ]
        );
    }
}

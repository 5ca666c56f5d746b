//! Addresses of a link's devices: whether its ends reach each other, and the next free one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Why the ends of a link could not reach each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreachableEnds {
    /// Both have the same address.
    #[error(
        "terminal and gateway both have the address {0}: each would answer itself; give the gateway another one of its network"
    )]
    Same(IpNet),
    /// They are in different networks.
    #[error(
        "{own} and the other end's {other} are in different networks: nothing sent to either would take the link; give both ends addresses of one network, like 10.0.0.1/24 and 10.0.0.2/24"
    )]
    Apart {
        /// One end's.
        own: IpNet,
        /// The other's.
        other: IpNet,
    },
}

/// Checks that what the ends of a link send to each other takes the link. A single address
/// (/32 or /128) is for whoever adds routes, and an end without addresses too.
pub fn check_ends(terminal: &[IpNet], gateway: &[IpNet]) -> Result<(), UnreachableEnds> {
    for own in terminal {
        if gateway.iter().any(|other| other.addr() == own.addr()) {
            return Err(UnreachableEnds::Same(*own));
        }
    }
    for (here, there) in [(terminal, gateway), (gateway, terminal)] {
        for own in here
            .iter()
            .filter(|own| own.prefix_len() < own.max_prefix_len())
        {
            let family = |other: &&IpNet| other.addr().is_ipv4() == own.addr().is_ipv4();
            let others: Vec<_> = there.iter().filter(family).collect();
            let reached = others.iter().any(|other| own.contains(&other.addr()));
            if let (Some(other), false) = (others.first(), reached) {
                return Err(UnreachableEnds::Apart {
                    own: *own,
                    other: **other,
                });
            }
        }
    }
    Ok(())
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
    fn ends_that_cannot_reach_each_other_are_told() {
        let check = |terminal: &[&str], gateway: &[&str]| {
            check_ends(&nets(terminal), &nets(gateway)).map_err(|error| error.to_string())
        };
        let same = check(&["10.0.0.1/24"], &["10.0.0.1/24"]).unwrap_err();
        assert!(same.contains("both have the address 10.0.0.1/24"), "{same}");
        let apart = check(&["10.0.0.1/24"], &["10.0.1.2/24"]).unwrap_err();
        assert!(apart.contains("different networks"), "{apart}");
        assert!(
            check(
                &["10.0.0.1/24", "fd00::1/64"],
                &["10.0.0.2/24", "fd01::2/64"]
            )
            .is_err()
        );
        for (terminal, gateway) in [
            (
                &["10.0.0.1/24", "fd00::1/64"][..],
                &["10.0.0.2/24", "fd00::2/64"][..],
            ),
            (&["10.0.0.1/32"], &["10.9.0.1/32"]),
            (&["10.0.0.1/24", "10.1.0.1/32"], &["10.0.0.2/24"]),
            (&["10.0.0.1/24"], &[]),
            (&["10.0.0.1/24"], &["fd00::2/64"]),
        ] {
            assert_eq!(check(terminal, gateway), Ok(()), "{terminal:?} {gateway:?}");
        }
    }

    #[test]
    fn two_addresses_of_one_network_get_two_others() {
        let next = next_addresses(&nets(&["10.0.0.1/24", "10.0.0.2/24"]), &[]).unwrap();
        assert_eq!(next, nets(&["10.0.0.3/24", "10.0.0.4/24"]));
    }
}

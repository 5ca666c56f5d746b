//! Addresses of a link's devices: the next free one of a network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

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
}

//! The networks that this machine is connected to: what goes there needs no satellite.
//!
//! Whoever gives out addresses on the dish's side says by that which network is there. He could call any part of the
//! internet one that the machine is connected to, and have what is for that part sent to him in the open (Xue et al.,
//! "Bypassing Tunnels: Leaking VPN Client Traffic by Abusing Routing Tables", USENIX Security 2023). So where a router
//! leads on to the internet, only private networks count.

use std::collections::BTreeSet;
use std::io;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage};

use super::tun::Tun;
use crate::netlink::Netlink;

/// What no satellite leads to: RFC 1918, 6598 and 3927; RFC 4193 and 4291.
const PRIVATE: [&str; 7] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "fc00::/7",
    "fe80::/10",
];

/// All private networks.
pub fn private() -> impl Iterator<Item = IpNet> {
    let networks = PRIVATE.into_iter();
    networks.map(|text| text.parse().expect("these are networks"))
}

/// Those that this machine has an address in, but for those of the tunnel's own interface.
pub(super) fn connected(tun: Option<&Tun>) -> io::Result<Vec<IpNet>> {
    let uplinks = uplinks()?;
    let interfaces = if_addrs::get_if_addrs()?;
    let mut networks: Vec<_> = interfaces
        .iter()
        .filter(|interface| !interface.is_loopback())
        .filter(|interface| tun.is_none_or(|tun| interface.name != tun.interface))
        .filter_map(|interface| {
            let prefix = match &interface.addr {
                if_addrs::IfAddr::V4(address) => address.prefixlen,
                if_addrs::IfAddr::V6(address) => address.prefixlen,
            };
            let network = IpNet::new(interface.ip(), prefix).ok()?.trunc();
            let leads_on = interface.index.is_none_or(|index| uplinks.contains(&index));
            (!leads_on || is_private(&network)).then_some(network)
        })
        // Not a network but a default route in disguise.
        .filter(|network| network.prefix_len() > 0)
        .collect();
    networks.sort();
    networks.dedup();
    Ok(networks)
}

/// The devices by which a router leads on to the internet.
fn uplinks() -> io::Result<BTreeSet<u32>> {
    let mut netlink = Netlink::open()?;
    let mut devices = BTreeSet::new();
    for family in [AddressFamily::Inet, AddressFamily::Inet6] {
        for route in netlink.routes(family, RouteHeader::RT_TABLE_MAIN.into())? {
            if leads_on(&route) {
                devices.extend(devices_of(&route));
            }
        }
    }
    Ok(devices)
}

/// Whether it is a default route, or one by way of a router to something that is not private.
fn leads_on(route: &RouteMessage) -> bool {
    let by_router = |attribute: &RouteAttribute| {
        matches!(
            attribute,
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) | RouteAttribute::MultiPath(_)
        )
    };
    let prefix = route.header.destination_prefix_length;
    prefix == 0
        || (route.attributes.iter().any(by_router)
            && !destination(route)
                .and_then(|address| IpNet::new(address, prefix).ok())
                .is_some_and(|network| is_private(&network)))
}

fn destination(route: &RouteMessage) -> Option<std::net::IpAddr> {
    let mut attributes = route.attributes.iter();
    attributes.find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(address)) => Some((*address).into()),
        RouteAttribute::Destination(RouteAddress::Inet6(address)) => Some((*address).into()),
        _ => None,
    })
}

fn devices_of(route: &RouteMessage) -> Vec<u32> {
    let attributes = route.attributes.iter();
    attributes
        .flat_map(|attribute| match attribute {
            RouteAttribute::Oif(device) => vec![*device],
            RouteAttribute::MultiPath(hops) => hops.iter().map(|hop| hop.interface_index).collect(),
            _ => Vec::new(),
        })
        .collect()
}

/// Whether all of `network` is private.
fn is_private(network: &IpNet) -> bool {
    private().any(|private| private.contains(network))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_private_when_all_of_it_is() {
        for (text, private) in [
            ("192.168.100.0/24", true),
            ("fe80::/64", true),
            ("10.0.0.0/1", false),
            ("11.77.9.0/24", false),
            ("2001:db8::/64", false),
        ] {
            let network: IpNet = text.parse().unwrap();
            assert_eq!(is_private(&network.trunc()), private, "{text}");
        }
    }
}

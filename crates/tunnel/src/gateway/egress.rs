//! Which addresses the gateway may connect to.
//!
//! Everything that is not plainly the public internet is denied, after names have
//! been resolved, unless the gateway's operator lists it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The operator's exceptions to what is denied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Egress {
    allow: Vec<IpNet>,
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(first: u16, second: u16, third: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0), prefix)
}

/// What is not globally reachable by the IANA IPv4 Special-Purpose Address
/// Registry (RFC 6890), and multicast.
const DENIED_V4: &[(Ipv4Net, &str)] = &[
    (v4(0, 0, 0, 0, 8), "unspecified or this network"),
    (v4(10, 0, 0, 0, 8), "private"),
    (v4(100, 64, 0, 0, 10), "shared by carriers (RFC 6598)"),
    (v4(127, 0, 0, 0, 8), "loopback"),
    (v4(169, 254, 0, 0, 16), "link-local"),
    (v4(172, 16, 0, 0, 12), "private"),
    (v4(192, 0, 0, 0, 24), "reserved for protocols"),
    (v4(192, 0, 2, 0, 24), "documentation"),
    (v4(192, 168, 0, 0, 16), "private"),
    (v4(198, 18, 0, 0, 15), "benchmarking"),
    (v4(198, 51, 100, 0, 24), "documentation"),
    (v4(203, 0, 113, 0, 24), "documentation"),
    (v4(224, 0, 0, 0, 4), "multicast"),
    (v4(240, 0, 0, 0, 4), "reserved or broadcast"),
];

/// The same for IPv6. Only 2000::/3 is global unicast; of that these are not.
const DENIED_V6: &[(Ipv6Net, &str)] = &[
    (v6(0x2001, 0, 0, 23), "reserved for protocols"),
    (v6(0x2001, 0xdb8, 0, 32), "documentation"),
    (v6(0x3fff, 0, 0, 20), "documentation"),
];
const GLOBAL_UNICAST: Ipv6Net = v6(0x2000, 0, 0, 3);
/// Addresses that carry an IPv4 address: 6to4 (RFC 3056) and NAT64 (RFC 6052).
const SIX_TO_FOUR: Ipv6Net = v6(0x2002, 0, 0, 16);
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

/// Where clouds tell a machine its secrets. A network that an operator lists does not make
/// them reachable; only the address by itself does.
const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // ECS task credentials.
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // The platform's wire server, an ordinary public address.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

impl Egress {
    /// Denies by default; `allow` lists what this operator permits all the same.
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow }
    }

    /// Whether `address` may be dialled, `own` being the gateway's own addresses.
    /// The error is the kind of address that it is.
    pub fn check(&self, address: IpAddr, own: &[IpAddr]) -> Result<(), &'static str> {
        let address = address.to_canonical();
        let metadata = METADATA.contains(&address);
        let listed = |net: &IpNet| match metadata {
            true => *net == IpNet::from(address),
            false => net.contains(&address),
        };
        if self.allow.iter().any(listed) {
            return Ok(());
        }
        if metadata {
            return Err("a cloud's metadata service");
        }
        if own.iter().any(|own| own.to_canonical() == address) {
            return Err("the gateway's own");
        }
        match address {
            IpAddr::V4(address) => denied_v4(address),
            IpAddr::V6(address) => self.check_v6(address, own),
        }
    }

    fn check_v6(&self, address: Ipv6Addr, own: &[IpAddr]) -> Result<(), &'static str> {
        let octets = address.octets();
        let embedded = |at: usize| {
            let [a, b, c, d] = [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]];
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        };
        if SIX_TO_FOUR.contains(&address) {
            return self.check(embedded(2), own);
        }
        if NAT64.contains(&address) {
            return self.check(embedded(12), own);
        }
        if address.is_loopback() {
            return Err("loopback");
        }
        if address.is_unspecified() {
            return Err("unspecified");
        }
        if address.is_multicast() {
            return Err("multicast");
        }
        if address.is_unique_local() {
            return Err("private");
        }
        if address.is_unicast_link_local() {
            return Err("link-local");
        }
        if !GLOBAL_UNICAST.contains(&address) {
            return Err("not global unicast");
        }
        DENIED_V6
            .iter()
            .find(|(net, _)| net.contains(&address))
            .map_or(Ok(()), |(_, kind)| Err(kind))
    }
}

fn denied_v4(address: Ipv4Addr) -> Result<(), &'static str> {
    DENIED_V4
        .iter()
        .find(|(net, _)| net.contains(&address))
        .map_or(Ok(()), |(_, kind)| Err(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(egress: &Egress, address: &str) -> Result<(), &'static str> {
        egress.check(
            address.parse().unwrap(),
            &["198.199.1.1".parse().unwrap(), "2600::1".parse().unwrap()],
        )
    }

    #[test]
    fn the_public_internet_is_reachable() {
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "2606:4700::1111",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
        ] {
            assert_eq!(check(&Egress::default(), address), Ok(()), "{address}");
        }
    }

    #[test]
    fn nothing_else_is_however_it_is_written() {
        for (address, kind) in [
            ("10.1.2.3", "private"),
            ("172.31.255.255", "private"),
            ("192.168.0.1", "private"),
            ("127.0.0.1", "loopback"),
            ("127.8.8.8", "loopback"),
            ("0.0.0.0", "unspecified or this network"),
            ("169.254.169.254", "a cloud's metadata service"),
            ("::ffff:169.254.169.254", "a cloud's metadata service"),
            ("64:ff9b::169.254.169.254", "a cloud's metadata service"),
            ("fd00:ec2::254", "a cloud's metadata service"),
            ("169.254.1.1", "link-local"),
            ("100.64.0.1", "shared by carriers (RFC 6598)"),
            ("224.0.0.251", "multicast"),
            ("255.255.255.255", "reserved or broadcast"),
            ("198.199.1.1", "the gateway's own"),
            ("::ffff:198.199.1.1", "the gateway's own"),
            ("2600::1", "the gateway's own"),
            ("::1", "loopback"),
            ("::", "unspecified"),
            ("::ffff:10.0.0.1", "private"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::127.0.0.1", "not global unicast"),
            ("64:ff9b::10.0.0.1", "private"),
            ("2002:7f00:1::1", "loopback"),
            ("fe80::1", "link-local"),
            ("fd00::1", "private"),
            ("ff02::1", "multicast"),
            ("2001::1", "reserved for protocols"),
            ("2001:db8::1", "documentation"),
        ] {
            assert_eq!(check(&Egress::default(), address), Err(kind), "{address}");
        }
    }

    #[test]
    fn the_operator_can_list_exceptions() {
        let egress = Egress::new(vec![
            "10.9.0.0/16".parse().unwrap(),
            "198.199.1.1/32".parse().unwrap(),
        ]);
        assert_eq!(check(&egress, "10.9.4.2"), Ok(()));
        assert_eq!(check(&egress, "::ffff:10.9.4.2"), Ok(()));
        assert_eq!(check(&egress, "198.199.1.1"), Ok(()));
        assert_eq!(check(&egress, "10.8.4.2"), Err("private"));
    }

    #[test]
    fn a_listed_network_does_not_open_a_metadata_service_in_it() {
        let egress = |allow: &str| Egress::new(vec![allow.parse().unwrap()]);
        let metadata = Err("a cloud's metadata service");
        assert_eq!(
            check(&egress("169.254.0.0/16"), "169.254.169.254"),
            metadata
        );
        assert_eq!(check(&egress("100.64.0.0/10"), "100.100.100.200"), metadata);
        assert_eq!(check(&egress("fd00::/8"), "fd00:ec2::254"), metadata);
        let itself = egress("169.254.169.254/32");
        assert_eq!(check(&itself, "169.254.169.254"), Ok(()));
    }
}

//! The policy of a terminal: what it may reach, how much, and as whom.

use std::net::IpAddr;
use std::sync::Arc;

use bentpipe_units::{Bytes, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::destination::Destination;
use super::ip_protocol::IpProtocol;
use crate::identity::Fingerprint;
use crate::target::Target;

/// What a terminal may do. What egress denies stays denied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Destinations that it may reach; when none is listed, all. Networks hold after a name
    /// has been resolved. Written like "10.9.0.0/16", "[2001:db8::/32]:443",
    /// "*.example.net:80-443" or "*:25".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<Destination>,
    /// Destinations that it may not reach, also when `allow` has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub deny: Vec<Destination>,
    /// Protocols of IP packets that it may exchange (CONNECT-IP), when the gateway has a network
    /// for them (`[ip]`); none by default. "icmp" is ICMP of both families, which pings are.
    /// What `allow` and `deny` say by port holds for protocols with ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip: Vec<IpProtocol>,
    /// Flows that it may have open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// What its flows may carry together, in each direction by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub rate: Option<Rate>,
    /// What its flows may carry in a calendar month (UTC), both directions together; then
    /// flows are reset and new ones refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub monthly_volume: Option<Bytes>,
    /// Addresses of this machine that origins see it by: at most one IPv4 and one IPv6.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub egress_address: Vec<IpAddr>,
    /// Destinations that are told the terminal's own address, by PROXY protocol version 2:
    /// others take it for a part of what the application says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub proxy_protocol: Vec<Destination>,
}

impl Policy {
    /// Checks what cannot be seen in one field alone; the error names the field.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |field: &str, why: &str| Err(format!("{field}: {why}"));
        let ipv4 = self.egress_address.iter().filter(|a| a.is_ipv4()).count();
        if ipv4 > 1 || self.egress_address.len() - ipv4 > 1 {
            return wrong(
                "egress_address",
                "give at most one IPv4 and one IPv6 address",
            );
        }
        if self.flows == Some(0) {
            return wrong(
                "flows = 0",
                "nothing could be carried; to shut a terminal out, `bentpipe gateway terminals revoke` it",
            );
        }
        if self.rate.is_some_and(|rate| rate.bits_per_second() < 8_000) {
            return wrong("rate", "give at least \"8 kbit/s\"");
        }
        Ok(())
    }

    /// This policy, and where it says nothing what `default` says.
    #[must_use]
    pub fn or(&self, default: &Self) -> Self {
        fn list<T: Clone>(own: &[T], default: &[T]) -> Vec<T> {
            match own {
                [] => default.to_vec(),
                own => own.to_vec(),
            }
        }
        Self {
            allow: list(&self.allow, &default.allow),
            deny: list(&self.deny, &default.deny),
            ip: list(&self.ip, &default.ip),
            flows: self.flows.or(default.flows),
            rate: self.rate.or(default.rate),
            monthly_volume: self.monthly_volume.or(default.monthly_volume),
            egress_address: list(&self.egress_address, &default.egress_address),
            proxy_protocol: list(&self.proxy_protocol, &default.proxy_protocol),
        }
    }

    /// Whether `address`, which `target` has been resolved to, may be dialled. The error
    /// says why not.
    pub fn allows(&self, target: &Target, address: IpAddr) -> Result<(), &'static str> {
        let listed =
            |list: &[Destination]| list.iter().any(|entry| entry.contains(target, address));
        if listed(&self.deny) {
            return Err("denied to this terminal by the gateway's policy");
        }
        if !self.allow.is_empty() && !listed(&self.allow) {
            return Err("not allowed to this terminal by the gateway's policy");
        }
        Ok(())
    }

    /// Whether what may be reached depends on ports.
    pub fn has_ports(&self) -> bool {
        let mut listed = self.allow.iter().chain(&self.deny);
        listed.any(Destination::has_ports)
    }

    /// Whether `address`, which `target` has been resolved to, is told the terminal's.
    pub fn tells_address(&self, target: &Target, address: IpAddr) -> bool {
        let told = &self.proxy_protocol;
        told.iter().any(|entry| entry.contains(target, address))
    }

    /// The address to dial `to` from; `None`: the machine chooses.
    pub fn egress_address(&self, to: IpAddr) -> Option<IpAddr> {
        let same = |from: &&IpAddr| from.is_ipv4() == to.is_ipv4();
        self.egress_address.iter().find(same).copied()
    }
}

/// The policies of all terminals, and what each has carried in this month.
pub trait Policies: Send + Sync + 'static {
    /// The policy of the terminal with `key`, now.
    fn of(&self, key: &Fingerprint) -> Arc<Policy>;
    /// Counts `bytes` that the terminal with `key` has carried; all of this month.
    fn carried(&self, key: &Fingerprint, bytes: u64) -> u64;
}

/// No limits, for all.
#[derive(Debug, Default)]
pub struct Unlimited(Arc<Policy>);

impl Policies for Unlimited {
    fn of(&self, _key: &Fingerprint) -> Arc<Policy> {
        self.0.clone()
    }

    fn carried(&self, _key: &Fingerprint, _bytes: u64) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_is_denied_though_it_is_allowed() {
        let policy = Policy {
            allow: vec!["*.example.net:443".parse().unwrap()],
            deny: vec!["192.0.2.0/24".parse().unwrap()],
            ..Policy::default()
        };
        let allows = |target: &str, address: &str| {
            policy.allows(&target.parse().unwrap(), address.parse().unwrap())
        };
        assert_eq!(allows("www.example.net:443", "198.51.100.1"), Ok(()));
        for (target, address) in [
            ("www.example.net:443", "192.0.2.7"),
            ("www.example.net:80", "198.51.100.1"),
            ("198.51.100.1:443", "198.51.100.1"),
        ] {
            assert!(allows(target, address).is_err(), "{target} {address}");
        }
        let all = Policy::default();
        assert_eq!(
            all.allows(&"a:1".parse().unwrap(), "192.0.2.7".parse().unwrap()),
            Ok(())
        );
    }

    #[test]
    fn the_egress_address_is_of_the_origins_family() {
        let policy = Policy {
            egress_address: vec!["192.0.2.1".parse().unwrap()],
            ..Policy::default()
        };
        let from = |to: &str| policy.egress_address(to.parse().unwrap());
        assert_eq!(from("198.51.100.1"), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(from("2001:db8::1"), None);
    }
}

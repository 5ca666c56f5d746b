//! A destination as an operator writes it: networks or names, and ports.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::target::{Host, Target};

/// Networks or names, and ports: `10.9.0.0/16`, `[2001:db8::/32]:443`, `example.net:80-443`,
/// `*.example.net`, `*:25`.
///
/// A name is the one that was asked for: whoever asks for the address of `example.net`
/// does not ask for `example.net`. `*.example.net` is all that ends in it, and not itself.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Destination {
    hosts: Hosts,
    ports: Option<RangeInclusive<u16>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    All,
    Network(IpNet),
    /// In lower case, without a dot at its end.
    Name(String),
    /// What ends in this, which begins with a dot.
    Below(String),
}

/// Why a text is not a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{value:?} is not a destination: {why}; write it like \"10.9.0.0/16\", \"[2001:db8::/32]:443\", \"*.example.net:80-443\" or \"*:25\""
)]
pub struct DestinationError {
    value: String,
    why: &'static str,
}

impl Destination {
    /// Whether `address`, which `target` has been resolved to, is among them.
    pub fn contains(&self, target: &Target, address: IpAddr) -> bool {
        let ports = self.ports.as_ref();
        ports.is_none_or(|ports| ports.contains(&target.port)) && self.has_host(target, address)
    }

    /// Whether not all ports are.
    pub fn has_ports(&self) -> bool {
        self.ports.is_some()
    }

    fn has_host(&self, target: &Target, address: IpAddr) -> bool {
        let asked = || match &target.host {
            Host::Name(name) => name.trim_end_matches('.').to_ascii_lowercase(),
            Host::Address(_) => String::new(),
        };
        match &self.hosts {
            Hosts::All => true,
            Hosts::Network(network) => network.contains(&address.to_canonical()),
            Hosts::Name(name) => *name == asked(),
            Hosts::Below(end) => asked().ends_with(end),
        }
    }
}

impl FromStr for Destination {
    type Err = DestinationError;
    fn from_str(value: &str) -> Result<Self, DestinationError> {
        let wrong = |why| DestinationError {
            value: value.chars().take(300).collect(),
            why,
        };
        let text = value.trim();
        let (hosts, ports) = match text.strip_prefix('[') {
            Some(rest) => {
                let (hosts, rest) = rest
                    .split_once(']')
                    .ok_or_else(|| wrong("the ']' is missing"))?;
                match rest.strip_prefix(':') {
                    Some(ports) => (hosts, Some(ports)),
                    None if rest.is_empty() => (hosts, None),
                    None => return Err(wrong("after ']' comes a ':' and the port")),
                }
            }
            // An IPv6 network has more than one colon.
            None if text.matches(':').count() == 1 => {
                let (hosts, ports) = text.split_once(':').unwrap_or((text, ""));
                (hosts, Some(ports))
            }
            None => (text, None),
        };
        let hosts = hosts_of(hosts).ok_or_else(|| wrong("that is no network and no name"))?;
        let ports = match ports {
            Some(ports) => Some(
                ports_of(ports)
                    .ok_or_else(|| wrong("ports are one from 1 to 65535, or a range"))?,
            ),
            None => None,
        };
        Ok(Self { hosts, ports })
    }
}

fn hosts_of(text: &str) -> Option<Hosts> {
    if text == "*" {
        return Some(Hosts::All);
    }
    if let Ok(network) = text.parse::<IpNet>() {
        return Some(Hosts::Network(network.trunc()));
    }
    let (below, name) = match text.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, text),
    };
    match Host::name(name)? {
        Host::Address(address) if !below => Some(Hosts::Network(address.into())),
        Host::Address(_) => None,
        Host::Name(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            Some(match below {
                true => Hosts::Below(format!(".{name}")),
                false => Hosts::Name(name),
            })
        }
    }
}

fn ports_of(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (0 < first && first <= last).then_some(first..=last)
}

impl fmt::Display for Destination {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::All => write!(out, "*")?,
            Hosts::Network(IpNet::V6(network)) if self.ports.is_some() => {
                write!(out, "[{network}]")?;
            }
            Hosts::Network(network) => write!(out, "{network}")?,
            Hosts::Name(name) => write!(out, "{name}")?,
            Hosts::Below(end) => write!(out, "*{end}")?,
        }
        match &self.ports {
            Some(ports) if ports.start() == ports.end() => write!(out, ":{}", ports.start()),
            Some(ports) => write!(out, ":{}-{}", ports.start(), ports.end()),
            None => Ok(()),
        }
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(destination: &str, target: &str, address: &str) -> bool {
        let destination: Destination = destination.parse().unwrap();
        assert_eq!(destination.to_string().parse(), Ok(destination.clone()));
        destination.contains(&target.parse().unwrap(), address.parse().unwrap())
    }

    #[test]
    fn networks_names_and_ports() {
        for (destination, target, address, is) in [
            ("10.9.0.0/16", "a.example:443", "10.9.1.2", true),
            ("10.9.0.0/16", "10.9.1.2:443", "::ffff:10.9.1.2", true),
            ("10.9.0.0/16:80", "10.9.1.2:443", "10.9.1.2", false),
            ("10.9.1.2", "10.9.1.2:1", "10.9.1.2", true),
            ("2001:db8::/32", "[2001:db8::1]:80", "2001:db8::1", true),
            (
                "[2001:db8::/32]:443",
                "[2001:db8::1]:80",
                "2001:db8::1",
                false,
            ),
            (
                "[2001:db8::/32]:80-443",
                "[2001:db8::1]:80",
                "2001:db8::1",
                true,
            ),
            ("example.net", "EXAMPLE.net.:80", "192.0.2.1", true),
            ("example.net", "www.example.net:80", "192.0.2.1", false),
            ("example.net", "192.0.2.1:80", "192.0.2.1", false),
            ("*.example.net:25", "www.example.net:25", "192.0.2.1", true),
            ("*.example.net", "example.net:25", "192.0.2.1", false),
            ("*.example.net", "badexample.net:25", "192.0.2.1", false),
            ("*:25", "a.example:25", "192.0.2.1", true),
            ("*:25", "a.example:26", "192.0.2.1", false),
        ] {
            assert_eq!(
                contains(destination, target, address),
                is,
                "{destination} {target}"
            );
        }
    }

    #[test]
    fn what_is_none_is_told() {
        for text in [
            "",
            "a b",
            "10.0.0.0/33",
            "a:0",
            "a:9-8",
            "[::1",
            "[::1]443",
            "*.10.0.0.1",
            "a:x",
        ] {
            let error = text.parse::<Destination>().unwrap_err().to_string();
            assert!(error.contains("is not a destination"), "{error}");
        }
    }
}

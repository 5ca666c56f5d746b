//! Where a flow is going.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A host, by address or by name, and a port: the authority of a CONNECT request
/// (RFC 9110, section 9.3.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Which machine.
    pub host: Host,
    /// Which port, never 0.
    pub port: u16,
}

/// The port of HTTPS, over TLS and over QUIC.
pub const HTTPS: u16 = 443;

/// A machine, by address or by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// By address.
    Address(IpAddr),
    /// By name, to be resolved by whoever dials.
    Name(String),
}

/// Why a text is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{value:?} is not a host and a port: {why}; write it like \"example.net:443\" or \"[2001:db8::1]:443\""
)]
pub struct TargetError {
    value: String,
    why: &'static str,
}

impl FromStr for Target {
    type Err = TargetError;
    fn from_str(value: &str) -> Result<Self, TargetError> {
        let error = |why| TargetError {
            value: value.chars().take(300).collect(),
            why,
        };
        if let Ok(address) = value.parse::<SocketAddr>() {
            return Self::from_parts(Host::Address(address.ip()), address.port())
                .ok_or_else(|| error("port 0 cannot be reached"));
        }
        let (name, port) = value
            .rsplit_once(':')
            .ok_or_else(|| error("the port is missing"))?;
        let port = port
            .parse()
            .map_err(|_| error("the port is not a number up to 65535"))?;
        Self::from_parts(
            Host::name(name).ok_or_else(|| error("the host is not a name or address"))?,
            port,
        )
        .ok_or_else(|| error("port 0 cannot be reached"))
    }
}

impl Target {
    fn from_parts(host: Host, port: u16) -> Option<Self> {
        (port != 0).then_some(Self { host, port })
    }
}

impl Host {
    /// A name of letters, digits, '-', '_' and dots, at most 253 long, each label
    /// at most 63 (RFC 1035, section 2.3.4); `None` for anything else. Text that
    /// is an address becomes one, so that no name can hide an address.
    pub fn name(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::Address(address));
        }
        let labels = text.strip_suffix('.').unwrap_or(text).split('.');
        let label_is_good = |label: &str| {
            (1..=63).contains(&label.len())
                && label
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        };
        (text.len() <= 253 && labels.into_iter().all(label_is_good))
            .then(|| Self::Name(text.to_owned()))
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        // An IPv4 destination seen through an IPv6 socket is an IPv4 destination.
        Self {
            host: Host::Address(address.ip().to_canonical()),
            port: address.port(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(out),
            Host::Name(name) => write!(out, "{name}:{}", self.port),
        }
    }
}

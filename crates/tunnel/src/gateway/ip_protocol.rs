//! Protocols above IP, as an operator writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A protocol above IP (RFC 9293, 768, 792, 4443, 9260, 2784, 4303, 4302).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IpProtocol {
    /// All there are.
    Any,
    /// ICMP, and ICMPv6.
    Icmp,
    /// TCP, not split: as fast as without a terminal.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// GRE.
    Gre,
    /// ESP of IPsec.
    Esp,
    /// AH of IPsec.
    Ah,
}

impl IpProtocol {
    /// Its numbers over IPv4 and over IPv6, as IANA assigns them; 0 is any.
    pub fn numbers(self) -> [u8; 2] {
        match self {
            Self::Any => [0; 2],
            Self::Icmp => [1, 58],
            Self::Tcp => [6; 2],
            Self::Udp => [17; 2],
            Self::Sctp => [132; 2],
            Self::Gre => [47; 2],
            Self::Esp => [50; 2],
            Self::Ah => [51; 2],
        }
    }
}

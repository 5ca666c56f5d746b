//! `[dns]`: the terminal's resolver.

use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{check_clients, networks, socket_addresses};

/// A resolver for applications. Their questions are answered by the gateway's name servers, or
/// from what was answered before; never outside the tunnel.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dns {
    /// Addresses and ports, UDP and TCP, like `["127.0.0.1:53", "192.168.1.1:53"]`. None with
    /// transparent ingress: then it answers what passes alone.
    #[serde(default, deserialize_with = "socket_addresses")]
    #[schemars(with = "Vec<String>")]
    pub listen: Vec<SocketAddr>,
    /// Networks whose hosts may ask, beside this machine itself.
    #[serde(default, deserialize_with = "networks")]
    #[schemars(with = "Vec<String>")]
    pub clients: Vec<ipnet::IpNet>,
    /// Networks whose addresses an answer may name although they are not public. Any other
    /// private address makes an answer refused: a name on the internet could otherwise lead a
    /// browser to hosts of this network (DNS rebinding).
    #[serde(default, deserialize_with = "networks")]
    #[schemars(with = "Vec<String>")]
    pub allow_private: Vec<ipnet::IpNet>,
    /// What kept answers may take of memory.
    #[serde(default = "cache")]
    #[schemars(with = "String")]
    pub cache: Bytes,
    /// DNS over TLS (RFC 7858) and over HTTPS (RFC 8484), for applications that ask for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<DnsTls>,
}

/// DNS over TLS 1.3 and over HTTPS, with a certificate that applications believe: the name in it is
/// the one that they are given for the resolver. Networks that may ask are those of `dns.clients`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DnsTls {
    /// Addresses and ports for DNS over TLS, like `["192.168.1.1:853"]`.
    #[serde(default, deserialize_with = "socket_addresses")]
    #[schemars(with = "Vec<String>")]
    pub listen: Vec<SocketAddr>,
    /// Addresses and ports for DNS over HTTPS, by HTTP/2, like `["192.168.1.1:443"]`. Questions are
    /// asked at `https://NAME/dns-query`.
    #[serde(default, deserialize_with = "socket_addresses")]
    #[schemars(with = "Vec<String>")]
    pub https: Vec<SocketAddr>,
    /// The certificate chain in PEM, the resolver's own first. Read again at SIGHUP, like its key.
    pub certificate: PathBuf,
    /// Its private key in PEM, readable by its owner alone.
    pub key: PathBuf,
}

pub(super) fn cache() -> Bytes {
    Bytes::new(8 << 20)
}

impl Dns {
    /// All addresses, those of TLS last.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let tls = (self.tls.iter()).flat_map(|tls| tls.listen.iter().chain(&tls.https));
        self.listen.iter().chain(tls).copied()
    }

    pub(super) fn check(&self, passes: bool) -> Result<(), String> {
        if self.addresses().next().is_none() && !passes {
            return Err("dns.listen = []: name at least one address, like [\"127.0.0.1:53\"], or remove [dns]".into());
        }
        for listen in &self.listen {
            if listen.ip().is_unspecified() {
                return Err(format!(
                    "dns.listen: \"{listen}\" is every address, and a reply has to come from the one that was asked; list them, like [\"127.0.0.1:53\", \"192.168.1.1:53\"]"
                ));
            }
        }
        if (self.tls.as_ref()).is_some_and(|tls| tls.listen.is_empty() && tls.https.is_empty()) {
            return Err("dns.tls.listen = [] and dns.tls.https = []: name at least one address, like listen = [\"192.168.1.1:853\"], or remove [dns.tls]".into());
        }
        let addresses: Vec<_> = self.addresses().collect();
        match (addresses.is_empty(), self.clients.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => Err("dns.clients has no effect: what passes is answered for everybody, and dns.listen = []; remove it, or name addresses".into()),
            _ => check_clients("dns", &addresses, &self.clients),
        }
    }
}

//! The configuration files of terminal and gateway: types, checks, defaults.
//!
//! The types are also what docs/configuration.md and the JSON Schemas are made from.

mod dns;
mod ingress;
mod tun;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bentpipe_cc::Choice;
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::gateway::policy::Policy;
use bentpipe_tunnel::terminal::dns::Settings;
use bentpipe_tunnel::transport::Transport;
use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

pub use dns::{Dns, DnsTls};
pub use ingress::{AfterStop, Answer, AskFor, Ingress, Proxy, Transparent, transparent_port};

/// `gateway.toml`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Where terminals arrive, UDP.
    #[serde(deserialize_with = "socket_address")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// The user that the gateway becomes after its start as root. Its files must be that
    /// user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What is logged: error, warn, info, debug or trace. The environment variable
    /// BENTPIPE_LOG has the last word. Changes at SIGHUP.
    pub log: String,
    /// How long open flows may go on after SIGTERM, while new ones are refused.
    #[schemars(with = "String")]
    pub drain: Span,
    /// Where terminals may go. Changes at SIGHUP.
    pub egress: EgressTable,
    /// What each terminal may do; what egress denies stays denied. Changes at SIGHUP, for flows from then on.
    pub policy: Policy,
    /// What single terminals may do, by their name or key: a table `[terminal.NAME]` with
    /// options of `[policy]`, which hold in the place of those there. Changes at SIGHUP.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub terminal: BTreeMap<String, Policy>,
    /// A network for IP packets of terminals and of other clients (CONNECT-IP, RFC 9484). Needs
    /// root or CAP_NET_ADMIN, nftables, and forwarding switched on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<IpTable>,
    /// Figures for Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Windows, controller, memory.
    pub transport: Transport,
}

/// The network that terminals have addresses in for IP packets, each the same one for as long
/// as nobody else has it. Which protocols a terminal may use says `policy.ip`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IpTable {
    /// At most one network of IPv4 and one of IPv6, like `["10.88.0.0/16", "fd88::/64"]`, that
    /// nothing else uses here. One that is not public is translated to this machine's addresses.
    #[serde(deserialize_with = "networks")]
    #[schemars(with = "Vec<String>")]
    pub networks: Vec<ipnet::IpNet>,
}

impl IpTable {
    fn check(&self) -> Result<(), String> {
        let ipv4 = self.networks.iter().filter(|n| n.addr().is_ipv4()).count();
        if self.networks.is_empty() || ipv4 > 1 || self.networks.len() - ipv4 > 1 {
            return Err("ip.networks: give one network of IPv4, one of IPv6, or one of each, like [\"10.88.0.0/16\", \"fd88::/64\"]".into());
        }
        let bits = |network: &ipnet::IpNet| network.max_prefix_len() - network.prefix_len();
        match self.networks.iter().find(|network| bits(network) < 3) {
            Some(small) => Err(format!(
                "ip.networks: {small} has no room for terminals; its first address is the gateway's; a /29 of IPv4 or a /125 of IPv6 is the smallest"
            )),
            None => Ok(()),
        }
    }
}

/// Figures for Prometheus, at http://LISTEN/metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Address and port, TCP. Whoever reaches it reads names and rates of terminals.
    #[serde(deserialize_with = "socket_address")]
    #[schemars(with = "String")]
    pub listen: SocketAddr,
}

/// Where terminals may go: the public internet, and what is listed.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EgressTable {
    /// Networks that may be dialled although they are not public.
    #[serde(deserialize_with = "networks")]
    #[schemars(with = "Vec<String>")]
    pub allow: Vec<ipnet::IpNet>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: ([0, 0, 0, 0], 4433).into(),
            user: None,
            log: "info".into(),
            drain: DRAIN,
            ip: None,
            metrics: None,
            egress: EgressTable::default(),
            policy: Policy::default(),
            terminal: BTreeMap::new(),
            transport: Transport::default(),
        }
    }
}

impl Gateway {
    /// Checks what cannot be seen in one field alone.
    pub fn check(&self) -> Result<(), String> {
        check_common(&self.log, &self.transport)?;
        if let Some(ip) = &self.ip {
            ip.check()?;
        }
        (self.policy.check()).map_err(|why| format!("policy.{why}"))?;
        for (name, policy) in &self.terminal {
            policy
                .check()
                .map_err(|why| format!("terminal.{name}.{why}"))?;
        }
        Ok(())
    }

    /// What may be dialled.
    pub fn egress(&self) -> Egress {
        Egress::new(self.egress.allow.clone())
    }
}

/// `terminal.toml`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Terminal {
    /// The user that the terminal becomes after its start as root; with transparent ingress
    /// it keeps the capabilities CAP_NET_ADMIN and CAP_NET_RAW. Its files must be that user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What is logged: error, warn, info, debug or trace. The environment variable
    /// BENTPIPE_LOG has the last word. Changes at SIGHUP.
    pub log: String,
    /// How long open flows may go on after SIGTERM, while new ones are held back.
    #[schemars(with = "String")]
    pub drain: Span,
    /// How applications' connections come in; at least one of its tables.
    pub ingress: Ingress,
    /// A resolver for applications: their questions of DNS go through the tunnel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// Figures for Prometheus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Windows, controller, memory.
    pub transport: Transport,
}

impl Default for Terminal {
    fn default() -> Self {
        Self {
            user: None,
            log: "info".into(),
            drain: DRAIN,
            ingress: Ingress::default(),
            dns: None,
            metrics: None,
            transport: Transport::default(),
        }
    }
}

/// Open flows have this long after SIGTERM.
const DRAIN: Span = Span::from_millis(10_000);

impl Terminal {
    /// How names are resolved, if they are.
    pub fn resolver(&self) -> Option<Settings> {
        let settings = |cache, allow_private| Settings {
            cache,
            allow_private,
        };
        match (&self.dns, &self.ingress.transparent) {
            (Some(dns), _) => Some(settings(dns.cache, dns.allow_private.clone())),
            (None, Some(transparent)) if transparent.dns => {
                Some(settings(dns::cache(), Vec::new()))
            }
            _ => None,
        }
    }
}

fn socket_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse_socket_address(&String::deserialize(deserializer)?)
}

fn socket_addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SocketAddr>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts
        .iter()
        .map(|text| parse_socket_address(text))
        .collect()
}

fn parse_socket_address<E: serde::de::Error>(text: &str) -> Result<SocketAddr, E> {
    text.parse().map_err(|_| {
        E::custom(format!(
            "{text:?} is not an address and a port; write it like \"0.0.0.0:4433\" or \"[::1]:1080\""
        ))
    })
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ipnet::IpNet>, D::Error> {
    let network = |text: &String| {
        text.parse().map_err(|_| {
            D::Error::custom(format!(
                "{text:?} is not a network; write it like \"10.9.0.0/16\" or \"fd00::/8\", one address as \"10.9.0.1/32\""
            ))
        })
    };
    Vec::<String>::deserialize(deserializer)?
        .iter()
        .map(network)
        .collect()
}

impl Terminal {
    /// Checks what cannot be seen in one field alone.
    pub fn check(&self) -> Result<(), String> {
        check_common(&self.log, &self.transport)?;
        let ingress = &self.ingress;
        if let Some(dns) = &self.dns {
            dns.check(ingress.transparent.as_ref().is_some_and(|t| t.dns))?;
        }
        ingress.check()
    }
}

/// Checks who may use what listens at `listen`: other machines by list alone.
fn check_clients(
    table: &str,
    listen: &[SocketAddr],
    clients: &[ipnet::IpNet],
) -> Result<(), String> {
    let open = listen.iter().find(|address| !address.ip().is_loopback());
    match (open, clients.is_empty()) {
        (Some(open), true) => Err(format!(
            "{table}.listen = \"{open}\": other machines could reach it, and none may use it; list those that may, like clients = [\"192.168.1.0/24\"], or listen on \"127.0.0.1:{}\"",
            open.port()
        )),
        (None, false) => Err(format!(
            "{table}.clients has no effect: no other machine reaches {}; remove it, or listen on an address of this machine",
            listen
                .iter()
                .map(|address| format!("\"{address}\""))
                .collect::<Vec<_>>()
                .join(", ")
        )),
        _ => Ok(()),
    }
}

fn check_common(log: &str, transport: &Transport) -> Result<(), String> {
    crate::log::check(log)?;
    if transport.contracted_rate.is_some() && transport.controller != Choice::Fixed.into() {
        return Err(format!(
            "transport.contracted_rate has no effect with controller = \"{}\"; remove it, or set controller = \"fixed\"",
            transport.controller
        ));
    }
    if transport.contracted_rate.is_none() && transport.controller == Choice::Fixed.into() {
        return Err("transport.contracted_rate is missing: controller = \"fixed\" sends at that rate; add contracted_rate = \"20 Mbit/s\", or what your contract says".into());
    }
    transport.check().map_err(|error| error.to_string())
}

/// The JSON Schema of `terminal.toml`.
pub fn terminal_schema() -> schemars::Schema {
    schemars::schema_for!(Terminal)
}

/// The JSON Schema of `gateway.toml`.
pub fn gateway_schema() -> schemars::Schema {
    schemars::schema_for!(Gateway)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        toml::from_str::<Terminal>(text)
            .unwrap()
            .check()
            .unwrap_err()
    }

    #[test]
    fn a_proxy_for_everybody_is_refused_and_one_for_listed_networks_is_not() {
        let open = "[ingress.socks5]\nlisten = \"0.0.0.0:1080\"\n";
        let told = refusal(open);
        assert!(told.contains("clients = [\"192.168.1.0/24\"]"), "{told}");
        let listed = format!("{open}clients = [\"192.168.1.0/24\"]\n");
        toml::from_str::<Terminal>(&listed)
            .unwrap()
            .check()
            .unwrap();
    }

    #[test]
    fn a_resolver_for_everybody_or_at_every_address_is_refused() {
        let ingress = "[ingress.socks5]\nlisten = \"127.0.0.1:1080\"\n";
        for (dns, told) in [
            (
                "listen = [\"192.168.1.1:53\"]",
                "clients = [\"192.168.1.0/24\"]",
            ),
            (
                "listen = [\"127.0.0.1:53\"]\nclients = [\"10.0.0.0/8\"]",
                "has no effect",
            ),
            (
                "listen = [\"0.0.0.0:53\"]\nclients = [\"10.0.0.0/8\"]",
                "list them, like",
            ),
            ("listen = []", "name at least one address"),
            (
                "tls = { listen = [], certificate = \"c\", key = \"k\" }",
                "dns.listen = []",
            ),
            (
                "listen = [\"127.0.0.1:53\"]\ntls = { listen = [], certificate = \"c\", key = \"k\" }",
                "dns.tls.https = []",
            ),
            (
                "tls = { https = [\"192.168.1.1:443\"], certificate = \"c\", key = \"k\" }",
                "clients = [\"192.168.1.0/24\"]",
            ),
            (
                "tls = { listen = [\"192.168.1.1:853\"], certificate = \"c\", key = \"k\" }",
                "clients = [\"192.168.1.0/24\"]",
            ),
        ] {
            let said = refusal(&format!("{ingress}[dns]\n{dns}\n"));
            assert!(said.contains(told), "{dns}: {said}");
        }
        let right = format!(
            "{ingress}[dns]\nlisten = [\"127.0.0.1:53\"]\nallow_private = [\"10.9.0.0/16\"]\n"
        );
        toml::from_str::<Terminal>(&right).unwrap().check().unwrap();
    }

    #[test]
    fn an_option_without_effect_is_an_error() {
        let socks = "[ingress.socks5]\nlisten = \"127.0.0.1:1080\"\n";
        let rate = refusal(&format!(
            "{socks}[transport]\ncontracted_rate = \"20 Mbit/s\"\n"
        ));
        assert!(rate.contains("has no effect with controller"), "{rate}");
        let clients = refusal(&format!("{socks}clients = [\"192.168.1.0/24\"]\n"));
        assert!(clients.contains("has no effect"), "{clients}");
        let fixed = refusal(&format!("{socks}[transport]\ncontroller = \"fixed\"\n"));
        assert!(fixed.contains("contracted_rate is missing"), "{fixed}");
    }

    #[test]
    fn a_wrong_address_or_network_is_told_how_to_be_written() {
        for (text, said) in [
            (
                "listen = \"4433\"",
                "\"4433\" is not an address and a port; write it like",
            ),
            (
                "[egress]\nallow = [\"10.0.0.0/33\"]",
                "\"10.0.0.0/33\" is not a network; write it like",
            ),
            (
                "[egress]\nallow = [\"10.0.0.1\"]",
                "one address as \"10.9.0.1/32\"",
            ),
        ] {
            let error = toml::from_str::<Gateway>(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        toml::from_str::<Gateway>("listen = \"[::]:4433\"\n[egress]\nallow = [\"10.9.0.0/16\"]")
            .unwrap();
    }
}

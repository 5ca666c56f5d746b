//! `quic-pep.toml`: types, checks, defaults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_quicpep::proxy::Mode;
use bentpipe_quicpep::routes::{Kind, Route, Routes};
use bentpipe_quicpep::transport::Side;
use bentpipe_units::{Bytes, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connections that are kept ready where nothing else is said: a browser opens one or two at a time.
const READY: usize = 4;
/// The most.
const MOST_READY: usize = 64;

/// `quic-pep.toml`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuicPep {
    /// Where clients arrive, UDP.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Who is waited for.
    pub mode: Mode,
    /// The user that the proxy becomes after its start as root. Its files must be that user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What is logged: error, warn, info, debug or trace. The environment variable
    /// BENTPIPE_LOG has the last word.
    pub log: String,
    /// What all connections may hold together.
    #[schemars(with = "String")]
    pub memory: Bytes,
    /// Where clients are taken whose server name is not in `names`: address, kind, name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    pub next: Option<Route>,
    /// Where clients are taken by the server name that they ask for: address, kind, name.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, String>>")]
    pub names: BTreeMap<String, Route>,
    /// Connections that are kept open to each next hop of kind "pep", so that a client's data
    /// wait for no handshake there; without it, 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<usize>,
    /// A file with the authorities, in PEM, by which next hops are verified; without it, the
    /// system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The certificate that clients are shown, in PEM with those that lead to its authority;
    /// without it, the local authority that `bentpipe quic-pep init` has made names every
    /// server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The private key of `certificate`, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Connections with clients.
    pub towards_clients: Side,
    /// Connections with next hops.
    pub towards_next: Side,
}

impl Default for QuicPep {
    fn default() -> Self {
        Self {
            listen: ([0, 0, 0, 0], 4433).into(),
            mode: Mode::default(),
            user: None,
            log: "info".into(),
            memory: Bytes::new(1 << 30),
            next: None,
            names: BTreeMap::new(),
            ready: None,
            ca: None,
            certificate: None,
            key: None,
            towards_clients: Side::ground(
                Rate::from_bits_per_second(1_000_000_000),
                Span::from_millis(20),
            ),
            towards_next: Side::default(),
        }
    }
}

impl QuicPep {
    /// Checks what cannot be seen in one field alone.
    pub fn check(&self) -> Result<(), String> {
        crate::log::check(&self.log)?;
        self.routes().check().map_err(|error| error.to_string())?;
        for (table, side) in [
            ("towards_clients", &self.towards_clients),
            ("towards_next", &self.towards_next),
        ] {
            side.check().map_err(|error| format!("{table}.{error}"))?;
        }
        match (&self.certificate, &self.key) {
            (Some(_), None) => {
                return Err("key is missing: the private key of `certificate`".into());
            }
            (None, Some(_)) => {
                return Err(
                    "key has no effect without `certificate`; add it, or remove `key`".into(),
                );
            }
            _ => {}
        }
        if let Some(ready) = self.ready {
            if ready > MOST_READY {
                return Err(format!("ready = {ready}: give 0 to {MOST_READY}"));
            }
            if !self.routes().all().any(|route| route.kind == Kind::Pep) {
                return Err(format!(
                    "ready = {ready} has no effect without a next hop of kind \"pep\"; give one that kind, or remove `ready`"
                ));
            }
        }
        if self.memory.as_u64() < 1 << 20 {
            return Err(format!(
                "memory = \"{}\": give at least \"1 MiB\"; a connection needs 440 KiB",
                self.memory
            ));
        }
        Ok(())
    }

    /// Connections that are kept open to each next hop that is a proxy.
    pub fn ready(&self) -> usize {
        self.ready.unwrap_or(READY)
    }

    /// Where clients are taken.
    pub fn routes(&self) -> Routes {
        let names = self.names.iter();
        Routes {
            by_name: names
                .map(|(name, route)| (name.to_ascii_lowercase(), route.clone()))
                .collect(),
            otherwise: self.next.clone(),
        }
    }
}

/// The JSON Schema of `quic-pep.toml`.
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(QuicPep)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        match toml::from_str::<QuicPep>(text) {
            Ok(config) => config.check().unwrap_err(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_option_can_be_set() {
        let text = include_str!("example.toml");
        let config: QuicPep = toml::from_str(text).unwrap();
        config.check().unwrap();
        let mut set = toml::Table::try_from(&config).unwrap();
        let schema = schema().to_value();
        for option in schema["properties"].as_object().unwrap().keys() {
            assert!(set.remove(option).is_some(), "example.toml lacks {option}");
            assert!(
                text.contains(option.as_str()),
                "example.toml lacks {option}"
            );
        }
    }

    #[test]
    fn one_next_hop_of_kind_pep_is_enough_for_ready() {
        let text = "next = { address = \"a.example:443\" }\nready = 0\n\
                    [names.b]\naddress = \"b.example:443\"\nkind = \"pep\"";
        let config: QuicPep = toml::from_str(text).unwrap();
        config.check().unwrap();
        assert_eq!(config.ready(), 0);
        assert_eq!(QuicPep::default().ready(), READY);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let next = "next = { address = \"a.example:443\" }\n";
        for (text, said) in [
            ("", "there is no destination"),
            (
                "next = { address = \"a.example\" }",
                "is not a host and a UDP port",
            ),
            (&*format!("{next}key = \"k.pem\""), "key has no effect"),
            (&*format!("{next}certificate = \"c.pem\""), "key is missing"),
            (
                &*format!("{next}memory = \"1 kB\""),
                "give at least \"1 MiB\"",
            ),
            (
                &*format!("{next}[towards_next]\ncontroller = \"reno\""),
                "controller \"reno\" is unknown",
            ),
            (
                &*format!("{next}[towards_next]\ncontroller = \"fixed\""),
                "contracted_rate",
            ),
            (
                &*format!("{next}[towards_clients]\nversion = 3"),
                "towards_clients.version = \"3\": give 1 (RFC 9000) or 2",
            ),
            (
                &*format!("{next}[towards_clients]\nstreams = 0"),
                "towards_clients.streams",
            ),
            (
                &*format!("{next}ready = 4"),
                "ready = 4 has no effect without a next hop of kind \"pep\"",
            ),
            (
                "next = { address = \"a.example:443\", kind = \"pep\" }\nready = 65",
                "ready = 65: give 0 to 64",
            ),
            (&*format!("{next}colour = 1"), "unknown field"),
        ] {
            let told = refusal(text);
            assert!(told.contains(said), "{text}: {told}");
        }
    }
}

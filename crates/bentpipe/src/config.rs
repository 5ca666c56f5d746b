//! The configuration files of terminal and gateway: parse, check.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bentpipe_os::tproxy::{Capture, Fail};
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::identity::{Fingerprint, Identity};
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::transport::Transport;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::{self, Failure};

/// `gateway.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Gateway {
    /// Where terminals arrive, UDP.
    #[serde(deserialize_with = "socket_address")]
    pub listen: SocketAddr,
    pub egress: EgressTable,
    pub transport: Transport,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EgressTable {
    /// Networks that may be dialled although they are not public.
    #[serde(deserialize_with = "networks")]
    pub allow: Vec<ipnet::IpNet>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            listen: ([0, 0, 0, 0], 4433).into(),
            egress: EgressTable::default(),
            transport: Transport::default(),
        }
    }
}

impl Gateway {
    pub fn egress(&self) -> Egress {
        Egress::new(self.egress.allow.clone())
    }
}

/// `terminal.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Terminal {
    pub ingress: Ingress,
    pub transport: Transport,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ingress {
    pub transparent: Option<Transparent>,
    pub socks5: Option<Socks5>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Transparent {
    /// TCP that comes in through these is taken.
    pub interfaces: Vec<String>,
    /// Where the kernel delivers it, on loopback.
    #[serde(default = "transparent_port")]
    pub port: u16,
    /// Private and link-local destinations are left alone (RFC 1918, RFC 6598, RFC 4193),
    /// as the networks always are that this machine is connected to.
    #[serde(default = "yes")]
    pub leave_private: bool,
    /// Destinations that are left alone as well.
    #[serde(default, deserialize_with = "networks")]
    pub leave: Vec<ipnet::IpNet>,
    /// What becomes of connections when the terminal was killed: held back (closed), or
    /// outside the tunnel (open).
    #[serde(default)]
    pub fail: Fail,
    /// What becomes of them when the terminal is stopped in order.
    #[serde(default)]
    pub after_stop: AfterStop,
}

/// What becomes of connections that would be taken, once the terminal was stopped in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AfterStop {
    /// They go their own way: the rules are removed.
    #[default]
    Release,
    /// They are held back, until the terminal is started again or `bentpipe terminal
    /// release` is run.
    Hold,
}

impl Transparent {
    /// The destinations that are left alone, beside connected networks.
    pub fn left_alone(&self) -> Vec<ipnet::IpNet> {
        let private = PRIVATE.iter().filter(|_| self.leave_private);
        let private = private.map(|text| text.parse().expect("these are networks"));
        self.leave.iter().copied().chain(private).collect()
    }

    /// What of the connections is taken.
    pub fn capture(&self) -> Capture {
        Capture {
            interfaces: self.interfaces.clone(),
            port: self.port,
            leave: self.left_alone(),
            fail: self.fail,
        }
    }
}

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

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Socks5 {
    #[serde(deserialize_with = "socket_address")]
    pub listen: SocketAddr,
}

fn socket_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        D::Error::custom(format!(
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

pub fn transparent_port() -> u16 {
    4480
}

impl Terminal {
    fn check(&self) -> Result<(), String> {
        let ingress = &self.ingress;
        if ingress.transparent.is_none() && ingress.socks5.is_none() {
            return Err("ingress is empty: nothing could reach the tunnel; add [ingress.socks5] with listen = \"127.0.0.1:1080\", or [ingress.transparent] with interfaces = [\"lan0\"]".into());
        }
        if let Some(transparent) = &ingress.transparent {
            let named_well = |name: &String| {
                (1..=15).contains(&name.len())
                    && name
                        .chars()
                        .all(|c| c.is_ascii_graphic() && !"\"/\\".contains(c))
            };
            if transparent.interfaces.is_empty() {
                return Err("ingress.transparent.interfaces = []: name at least one network interface, like [\"lan0\"]".into());
            }
            if let Some(name) = transparent.interfaces.iter().find(|name| !named_well(name)) {
                return Err(format!(
                    "ingress.transparent.interfaces: {name:?} is not a name of a network interface; `ip link` lists them"
                ));
            }
            if transparent.port == 0 {
                return Err("ingress.transparent.port = 0: give a port from 1 to 65535".into());
            }
        }
        Ok(())
    }
}

/// The files of one end. What a person writes and what bentpipe keeps are different
/// files in one directory.
#[derive(Debug)]
pub struct Files {
    /// The configuration, written by a person.
    pub config: PathBuf,
    role: &'static str,
    /// Where systemd wants what changes by itself (StateDirectory=); without, it lies
    /// beside the rest.
    state: Option<PathBuf>,
}

/// Whom a terminal is paired with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pairing {
    pub gateway: String,
    pub gateway_key: Fingerprint,
}

impl Files {
    pub fn gateway(config: PathBuf) -> Self {
        Self::of("gateway", config)
    }

    pub fn terminal(config: PathBuf) -> Self {
        Self::of("terminal", config)
    }

    fn of(role: &'static str, config: PathBuf) -> Self {
        let told = std::env::var_os("STATE_DIRECTORY").unwrap_or_default();
        Self {
            config,
            role,
            state: state_directory(&told),
        }
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.config.with_file_name(name)
    }

    pub fn key(&self) -> PathBuf {
        self.beside(&format!("{}.key", self.role))
    }

    /// What is known of the paths to the peers.
    pub fn paths(&self) -> PathBuf {
        let name = format!("{}.paths.toml", self.role);
        match &self.state {
            Some(state) => state.join(name),
            None => self.beside(&name),
        }
    }

    pub fn registry(&self) -> PathBuf {
        self.beside("terminals.toml")
    }

    pub fn pairing(&self) -> PathBuf {
        self.beside("pairing.toml")
    }

    /// Writes a first configuration where there is none, for people to change.
    pub fn write_first(&self, text: &str) -> Result<bool, Failure> {
        if self.config.exists() {
            return Ok(false);
        }
        if let Some(directory) = self.config.parent() {
            std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
        }
        std::fs::write(&self.config, text).map_err(|error| Failure::file(&self.config, error))?;
        Ok(true)
    }

    /// This end's identity, made when there is none yet.
    pub fn identity(&self) -> Result<Identity, Failure> {
        let path = self.key();
        if path.exists() {
            let pem = failure::read(&path)?;
            return Identity::from_pem(&pem).map_err(|error| Failure::file(&path, error));
        }
        let seed = bentpipe_os::secret::random().map_err(anyhow::Error::from)?;
        let identity = Identity::from_seed(&seed);
        bentpipe_os::secret::write(&path, identity.to_pem())
            .map_err(|error| Failure::file(&path, error))?;
        Ok(identity)
    }

    pub fn read_gateway(&self) -> Result<Gateway, Failure> {
        let config: Gateway = parse(&self.config)?;
        config
            .transport
            .check()
            .map_err(|error| Failure::file(&self.config, error))?;
        Ok(config)
    }

    pub fn read_terminal(&self) -> Result<Terminal, Failure> {
        let config: Terminal = parse(&self.config)?;
        config
            .transport
            .check()
            .map_err(|error| Failure::file(&self.config, error))?;
        config
            .check()
            .map_err(|error| Failure::file(&self.config, error))?;
        Ok(config)
    }

    pub fn read_pairing(&self) -> Result<(Target, Fingerprint), Failure> {
        let path = self.pairing();
        if !path.exists() {
            return Err(Failure::Configuration(format!(
                "{} is not there: this terminal is not paired with a gateway yet; run `bentpipe gateway init` at the gateway and give the line that it prints to `bentpipe terminal join` here",
                path.display()
            )));
        }
        let pairing: Pairing = parse(&path)?;
        let gateway = pairing
            .gateway
            .parse()
            .map_err(|error| Failure::file(&path, format!("gateway: {error}")))?;
        Ok((gateway, pairing.gateway_key))
    }

    pub fn write_pairing(&self, gateway: &Target, gateway_key: Fingerprint) -> Result<(), Failure> {
        let path = self.pairing();
        let pairing = Pairing {
            gateway: gateway.to_string(),
            gateway_key,
        };
        let text = toml::to_string(&pairing).map_err(anyhow::Error::from)?;
        bentpipe_os::secret::write(&path, &text).map_err(|error| Failure::file(&path, error))
    }
}

/// The first of the directories that systemd has `told`, with colons between them.
fn state_directory(told: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(told)
        .next()
        .filter(|first| first.is_absolute())
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    toml::from_str(&failure::read(path)?).map_err(|error| Failure::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn what_changes_by_itself_lies_where_systemd_says_or_beside_the_rest() {
        let paths = |told: &str| {
            let files = Files {
                config: "/etc/bentpipe/terminal.toml".into(),
                role: "terminal",
                state: state_directory(OsStr::new(told)),
            };
            files.paths().display().to_string()
        };
        assert_eq!(paths(""), "/etc/bentpipe/terminal.paths.toml");
        assert_eq!(paths("lib/bentpipe"), "/etc/bentpipe/terminal.paths.toml");
        let state = "/var/lib/bentpipe/terminal.paths.toml";
        assert_eq!(paths("/var/lib/bentpipe"), state);
        assert_eq!(paths("/var/lib/bentpipe:/var/lib/other"), state);
    }
}

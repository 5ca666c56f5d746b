//! The files of one end: what a person writes and what bentpipe keeps.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use bentpipe_os::proxy::users::Users;
use bentpipe_tunnel::identity::{Fingerprint, Identity};
use bentpipe_tunnel::target::Target;
use serde::{Deserialize, Serialize};

use crate::config::{Gateway, Terminal};
use crate::failure::{self, Failure};
use crate::key_log;

/// The files of one end. What a person writes and what bentpipe keeps are different
/// files in one directory.
#[derive(Debug, Clone)]
pub struct Files {
    /// The configuration, written by a person.
    pub config: PathBuf,
    role: &'static str,
    /// `--tun` was said.
    tun: bool,
    /// Where systemd wants what changes by itself (StateDirectory=); without, it lies
    /// beside the rest.
    state: Option<PathBuf>,
}

/// A gateway that a terminal is paired with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PairedGateway {
    #[serde(with = "target")]
    pub gateway: Target,
    pub gateway_key: Fingerprint,
    /// The key that it has announced to have next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_key: Option<Fingerprint>,
    /// The bearer token that it wants, if it is of somebody else's making.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// `pairing.toml`: the gateways that a terminal is paired with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pairing {
    #[serde(with = "target")]
    gateway: Target,
    gateway_key: Fingerprint,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_key: Option<Fingerprint>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// Those beside the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    further: Vec<PairedGateway>,
}

/// Host and port as text.
mod target {
    use super::{Deserialize as _, Target};

    pub fn serialize<S: serde::Serializer>(target: &Target, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(target)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
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
            tun: false,
            state: first_directory(&told),
        }
    }

    /// The same of a terminal that takes this machine's own traffic, if it was asked to.
    pub fn with_tun(self, asked: bool) -> Self {
        Self { tun: asked, ..self }
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.config.with_file_name(name)
    }

    pub fn key(&self) -> PathBuf {
        self.beside(&format!("{}.key", self.role))
    }

    /// The key that this end will have.
    pub fn next_key(&self) -> PathBuf {
        self.beside(&format!("{}.key.next", self.role))
    }

    /// What is known of the paths to the peers.
    pub fn paths(&self) -> PathBuf {
        let name = format!("{}.paths.toml", self.role);
        match &self.state {
            Some(state) => state.join(name),
            None => self.beside(&name),
        }
    }

    /// What terminals have carried in this month.
    pub fn volumes(&self) -> PathBuf {
        let name = format!("{}.volumes.toml", self.role);
        match &self.state {
            Some(state) => state.join(name),
            None => self.beside(&name),
        }
    }

    /// Where the running daemon tells how it stands.
    pub fn status_socket(&self) -> PathBuf {
        let name = format!("{}.sock", self.role);
        let told = std::env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
        match first_directory(&told) {
            Some(directory) => directory.join(name),
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
        let identity = match read_identity(&self.key())? {
            Some(identity) => identity,
            None => make_identity(&self.key())?,
        };
        Ok(identity.with_key_log(key_log::of_environment()))
    }

    /// The certificate that a gateway shows to other people's clients, with its chain.
    fn for_others(&self) -> PathBuf {
        self.beside("clients.pem")
    }

    fn key_for_others(&self) -> PathBuf {
        self.beside("clients.key")
    }

    /// A gateway's identity, with the certificate for other people's clients if there is one.
    pub fn gateway_identity(&self) -> Result<Identity, Failure> {
        let mut identity = self.identity()?;
        let path = self.for_others();
        if path.exists() {
            let key = self.key_for_others();
            check_private(&key)?;
            let set = identity.set_for_others(&failure::read(&path)?, &failure::read(&key)?);
            set.map_err(|error| {
                let remedy = "`bentpipe gateway certificate gateway HOST` makes both anew";
                Failure::file(&path, format!("{error} ({}); {remedy}", key.display()))
            })?;
        }
        Ok(identity)
    }

    /// Writes the certificate that a gateway shows to other people's clients, and its key.
    pub fn write_for_others(&self, chain: &str, key: &str) -> Result<(), Failure> {
        write_secret(&self.key_for_others(), key)?;
        write_secret(&self.for_others(), chain)
    }

    fn authority_certificate(&self) -> PathBuf {
        self.beside("authority.pem")
    }

    /// The key of a gateway's certificate authority.
    pub fn authority_key(&self) -> PathBuf {
        self.beside("authority.key")
    }

    /// The certificate of a gateway's authority and its key, if there are any.
    pub fn authority(&self) -> Result<Option<(String, String)>, Failure> {
        let key = self.authority_key();
        if !key.exists() {
            return Ok(None);
        }
        check_private(&key)?;
        let certificate = failure::read(&self.authority_certificate())?;
        Ok(Some((certificate, failure::read(&key)?)))
    }

    /// Writes both.
    pub fn write_authority(&self, certificate: &str, key: &str) -> Result<(), Failure> {
        write_secret(&self.authority_certificate(), certificate)?;
        write_secret(&self.authority_key(), key)
    }

    /// The identity that this end will have, if there is one.
    pub fn next_identity(&self) -> Result<Option<Identity>, Failure> {
        read_identity(&self.next_key())
    }

    /// The same, made when there is none yet.
    pub fn make_next_identity(&self) -> Result<Identity, Failure> {
        match self.next_identity()? {
            Some(identity) => Ok(identity),
            None => make_identity(&self.next_key()),
        }
    }

    /// Makes the next identity the present one; the key of that is gone.
    pub fn use_next_identity(&self) -> Result<(), Failure> {
        let path = self.key();
        std::fs::rename(self.next_key(), &path).map_err(|error| Failure::file(&path, error))
    }

    pub fn read_gateway(&self) -> Result<Gateway, Failure> {
        let config: Gateway = self.read_config()?;
        config
            .check()
            .map_err(|error| Failure::file(&self.config, error))?;
        Ok(config)
    }

    pub fn read_terminal(&self) -> Result<Terminal, Failure> {
        let mut config: Terminal = self.read_config()?;
        if self.tun {
            config.ingress.tun.get_or_insert_default();
        }
        if config.ingress.tun.is_some() {
            // What it leaves unsaid holds.
            config.ingress.transparent.get_or_insert_default();
        }
        config
            .check()
            .map_err(|error| Failure::file(&self.config, error))?;
        Ok(config)
    }

    fn read_config<T: serde::de::DeserializeOwned>(&self) -> Result<T, Failure> {
        match std::fs::metadata(&self.config) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::file(
                &self.config,
                match self.role {
                    "gateway" => {
                        "there is no such file; `bentpipe gateway init --endpoint HOST:PORT` writes a first one"
                    }
                    _ => {
                        "there is no such file; `bentpipe terminal join` writes a first one, with the line that `bentpipe gateway init` prints at the gateway"
                    }
                },
            )),
            _ => parse(&self.config),
        }
    }

    /// The users of a proxy, from the file that the configuration names, if it names one.
    pub fn users(&self, file: Option<&PathBuf>) -> Result<Option<Users>, Failure> {
        let Some(file) = file else {
            return Ok(None);
        };
        let path = match self.config.parent() {
            Some(directory) => directory.join(file),
            None => file.clone(),
        };
        let text = failure::read(&path)?;
        check_mode(
            &path,
            "list of users",
            "whoever reads it can use the proxy",
            "change the passwords",
        )?;
        let users = Users::read(&text).map_err(|error| Failure::file(&path, error))?;
        Ok(Some(users))
    }

    /// The gateways that the terminal is paired with: at least one.
    pub fn read_pairing(&self) -> Result<Vec<PairedGateway>, Failure> {
        let path = self.pairing();
        if !path.exists() {
            return Err(Failure::Configuration(format!(
                "{} is not there: this terminal is not paired with a gateway yet; run `bentpipe gateway init` at the gateway and give the line that it prints to `bentpipe terminal join` here",
                path.display()
            )));
        }
        let pairing: Pairing = parse(&path)?;
        let first = PairedGateway {
            gateway: pairing.gateway,
            gateway_key: pairing.gateway_key,
            next_key: pairing.next_key,
            token: pairing.token,
        };
        Ok(std::iter::once(first).chain(pairing.further).collect())
    }

    /// Writes down the gateways that the terminal is paired with: at least one.
    pub fn write_pairing(&self, gateways: &[PairedGateway]) -> Result<(), Failure> {
        let path = self.pairing();
        let [first, further @ ..] = gateways else {
            return Err(Failure::file(&path, "a terminal needs a gateway"));
        };
        let pairing = Pairing {
            gateway: first.gateway.clone(),
            gateway_key: first.gateway_key,
            next_key: first.next_key,
            token: first.token.clone(),
            further: further.to_vec(),
        };
        let text = toml::to_string(&pairing).map_err(anyhow::Error::from)?;
        write_secret(&path, &text)
    }
}

fn write_secret(path: &Path, text: &str) -> Result<(), Failure> {
    bentpipe_os::secret::write(path, text).map_err(|error| Failure::file(path, error))
}

/// The identity whose key is at `path`, if there is such a file.
fn read_identity(path: &Path) -> Result<Option<Identity>, Failure> {
    if !path.exists() {
        return Ok(None);
    }
    check_private(path)?;
    let pem = failure::read(path)?;
    let wrong = "this is not an Ed25519 private key in PEM (PKCS #8); restore it from a copy, or remove it and pair anew";
    let identity = Identity::from_pem(&pem).map_err(|_| Failure::file(path, wrong))?;
    Ok(Some(identity))
}

/// A new identity, whose key is written to `path`.
fn make_identity(path: &Path) -> Result<Identity, Failure> {
    let seed = bentpipe_os::secret::random().map_err(anyhow::Error::from)?;
    let identity = Identity::from_seed(&seed);
    write_secret(path, identity.to_pem())?;
    Ok(identity)
}

/// The first of the directories that systemd has `told`, with colons between them.
fn first_directory(told: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(told)
        .next()
        .filter(|first| first.is_absolute())
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    toml::from_str(&failure::read(path)?).map_err(|error| Failure::file(path, error))
}

/// Refuses a key that others may read.
fn check_private(path: &Path) -> Result<(), Failure> {
    check_mode(
        path,
        "private key",
        "whoever reads it is this end",
        "remove it and pair anew",
    )
}

/// Refuses a file that others may read: `what` it is, and why that is bad.
fn check_mode(path: &Path, what: &str, why: &str, else_: &str) -> Result<(), Failure> {
    let metadata = std::fs::metadata(path).map_err(|error| Failure::file(path, error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Failure::file(
        path,
        format!(
            "this {what} is open to others (mode {mode:04o}): {why}. `chmod 600 {}`, and if others may have read it, {else_}",
            path.display()
        ),
    ))
}

/// Refuses a TLS key that others may read.
pub fn check_tls_key(path: &Path) -> Result<(), Failure> {
    check_mode(
        path,
        "private key",
        "whoever reads it can pass for this resolver",
        "have another certificate made",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_by_itself_lies_where_systemd_says_or_beside_the_rest() {
        let paths = |told: &str| {
            let files = Files {
                config: "/etc/bentpipe/terminal.toml".into(),
                tun: false,
                role: "terminal",
                state: first_directory(OsStr::new(told)),
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

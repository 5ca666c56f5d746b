//! `bentpipe terminal gateways`: the gateways that a terminal is paired with.

use std::path::{Path, PathBuf};

use bentpipe_tunnel::identity::Fingerprint;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::wire::bearer;
use clap::Subcommand;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::Config;
use super::join::FIRST_CONFIG;
use crate::daemon::say;
use crate::failure::{self, Failure};
use crate::files::{Files, PairedGateway};

#[derive(Debug, Subcommand)]
pub enum Gateways {
    /// Print them, with their keys; `bentpipe status` says which is in use
    List {
        #[command(flatten)]
        config: Config,
    },
    /// Use a gateway of somebody else's making, from the terminal's next start on
    ///
    /// It has to speak CONNECT and CONNECT-UDP over HTTP/3 (RFC 9114, RFC 9298). The terminal goes by
    /// its key, which has to be an Ed25519 or a P-256 key.
    Add {
        #[command(flatten)]
        config: Config,
        /// Where it is reached (UDP)
        #[arg(value_name = "HOST:PORT")]
        gateway: Target,
        /// Its certificate in PEM; of a chain, the first
        #[arg(long, value_name = "FILE")]
        certificate: PathBuf,
        /// A file with the bearer token that it wants with each request
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// Use a gateway no more, from the terminal's next start on
    ///
    /// The gateway goes on accepting this terminal's key until its operator revokes it.
    Remove {
        #[command(flatten)]
        config: Config,
        /// Its host and port, as `list` prints them, or its key
        gateway: String,
    },
}

pub fn run(command: Gateways) -> Result<(), Failure> {
    match command {
        Gateways::List { config } => {
            for paired in Files::terminal(config.config).read_pairing()? {
                say(format_args!(
                    "{:<32} {}",
                    paired.gateway.to_string(),
                    paired.gateway_key
                ));
            }
        }
        Gateways::Add {
            config,
            gateway,
            certificate,
            token_file,
        } => add(
            &Files::terminal(config.config),
            gateway,
            &certificate,
            token_file,
        )?,
        Gateways::Remove { config, gateway } => {
            let files = Files::terminal(config.config);
            let mut gateways = files.read_pairing()?;
            let before = gateways.len();
            gateways.retain(|paired| {
                paired.gateway.to_string() != gateway && paired.gateway_key.to_string() != gateway
            });
            let wrong = |why: &str| {
                let text = format!("{gateway}: {why}");
                Err(Failure::file(&files.pairing(), text))
            };
            if gateways.len() == before {
                return wrong(
                    "this terminal is not paired with it; `bentpipe terminal gateways list` names those that it is paired with",
                );
            }
            if gateways.is_empty() {
                return wrong(
                    "it is the last one; pair the terminal with another first (`bentpipe terminal join --add`)",
                );
            }
            files.write_pairing(&gateways)?;
            say(format_args!("removed: {gateway}"));
        }
    }
    Ok(())
}

fn add(
    files: &Files,
    gateway: Target,
    certificate: &Path,
    token_file: Option<PathBuf>,
) -> Result<(), Failure> {
    files.write_first(FIRST_CONFIG)?;
    files.identity()?;
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::file(certificate, format!("not a certificate in PEM: {error}"))
    };
    let pem = CertificateDer::from_pem_slice(failure::read(certificate)?.as_bytes());
    let pem = pem.map_err(|error| wrong(&error))?;
    let gateway_key = Fingerprint::of(&pem).map_err(|error| wrong(&error))?;
    let token = match token_file {
        Some(file) => {
            let token = failure::read(&file)?.trim().to_owned();
            if bearer::shown(&token).is_none() || token.is_empty() {
                let why = "this is not a bearer token: one line of printable characters";
                return Err(Failure::file(&file, why));
            }
            Some(token)
        }
        None => None,
    };
    let mut gateways = match files.pairing().exists() {
        true => files.read_pairing()?,
        false => Vec::new(),
    };
    gateways.retain(|old| old.gateway_key != gateway_key && old.gateway != gateway);
    say(format_args!("added: {gateway} with key {gateway_key}"));
    gateways.push(PairedGateway {
        gateway,
        gateway_key,
        next_key: None,
        token,
    });
    files.write_pairing(&gateways)
}

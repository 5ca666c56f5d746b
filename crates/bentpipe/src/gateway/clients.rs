//! `bentpipe gateway token` and `bentpipe gateway certificate`: clients of other people's making.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bentpipe_tunnel::identity::Fingerprint;
use clap::Subcommand;

use super::Config;
use super::authority::Authority;
use super::lists::{date, open};
use crate::daemon::say;
use crate::failure::Failure;
use crate::files::Files;
use crate::registry::Date;
use crate::registry::clients::{Client, Proof};

#[derive(Debug, Subcommand)]
pub enum Tokens {
    /// Make a bearer token for a client of somebody else's, and print it, once
    ///
    /// The client shows it with each request (Proxy-Authorization: Bearer TOKEN). While there are
    /// tokens, clients without a key get past the handshake, to show one.
    Add {
        #[command(flatten)]
        config: Config,
        /// What the client is called, for `[terminal.NAME]`: letters, digits, '-', '_' and '.'
        name: String,
    },
    /// Print the tokens' names, dates and hashes
    List {
        #[command(flatten)]
        config: Config,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Make a token worthless; its open sessions end within seconds
    Revoke {
        #[command(flatten)]
        config: Config,
        /// Its name, its hash, or the beginning of that
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub enum Certificates {
    /// Make a key and a certificate for a client of somebody else's, and print both, once
    ///
    /// The gateway's authority signs it; what lets the client in is that its key is on the list.
    Add {
        #[command(flatten)]
        config: Config,
        /// What the client is called, for `[terminal.NAME]`: letters, digits, '-', '_' and '.'
        name: String,
    },
    /// Print the certificates' names, dates and keys
    List {
        #[command(flatten)]
        config: Config,
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
    },
    /// Make a certificate worthless; its open sessions end within seconds
    Revoke {
        #[command(flatten)]
        config: Config,
        /// Its name, its key, or the beginning of that
        name: String,
    },
    /// Make the certificate that the gateway itself shows to such clients, and print the
    /// authority's, which they go by
    ///
    /// A running gateway takes note at SIGHUP. A certificate of another authority may lie in its
    /// place: clients.pem with its chain, and clients.key, beside the configuration.
    Gateway {
        #[command(flatten)]
        config: Config,
        /// Names and addresses by which clients reach the gateway
        #[arg(required = true)]
        host: Vec<String>,
    },
}

/// How tokens begin. Without it one in 64 begins with a dash, and is an option to the client that
/// has it on its command line; and scanners for secrets know what they have found.
const TOKEN_PREFIX: &str = "bentpipe_";

/// What only the kind of a proof counts in.
fn any() -> Fingerprint {
    Fingerprint::of_token(b"")
}

pub fn tokens(command: Tokens) -> Result<(), Failure> {
    let kind = Proof::Token(any());
    match command {
        Tokens::Add { config, name } => {
            let secret = bentpipe_os::secret::random().map_err(anyhow::Error::from)?;
            let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
            let proof = Proof::Token(Fingerprint::of_token(token.as_bytes()));
            add(config, name, proof)?;
            eprintln!("the client shows this token with each request; it is not kept here:");
            say(format_args!("{token}"));
            Ok(())
        }
        Tokens::List { config, json } => list(config, json, kind),
        Tokens::Revoke { config, name } => revoke(config, &name, kind),
    }
}

pub fn certificates(command: Certificates) -> Result<(), Failure> {
    let kind = Proof::Certificate(any());
    match command {
        Certificates::Add { config, name } => {
            let authority = Authority::open(&Files::gateway(config.config.clone()))?;
            let issued = authority.issue(&name, &[])?;
            add(config, name, Proof::Certificate(issued.key))?;
            eprintln!("the client's certificate and its private key, which is not kept here:");
            say(format_args!("{}{}", issued.chain, issued.private_key));
            Ok(())
        }
        Certificates::List { config, json } => list(config, json, kind),
        Certificates::Revoke { config, name } => revoke(config, &name, kind),
        Certificates::Gateway { config, host } => {
            let files = Files::gateway(config.config);
            let authority = Authority::open(&files)?;
            let issued = authority.issue(&host[0], &host)?;
            files.write_for_others(&issued.chain, &issued.private_key)?;
            eprintln!("clients verify the gateway by this certificate of its authority:");
            say(format_args!("{}", authority.certificate()));
            Ok(())
        }
    }
}

fn add(config: Config, name: String, proof: Proof) -> Result<(), Failure> {
    let client = Client {
        name,
        proof,
        made: Some(Date::now()),
    };
    Ok(open(config)?.add_client(client)?)
}

fn list(config: Config, json: bool, kind: Proof) -> Result<(), Failure> {
    let clients = open(config)?.current().clients_with(kind);
    if json {
        let text = serde_json::to_string_pretty(&clients).map_err(anyhow::Error::from)?;
        say(format_args!("{text}"));
        return Ok(());
    }
    for client in clients {
        let shown = client.proof.fingerprint();
        say(format_args!(
            "{:<20} {:<20} {shown}",
            client.name,
            date(client.made)
        ));
    }
    Ok(())
}

fn revoke(config: Config, name: &str, kind: Proof) -> Result<(), Failure> {
    let revoked = open(config)?.revoke_client(name, kind)?;
    say(format_args!("revoked: {}", revoked.name));
    Ok(())
}

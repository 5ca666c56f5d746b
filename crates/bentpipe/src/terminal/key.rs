//! `bentpipe terminal key`: the change of the terminal's key without an outage.

use std::sync::Arc;

use bentpipe_tunnel::identity::{Fingerprint, Identity};
use bentpipe_tunnel::paths::Paths;
use clap::Subcommand;

use super::{Config, connector, endpoint};
use crate::config;
use crate::daemon::{self, say};
use crate::failure::Failure;
use crate::files::{Files, PairedGateway};

#[derive(Debug, Subcommand)]
pub enum Key {
    /// Print this terminal's key
    Show {
        #[command(flatten)]
        config: Config,
    },
    /// Make a new key, and have all gateways know this terminal by it
    ///
    /// The old key is good at a gateway until the new one was used there. A running terminal
    /// takes the new one at SIGHUP, and its open flows go on. If a gateway cannot be reached, run
    /// it again.
    Renew {
        #[command(flatten)]
        config: Config,
    },
}

pub fn run(command: Key) -> Result<(), Failure> {
    match command {
        Key::Show { config } => {
            let files = Files::terminal(config.config);
            files.read_pairing()?;
            say(format_args!("{}", files.identity()?.fingerprint()));
            Ok(())
        }
        Key::Renew { config } => daemon::block_on(renew(Files::terminal(config.config))),
    }
}

async fn renew(files: Files) -> Result<(), Failure> {
    let config = files.read_terminal()?;
    let gateways = files.read_pairing()?;
    let old = Arc::new(files.identity()?);
    let new = files.make_next_identity()?.fingerprint();
    for gateway in &gateways {
        let renewed = at(&files, &config, gateway, &old, new).await?;
        renewed.map_err(|why| {
            anyhow::anyhow!(
                "the gateway {} does not know the new key: {why}. Run this again; until then the terminal has its old key",
                gateway.gateway
            )
        })?;
    }
    files.use_next_identity()?;
    say(format_args!("renewed: this terminal's key is {new}"));
    eprintln!("a running terminal uses it from SIGHUP on (`systemctl reload bentpipe-terminal`)");
    Ok(())
}

/// Has one gateway know the terminal with key `old` by `new`; the inner error says why not.
async fn at(
    files: &Files,
    config: &config::Terminal,
    gateway: &PairedGateway,
    old: &Arc<Identity>,
    new: Fingerprint,
) -> Result<Result<(), String>, Failure> {
    let endpoint = endpoint(old, config.ingress.mark())?;
    let identity = tokio::sync::watch::channel(old.clone()).1;
    let connector = connector(
        files,
        config,
        &endpoint,
        &identity,
        gateway,
        Paths::default(),
    )?;
    let renewed = match connector.open().await {
        Ok(session) => {
            let renewed = session.renew(&new).await;
            session.close();
            renewed
        }
        Err(error) => Err(error.to_string()),
    };
    daemon::patiently(endpoint.wait_idle()).await;
    Ok(renewed)
}

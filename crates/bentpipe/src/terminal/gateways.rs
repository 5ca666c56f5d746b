//! `bentpipe terminal gateways`: the gateways that a terminal is paired with.

use clap::Subcommand;

use super::Config;
use crate::daemon::say;
use crate::failure::Failure;
use crate::files::Files;

#[derive(Debug, Subcommand)]
pub enum Gateways {
    /// Print them, with their keys; `bentpipe status` says which is in use
    List {
        #[command(flatten)]
        config: Config,
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

//! `bentpipe terminal join`: pairs a terminal with a gateway.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_tunnel::identity::enrolment_line::{EnrolmentLine, EnrolmentLineError};
use bentpipe_tunnel::paths::Paths;
use tokio::sync::watch;

use super::{connector, endpoint};
use crate::daemon;
use crate::failure::{self, Failure};
use crate::files::{Files, PairedGateway};

pub const FIRST_CONFIG: &str = r#"# bentpipe terminal; all options: docs/configuration.md

# Applications that can be told to use a SOCKS5 proxy.
[ingress.socks5]
listen = "127.0.0.1:1080"

# Applications that speak HTTP CONNECT; for browsers a PAC file is at /proxy.pac.
# [ingress.http]
# listen = "127.0.0.1:3128"

# A resolver for applications: their questions go through the tunnel (port 53 needs root).
# [dns]
# listen = ["127.0.0.1:53"]

# All TCP and UDP that passes through this machine from these interfaces (needs root).
# Private networks and those that this machine is connected to are left alone. When the
# terminal does not run, the rest is held back until `bentpipe terminal release`; to let it go
# its own way, outside the tunnel: after_stop = "release", and fail = "open" for a crash.
# [ingress.transparent]
# interfaces = ["lan0"]

[transport]
# The fastest that the link may be, and its round trip: they size the buffers.
memory = "256 MiB"
expected_rate = "250 Mbit/s"
expected_rtt = "650 ms"
# How fast this end sends to the gateway: satellite (made for that), cubic, newreno,
# cubic-search, hybla, bbr3, or fixed with the rate that was contracted.
# controller = "fixed"
# contracted_rate = "20 Mbit/s"
"#;

/// The enrolment line, from wherever it was given. No error shows it: it is a secret.
pub fn read_line(given: Option<String>, file: Option<PathBuf>) -> Result<EnrolmentLine, Failure> {
    let text = match (given, file) {
        (Some(line), _) if line != "-" => line,
        (_, Some(file)) => failure::read(&file)?,
        _ => {
            if std::io::stdin().is_terminal() {
                eprintln!("the line that `bentpipe gateway init` printed:");
            }
            let mut line = String::new();
            std::io::stdin()
                .read_line(&mut line)
                .map_err(anyhow::Error::from)?;
            line
        }
    };
    text.trim()
        .parse()
        .map_err(|error: EnrolmentLineError| Failure::Configuration(error.to_string()))
}

/// Enrols this terminal by `line`; `add`: beside the gateways that it is paired with.
pub async fn join(files: Files, line: EnrolmentLine, add: bool) -> Result<(), Failure> {
    if files.write_first(FIRST_CONFIG)? {
        eprintln!("wrote {}", files.config.display());
    }
    let config = files.read_terminal()?;
    // Made before the gateway hears of it: an answer that is lost costs nothing.
    let identity = files.identity()?;
    let mut gateways = match add && files.pairing().exists() {
        true => files.read_pairing()?,
        false => Vec::new(),
    };
    let joined = PairedGateway {
        gateway: line.gateway.clone(),
        gateway_key: line.gateway_key,
        next_key: None,
        token: None,
    };
    let one_time = line.one_time_identity();
    let endpoint = endpoint(&one_time, config.ingress.mark())?;
    let connector = connector(
        &files,
        &config,
        &endpoint,
        &watch::channel(Arc::new(one_time)).1,
        &joined,
        Paths::default(),
    )?;
    let enrolled = match connector.open().await {
        Ok(session) => {
            let enrolled = session.enrol(&line.gateway, &identity.fingerprint()).await;
            session.close();
            enrolled
        }
        Err(error) => Err(error.to_string()),
    };
    // The gateway is told why, also when it was refused.
    daemon::patiently(connector.endpoint.wait_idle()).await;
    enrolled.map_err(|why| {
        anyhow::anyhow!(
            "the gateway {} did not enrol this terminal: {why}",
            line.gateway
        )
    })?;
    // The same gateway at another address, or another in its place, takes its entry.
    gateways.retain(|old| old.gateway_key != line.gateway_key && old.gateway != line.gateway);
    gateways.push(joined);
    files.write_pairing(&gateways)?;
    daemon::say(format_args!(
        "paired: gateway {} with key {}, this terminal's key is {}",
        line.gateway,
        line.gateway_key,
        identity.fingerprint()
    ));
    Ok(())
}

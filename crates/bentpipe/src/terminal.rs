//! `bentpipe terminal`: the end beside the dish.

use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_os::tcp::Machine;
use bentpipe_os::{ingress, limits, network, quic, secret, tproxy};
use bentpipe_tunnel::identity::Identity;
use bentpipe_tunnel::identity::enrolment_line::EnrolmentLine;
use bentpipe_tunnel::paths::Paths;
use bentpipe_tunnel::terminal::{Connector, Terminal};
use bentpipe_tunnel::transport::Transport;
use clap::{Args, Subcommand};
use tokio::task::JoinSet;

use crate::config::{self, Files};
use crate::daemon;
use crate::failure::Failure;
use crate::path_file::Keeper;

const FIRST_CONFIG: &str = r#"# bentpipe terminal

# Applications that can be told to use a SOCKS5 proxy.
[ingress.socks5]
listen = "127.0.0.1:1080"

# All TCP that passes through this machine from these interfaces (needs root).
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

/// The end beside the dish: takes applications' connections into the tunnel
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Command {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: Config,
}

#[derive(Debug, Args)]
struct Config {
    /// The configuration; the terminal's key and its pairing lie beside it
    #[arg(long, default_value = "/etc/bentpipe/terminal.toml")]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Pair this terminal with the gateway that printed LINE
    ///
    /// The gateway has to be running. If anything fails, run it again with the same line.
    Join {
        #[command(flatten)]
        config: Config,
        /// What `bentpipe gateway init` printed, in quotes
        line: EnrolmentLine,
    },
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command.action {
        Some(Action::Join { config, line }) => {
            daemon::block_on(join(Files::terminal(config.config), line))
        }
        None => daemon::block_on(serve(Files::terminal(command.run.config))),
    }
}

async fn join(files: Files, line: EnrolmentLine) -> Result<(), Failure> {
    if files.write_first(FIRST_CONFIG)? {
        eprintln!("wrote {}", files.config.display());
    }
    let config = files.read_terminal()?;
    // Made before the gateway hears of it: an answer that is lost costs nothing.
    let identity = files.identity()?;
    let connector = connector(
        &config,
        line.one_time_identity(),
        line.gateway.clone(),
        line.gateway_key,
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
    files.write_pairing(&line.gateway, line.gateway_key)?;
    println!(
        "paired: gateway {} with key {}, this terminal's key is {}",
        line.gateway,
        line.gateway_key,
        identity.fingerprint()
    );
    Ok(())
}

async fn serve(files: Files) -> Result<(), Failure> {
    let config = files.read_terminal()?;
    let (gateway, gateway_key) = files.read_pairing()?;
    let identity = files.identity()?;
    limits::raise_open_files();
    let (keeper, paths) = Keeper::start(files.paths());
    let connector = connector(&config, identity, gateway.clone(), gateway_key, paths)?;
    let endpoint = connector.endpoint.clone();
    if let Err(error) = network::follow(endpoint.clone()) {
        tracing::warn!("changes of this machine's addresses will be noticed late: {error}");
    }
    let (terminal, keep) = Terminal::new(connector);

    let mut tasks = JoinSet::new();
    let mut taken = Vec::new();
    if let Some(socks5) = &config.ingress.socks5 {
        let listener = ingress::listen(socks5.listen).await.map_err(|error| {
            daemon::cannot_listen("ingress.socks5.listen", "TCP", socks5.listen, &error)
        })?;
        tasks.spawn(ingress::socks5(listener, terminal.clone()));
        taken.push(format!("SOCKS5 on {}", socks5.listen));
    }
    let mut rules = None;
    if let Some(transparent) = &config.ingress.transparent {
        let installed = tproxy::install(&transparent.interfaces, transparent.port)
            .await
            .map_err(anyhow::Error::from)?;
        tasks.spawn(ingress::transparent(installed.ipv4, terminal.clone()));
        if let Some(listener) = installed.ipv6 {
            tasks.spawn(ingress::transparent(listener, terminal.clone()));
        }
        rules = Some(installed.rules);
        taken.push(format!(
            "transparent on {}",
            transparent.interfaces.join(", ")
        ));
    }
    println!("ready: {}", taken.join("; "));
    let session = terminal.session();
    tokio::select! {
        never = keep => match never {},
        () = announce(session, gateway.to_string()) => {}
        _ = tasks.join_next() => tracing::error!("an ingress has ended"),
        () = daemon::stop_signal() => {}
    }
    // First the way in, then what is on its way.
    if let Some(rules) = rules {
        rules.remove().await;
    }
    tasks.shutdown().await;
    endpoint.close(0u32.into(), b"the terminal is being stopped");
    daemon::patiently(endpoint.wait_idle()).await;
    daemon::patiently(keeper.stop()).await;
    println!("stopped");
    Ok(())
}

fn connector(
    config: &config::Terminal,
    identity: Identity,
    gateway: bentpipe_tunnel::target::Target,
    gateway_key: bentpipe_tunnel::identity::Fingerprint,
    paths: Paths,
) -> Result<Connector<Machine>, Failure> {
    // A wildcard IPv6 socket reaches IPv4 gateways too, where the machine has IPv6.
    let (endpoint, _) = quic::endpoint(([0u16; 8], 0).into(), &identity, None)
        .or_else(|_| quic::endpoint(([0, 0, 0, 0], 0).into(), &identity, None))
        .map_err(|error| anyhow::anyhow!("no UDP socket can be opened: {error}"))?;
    let transport = Transport {
        seed: secret::seed().map_err(anyhow::Error::from)?,
        ..config.transport.clone()
    };
    Ok(Connector {
        endpoint,
        identity: Arc::new(identity),
        gateway,
        gateway_key,
        paths,
        resolver: Machine::new(transport.memory),
        transport,
    })
}

/// Tells whenever a session is up, for whoever waits for it.
async fn announce(
    mut session: tokio::sync::watch::Receiver<Option<bentpipe_tunnel::terminal::Session>>,
    gateway: String,
) {
    while session.changed().await.is_ok() {
        let current = session.borrow_and_update().clone();
        if let Some(current) = current
            && current.accepted().await.is_ok()
        {
            println!("session: up with gateway {gateway}");
        }
    }
}

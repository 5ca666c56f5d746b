//! `bentpipe gateway`: the end on the internet.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_os::tcp::Machine;
use bentpipe_os::udp::Received;
use bentpipe_os::{limits, quic, secret};
use bentpipe_tunnel::gateway::{Configuration, Gateway, server_config};
use bentpipe_tunnel::identity::enrolment_line::EnrolmentLine;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::transport::Transport;
use clap::{Args, Subcommand};

use crate::config::Files;
use crate::daemon;
use crate::failure::Failure;
use crate::path_file::Keeper;
use crate::registry::FileRegistry;

const FIRST_CONFIG: &str = r#"# bentpipe gateway

# Where terminals arrive (UDP).
listen = "0.0.0.0:4433"

[egress]
# The public internet is reachable. Private, loopback, link-local, multicast and the
# gateway's own addresses are not, unless listed here, like "10.9.0.0/16".
allow = []

[transport]
# What all terminals' sessions together may hold, and the fastest link among them;
# at 250 Mbit/s and 650 ms a session may hold up to 243 MiB.
memory = "1 GiB"
expected_rate = "250 Mbit/s"
expected_rtt = "650 ms"
# How fast this end sends to the terminals: satellite (made for that), cubic, newreno,
# cubic-search, hybla, bbr3, or fixed with the rate that was contracted.
# controller = "fixed"
# contracted_rate = "20 Mbit/s"
"#;

/// The end on the internet: authenticates terminals, speaks to the real servers
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
    /// The configuration; the gateway's key and its list of terminals lie beside it
    #[arg(long, default_value = "/etc/bentpipe/gateway.toml")]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make the gateway's identity, and print a line that enrols one terminal
    ///
    /// Run it again for each further terminal. What exists stays as it is.
    Init {
        #[command(flatten)]
        config: Config,
        /// Host and UDP port by which terminals reach this gateway
        #[arg(long, value_name = "HOST:PORT")]
        endpoint: Target,
    },
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command.action {
        Some(Action::Init { config, endpoint }) => init(Files::gateway(config.config), endpoint),
        None => daemon::block_on(serve(Files::gateway(command.run.config))),
    }
}

fn init(files: Files, endpoint: Target) -> Result<(), Failure> {
    if files.write_first(FIRST_CONFIG)? {
        eprintln!("wrote {}", files.config.display());
    }
    files.read_gateway()?;
    let identity = files.identity()?;
    let one_time = secret::random().map_err(anyhow::Error::from)?;
    let line = EnrolmentLine::new(endpoint, identity.fingerprint(), one_time);
    let key = line.one_time_identity().fingerprint();
    FileRegistry::open(files.registry())?.add_enrolment(key)?;
    eprintln!("gateway's key: {}", identity.fingerprint());
    eprintln!(
        "start `bentpipe gateway`, then give this line to `bentpipe terminal join` at one terminal; it is secret until used:"
    );
    println!("{line}");
    Ok(())
}

async fn serve(files: Files) -> Result<(), Failure> {
    let config = files.read_gateway()?;
    if !files.key().exists() {
        return Err(Failure::Configuration(format!(
            "{} is not there: the gateway has no identity yet; run `bentpipe gateway init`",
            files.key().display()
        )));
    }
    let identity = files.identity()?;
    let registry = FileRegistry::open(files.registry())
        .map_err(|error| Failure::Configuration(format!("{error:#}")))?;
    let terminals = registry.terminals();
    let registry = Arc::new(registry);
    let open_files = limits::raise_open_files();
    let transport = Transport {
        seed: secret::seed().map_err(anyhow::Error::from)?,
        ..config.transport.clone()
    };
    let server = server_config(&identity, registry.clone(), &transport);
    let (endpoint, received) = quic::endpoint(config.listen, &identity, Some(server.clone()))
        .map_err(|error| daemon::cannot_listen("listen", "UDP", config.listen, &error))?;
    let (keeper, paths) = Keeper::start(files.paths());
    let configuration = Configuration {
        server,
        registry,
        transport,
        egress: config.egress(),
        dialler: Machine::new(config.transport.memory),
        paths,
    };
    let gateway = Gateway::new(endpoint.clone(), configuration);
    println!(
        "ready: gateway listens on {} (UDP), key {}, {terminals} terminals enrolled",
        config.listen,
        identity.fingerprint()
    );
    tracing::info!(
        sessions = config.transport.max_sessions(),
        open_files,
        controller = %config.transport.controller,
        "gateway is running"
    );
    tokio::select! {
        () = gateway.run() => {}
        () = report_strays(&gateway, &received) => {}
        () = daemon::stop_signal() => {}
    }
    endpoint.close(0u32.into(), b"the gateway is being stopped");
    daemon::patiently(endpoint.wait_idle()).await;
    daemon::patiently(keeper.stop()).await;
    println!(
        "stopped: {} datagrams of sessions, {} stray",
        gateway.session_datagrams(),
        strays(&gateway, &received)
    );
    Ok(())
}

/// Datagrams that belonged to no session: scans, garbage, attempts with wrong keys.
fn strays(gateway: &Gateway<Machine>, received: &Received) -> u64 {
    received
        .datagrams()
        .saturating_sub(gateway.session_datagrams())
}

/// Tells of stray datagrams, at most once a minute.
async fn report_strays(gateway: &Gateway<Machine>, received: &Received) {
    let mut told = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let strays = strays(gateway, received);
        if strays > told {
            tracing::info!(
                strays,
                "datagrams that belong to no session have been dropped"
            );
            told = strays;
        }
    }
}

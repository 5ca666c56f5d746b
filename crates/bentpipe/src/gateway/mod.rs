//! `bentpipe gateway`: the end on the internet.

mod authority;
mod clients;
mod keys;
mod lists;
mod policies;
mod volumes;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bentpipe_os::machine::Machine;
use bentpipe_os::privileges::{self, Needs};
use bentpipe_os::quic_socket::Received;
use bentpipe_os::{ip_gateway, limits, quic, secret};
use bentpipe_tunnel::gateway::policy::Policy;
use bentpipe_tunnel::gateway::{Configuration, Gateway, server_config};
use bentpipe_tunnel::identity::Identity;
use bentpipe_tunnel::identity::enrolment_line::EnrolmentLine;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::transport::Transport;
use clap::{Args, Subcommand};
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::files::Files;
use crate::path_file::Keeper;
use crate::registry::{self, Date, Enrolment, FileRegistry};
use crate::status::{Ask, SessionStatus, Status};
use crate::{config, daemon, key_log, log, qlog};
use policies::ConfiguredPolicies;
use volumes::Volumes;

const FIRST_CONFIG: &str = r#"# bentpipe gateway; all options: docs/configuration.md

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
        /// What the terminal will be called
        #[arg(long)]
        name: Option<String>,
        /// How long the line is good, like "24h" or "30days"
        #[arg(long, value_name = "TIME", default_value = "7days", value_parser = humantime::parse_duration)]
        valid: Duration,
    },
    /// The enrolled terminals
    #[command(subcommand)]
    Terminals(lists::Terminals),
    /// The enrolment lines
    #[command(subcommand)]
    Lines(lists::Lines),
    /// Bearer tokens of other people's clients
    #[command(subcommand)]
    Token(clients::Tokens),
    /// Certificates of other people's clients, and the one that they see of the gateway
    #[command(subcommand)]
    Certificate(clients::Certificates),
    /// The gateway's key, and its change without an outage
    #[command(subcommand)]
    Key(keys::Key),
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command.action {
        Some(Action::Init {
            config,
            endpoint,
            name,
            valid,
        }) => init(&Files::gateway(config.config), endpoint, name, valid),
        Some(Action::Terminals(command)) => lists::terminals(command),
        Some(Action::Lines(command)) => lists::lines(command),
        Some(Action::Token(command)) => clients::tokens(command),
        Some(Action::Certificate(command)) => clients::certificates(command),
        Some(Action::Key(command)) => keys::run(command),
        None => start(Files::gateway(command.run.config)),
    }
}

fn init(
    files: &Files,
    endpoint: Target,
    name: Option<String>,
    valid: Duration,
) -> Result<(), Failure> {
    if let Some(name) = &name {
        registry::check_name(name).map_err(Failure::Configuration)?;
    }
    if files.write_first(FIRST_CONFIG)? {
        eprintln!("wrote {}", files.config.display());
    }
    files.read_gateway()?;
    let identity = files.identity()?;
    let one_time = secret::random().map_err(anyhow::Error::from)?;
    let line = EnrolmentLine::new(endpoint, identity.fingerprint(), one_time);
    let key = line.one_time_identity().fingerprint();
    let made = SystemTime::now();
    let expires = Date(made + valid);
    FileRegistry::open(files.registry())?.add_enrolment(Enrolment {
        key,
        name,
        made: Some(Date(made)),
        expires: Some(expires),
        used_by: None,
    })?;
    eprintln!("gateway's key: {}", identity.fingerprint());
    eprintln!(
        "start `bentpipe gateway`, then give this line to `bentpipe terminal join` at one terminal; it is secret until used, and good until {expires}:"
    );
    daemon::say(format_args!("{line}"));
    Ok(())
}

fn start(files: Files) -> Result<(), Failure> {
    let config = files.read_gateway()?;
    log::set_level(&config.log);
    key_log::warn();
    let low = |address: SocketAddr| address.port() < 1024;
    let needs = Needs {
        network_administration: config.ip.is_some(),
        low_ports: low(config.listen) || config.metrics.as_ref().is_some_and(|m| low(m.listen)),
    };
    privileges::give_up(config.user.as_deref(), needs).map_err(anyhow::Error::from)?;
    daemon::run(|open_files| serve(files, config, open_files))
}

async fn serve(files: Files, mut config: config::Gateway, open_files: u64) -> Result<(), Failure> {
    let started = Instant::now();
    let mut stop = daemon::StopSignals::new();
    let mut reload = daemon::reload_signal();
    if !files.key().exists() {
        return Err(Failure::Configuration(format!(
            "{} is not there: the gateway has no identity yet; run `bentpipe gateway init`",
            files.key().display()
        )));
    }
    let mut identity = files.gateway_identity()?;
    let next = files.next_identity()?;
    let registry = FileRegistry::open(files.registry())
        .map_err(|error| Failure::Configuration(format!("{error:#}")))?;
    let terminals = registry.current().terminal.len();
    let registry = Arc::new(registry);
    let transport = Transport {
        seed: secret::seed().map_err(anyhow::Error::from)?,
        events: qlog::asked_for()?,
        ..config.transport.clone()
    };
    let server = server_config(&identity, registry.clone(), &transport);
    let (endpoint, received) = quic::endpoint(config.listen, &identity, Some(server.clone()), None)
        .map_err(|error| daemon::cannot_listen("listen", "UDP", config.listen, &error))?;
    let (keeper, paths) = Keeper::start(files.paths());
    let volumes = Volumes::open(files.volumes());
    let policies = ConfiguredPolicies::new(&config, registry.clone(), volumes);
    let policies = Arc::new(policies);
    let network = match &config.ip {
        Some(ip) => Some(
            ip_gateway::network(&ip.networks, config.listen.port())
                .await
                .map_err(|error| anyhow::anyhow!("[ip]: {error}"))?,
        ),
        None => None,
    };
    let configuration = Configuration {
        ip: network.clone(),
        server,
        registry: registry.clone(),
        transport: transport.clone(),
        egress: config.egress(),
        dialler: Machine::new(config.transport.memory),
        paths,
        policies: policies.clone(),
    };
    let gateway = Gateway::new(endpoint.clone(), configuration);
    gateway.announce(next.map(|next| next.fingerprint()));
    gateway.limit_udp_flows(limits::for_udp(open_files));
    let mut tasks = JoinSet::new();
    tasks.spawn(volumes::keep(policies.volumes.clone()));
    let status: Ask = {
        let (gateway, registry) = (gateway.clone(), registry.clone());
        let transport = config.transport.clone();
        Arc::new(move || {
            let sessions = gateway.sessions().into_iter().map(|(key, connection)| {
                SessionStatus::of(registry.name_of(&key), key, &connection)
            });
            let flows = gateway.tally().snapshot();
            Status::of("gateway", started, &transport, sessions.collect(), flows)
        })
    };
    daemon::tell_status(&mut tasks, &files, config.metrics.as_ref(), status).await?;
    daemon::ready(format_args!(
        "ready: gateway listens on {} (UDP), key {}, {terminals} terminals enrolled",
        config.listen,
        identity.fingerprint()
    ));
    tracing::info!(
        sessions = config.transport.max_sessions(),
        open_files,
        controller = %config.transport.controller,
        "gateway is running"
    );
    let stop_asked = {
        let mut run = pin!(gateway.run());
        let mut deliver = pin!(async {
            match &network {
                Some(network) => network.deliver().await,
                None => std::future::pending().await,
            }
        });
        let mut strays = pin!(report_strays(&gateway, &received));
        loop {
            tokio::select! {
                () = &mut run => break None,
                () = &mut strays => break None,
                error = &mut deliver => {
                    tracing::error!("the interface for IP packets has failed: {error}");
                    break None;
                }
                orderly = stop.stop() => break Some(orderly),
                _ = reload.recv() => {
                    gateway.close_revoked();
                    identity = reload_keys(&files, identity, &gateway, &registry, &transport);
                    if let Some(new) = reloaded(&files, &config, &gateway, &policies) {
                        config = new;
                    }
                }
            }
        }
    };
    daemon::stopping();
    if stop_asked == Some(true) {
        gateway.drain();
        let drained = || gateway.tally().is_drained();
        stop.drain(config.drain.as_duration(), drained).await;
    }
    tasks.shutdown().await;
    endpoint.close(0u32.into(), b"the gateway is being stopped");
    daemon::patiently(endpoint.wait_idle()).await;
    if network.is_some() {
        ip_gateway::remove(config.listen.port()).await;
    }
    daemon::patiently(keeper.stop()).await;
    daemon::patiently(volumes::write(&policies.volumes)).await;
    daemon::say(format_args!(
        "stopped: {} datagrams of sessions, {} stray",
        gateway.session_datagrams(),
        strays(&gateway, &received)
    ));
    daemon::ended(stop_asked.is_some())
}

/// Reads the gateway's keys again: the present one, for sessions from now on, and the next one,
/// which is announced. Those that cannot be read stay as they are.
fn reload_keys(
    files: &Files,
    identity: Identity,
    gateway: &Gateway<Machine>,
    registry: &Arc<FileRegistry>,
    transport: &Transport,
) -> Identity {
    let read = || Ok::<_, Failure>((files.gateway_identity()?, files.next_identity()?));
    let (new, next) = match read() {
        Ok(read) => read,
        Err(failure) => {
            tracing::error!("{failure}; the keys stay as they were");
            return identity;
        }
    };
    if new.fingerprint() != identity.fingerprint() {
        tracing::info!(key = %new.fingerprint(), "sessions from now on see the gateway's new key");
    }
    gateway.set_server(server_config(&new, registry.clone(), transport));
    gateway.announce(next.map(|next| next.fingerprint()));
    new
}

/// Reads the configuration again and puts in force what can change while the gateway
/// runs. `None`: it is wrong, and all stays as it was.
fn reloaded(
    files: &Files,
    before: &config::Gateway,
    gateway: &Gateway<Machine>,
    policies: &ConfiguredPolicies,
) -> Option<config::Gateway> {
    let new = daemon::read_again(files.read_gateway())?;
    gateway.set_egress(new.egress());
    policies.reload(&new);
    log::set_level(&new.log);
    daemon::tell_what_waits(before, &new, |config| {
        config.log.clear();
        config.drain = bentpipe_units::Span::from_millis(0);
        config.egress.allow.clear();
        config.policy = Policy::default();
        config.terminal.clear();
    });
    Some(new)
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

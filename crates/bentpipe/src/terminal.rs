//! `bentpipe terminal`: the end beside the dish.

mod gateways;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_os::http_connect::{self, Proxy};
use bentpipe_os::machine::Machine;
use bentpipe_os::privileges::{self, Needs};
use bentpipe_os::{dns, ingress, limits, network_changes, quic, secret, tproxy};
use bentpipe_tunnel::identity::enrolment_line::{EnrolmentLine, EnrolmentLineError};
use bentpipe_tunnel::identity::{Fingerprint, Identity};
use bentpipe_tunnel::paths::Paths;
use bentpipe_tunnel::terminal::dns::Resolver;
use bentpipe_tunnel::terminal::{Connector, Terminal};
use bentpipe_tunnel::transport::Transport;
use clap::{Args, Subcommand};
use tokio::task::JoinSet;

use crate::config::{self, AfterStop, Answer, AskFor};
use crate::failure::{self, Failure};
use crate::files::{Files, PairedGateway};
use crate::path_file::Keeper;
use crate::status::{Ask, SessionStatus, Status};
use crate::{daemon, log};

/// Names of servers that status tells.
const NAMES: usize = 10;

const FIRST_CONFIG: &str = r#"# bentpipe terminal; all options: docs/configuration.md

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
# Private networks and those that this machine is connected to are left alone. If the
# terminal is killed, the rest is held back; fail = "open" lets it go its own way.
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
        /// What `bentpipe gateway init` printed, in quotes; without, it is read from the
        /// standard input, where no other user of this machine sees it
        line: Option<String>,
        /// Read the line from FILE instead
        #[arg(long, value_name = "FILE", conflicts_with = "line")]
        line_file: Option<PathBuf>,
        /// Keep the gateways that this terminal is paired with, and use this one beside them:
        /// whichever answers soonest
        #[arg(long)]
        add: bool,
    },
    /// The gateways that this terminal is paired with
    #[command(subcommand)]
    Gateways(gateways::Gateways),
    /// Let the connections pass that a terminal which no longer runs has left held back
    ///
    /// They then go their own way, outside the tunnel.
    Release {
        #[command(flatten)]
        config: Config,
    },
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command.action {
        Some(Action::Join {
            config,
            line,
            line_file,
            add,
        }) => {
            let line = read_line(line, line_file)?;
            daemon::block_on(join(Files::terminal(config.config), line, add))
        }
        Some(Action::Gateways(command)) => gateways::run(command),
        Some(Action::Release { config }) => {
            daemon::block_on(release(Files::terminal(config.config)))
        }
        None => start(Files::terminal(command.run.config)),
    }
}

async fn release(files: Files) -> Result<(), Failure> {
    let config = files.read_terminal()?;
    let Some(transparent) = config.ingress.transparent else {
        return Err(Failure::file(
            &files.config,
            "ingress.transparent is not there: nothing is held back by this terminal",
        ));
    };
    let port = transparent.port;
    if tproxy::listens(port) {
        return Err(anyhow::anyhow!(
            "a terminal runs (port {port} is in use); stop it first, or set after_stop = \"release\""
        )
        .into());
    }
    let removed = tproxy::release(port).await;
    daemon::say(format_args!(
        "{}",
        if removed {
            "released"
        } else {
            "nothing was held back"
        }
    ));
    Ok(())
}

/// The enrolment line, from wherever it was given. No error shows it: it is a secret.
fn read_line(given: Option<String>, file: Option<PathBuf>) -> Result<EnrolmentLine, Failure> {
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

async fn join(files: Files, line: EnrolmentLine, add: bool) -> Result<(), Failure> {
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
    };
    let one_time = line.one_time_identity();
    let endpoint = endpoint(&one_time)?;
    let connector = connector(
        &config,
        &endpoint,
        &Arc::new(one_time),
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

fn start(files: Files) -> Result<(), Failure> {
    let config = files.read_terminal()?;
    log::set_level(&config.log);
    let listens = |address: Option<SocketAddr>| address.is_some_and(|a| a.port() < 1024);
    let needs = Needs {
        network_administration: config.ingress.transparent.is_some(),
        low_ports: listens(config.ingress.socks5.as_ref().map(|socks5| socks5.listen))
            || listens(config.ingress.http.as_ref().map(|http| http.listen))
            || listens(config.metrics.as_ref().map(|metrics| metrics.listen))
            || config
                .dns
                .iter()
                .flat_map(|dns| &dns.listen)
                .any(|address| listens(Some(*address))),
    };
    privileges::give_up(config.user.as_deref(), needs).map_err(anyhow::Error::from)?;
    daemon::block_on(serve(files, config))
}

async fn serve(files: Files, mut config: config::Terminal) -> Result<(), Failure> {
    let started = Instant::now();
    let mut stop = daemon::StopSignals::new();
    let mut reload = daemon::reload_signal();
    let gateways = files.read_pairing()?;
    let identity = Arc::new(files.identity()?);
    let open_files = limits::raise_open_files();
    let (keeper, paths) = Keeper::start(files.paths());
    let endpoint = endpoint(&identity)?;
    let connectors = gateways
        .iter()
        .map(|gateway| connector(&config, &endpoint, &identity, gateway, paths.clone()))
        .collect::<Result<_, _>>()?;
    if let Err(error) = network_changes::follow(endpoint.clone()) {
        tracing::warn!("changes of this machine's addresses will be noticed late: {error}");
    }
    let (terminal, keep) = Terminal::with_gateways(connectors);
    terminal.limit_udp_flows(limits::for_udp(open_files));

    let mut tasks = JoinSet::new();
    let mut taken = Vec::new();
    if let Some(socks5) = &config.ingress.socks5 {
        let listener = ingress::listen(socks5.listen).await.map_err(|error| {
            daemon::cannot_listen("ingress.socks5.listen", "TCP", socks5.listen, &error)
        })?;
        let clients = socks5.clients.clone();
        let users = files.users(socks5.users.as_ref())?;
        tasks.spawn(ingress::socks5(listener, clients, users, terminal.clone()));
        taken.push(format!("SOCKS5 on {}", socks5.listen));
    }
    if let Some(http) = &config.ingress.http {
        let listener = ingress::listen(http.listen).await.map_err(|error| {
            daemon::cannot_listen("ingress.http.listen", "TCP", http.listen, &error)
        })?;
        let proxy = Proxy {
            clients: http.clients.clone(),
            users: files.users(http.users.as_ref())?,
            after_origin: http.answer == Answer::AfterOrigin,
            socks5: config.ingress.socks5.as_ref().map(|socks5| socks5.listen),
        };
        tasks.spawn(http_connect::serve(listener, proxy, terminal.clone()));
        taken.push(format!("HTTP CONNECT on {}", http.listen));
    }
    let mut resolver = None;
    if let Some(settings) = config.resolver() {
        let (new, renew) = Resolver::new(terminal.clone(), &settings);
        tasks.spawn(async move { match renew.await {} });
        resolver = Some(new);
    }
    if let (Some(names), Some(resolver)) = (&config.dns, &resolver) {
        for address in &names.listen {
            let sockets = dns::listen(*address).await.map_err(|error| {
                daemon::cannot_listen("dns.listen", "UDP and TCP", *address, &error)
            })?;
            tasks.spawn(dns::serve(sockets, names.clients.clone(), resolver.clone()));
            taken.push(format!("DNS on {address}"));
        }
    }
    let status: Ask = {
        let (terminal, transport) = (terminal.clone(), config.transport.clone());
        let resolver = resolver.clone();
        Arc::new(move || {
            let session = terminal.session().borrow().clone();
            let open = session.filter(|session| !session.is_closed());
            let sessions = open.and_then(|session| {
                let key = Fingerprint::of_peer(session.connection())?;
                let gateway = gateways.iter().find(|gateway| gateway.gateway_key == key)?;
                let name = gateway.gateway.to_string();
                let mut status = SessionStatus::of(Some(name), key, session.connection());
                status.silent = session.is_silent();
                Some(status)
            });
            let flows = terminal.tally().snapshot();
            let sessions = sessions.into_iter().collect();
            Status {
                gateways: terminal.gateways().into_iter().map(Into::into).collect(),
                dns: resolver.as_ref().map(Resolver::snapshot),
                names: terminal.by_name().largest(NAMES),
                ..Status::of("terminal", started, &transport, sessions, flows)
            }
        })
    };
    daemon::tell_status(&mut tasks, &files, config.metrics.as_ref(), status).await?;
    let mut rules = None;
    if let Some(transparent) = &config.ingress.transparent {
        let port_53 = resolver.clone().filter(|_| transparent.dns);
        let by_name = transparent.ask == AskFor::Name;
        let installed = tproxy::install(transparent.capture())
            .await
            .map_err(anyhow::Error::from)?;
        tasks.spawn(ingress::transparent(
            installed.ipv4,
            by_name,
            port_53.clone(),
            terminal.clone(),
        ));
        if let Some(listener) = installed.ipv6 {
            tasks.spawn(ingress::transparent(
                listener,
                by_name,
                port_53.clone(),
                terminal.clone(),
            ));
        }
        if let Some(interface) = installed.ip {
            let terminal = terminal.clone();
            tasks.spawn(async move {
                let error = terminal.carry_ip(&interface).await;
                tracing::error!("the interface for IP packets has failed: {error}");
            });
        }
        for listener in installed.udp {
            tasks.spawn(tproxy::udp::carry(
                listener,
                port_53.clone(),
                terminal.clone(),
            ));
        }
        let installed = Arc::new(installed.rules);
        let kept = installed.clone();
        tasks.spawn(async move { match kept.keep().await {} });
        rules = Some((installed, transparent.after_stop));
        taken.push(format!(
            "transparent on {}",
            transparent.interfaces.join(", ")
        ));
    }
    daemon::ready(format_args!("ready: {}", taken.join("; ")));
    let session = terminal.session();
    let mut keep = pin!(keep);
    let mut announce = pin!(announce(session));
    let orderly = loop {
        tokio::select! {
            never = &mut keep => match never {},
            () = &mut announce => break false,
            _ = tasks.join_next() => {
                tracing::error!("an ingress has ended");
                break false;
            }
            orderly = stop.stop() => break orderly,
            _ = reload.recv() => {
                let rules = rules.as_ref().map(|(rules, _)| &**rules);
                if let Some(new) = reloaded(&files, &config, rules).await {
                    config = new;
                }
            }
        }
    };
    daemon::stopping();
    // First the way in, then what is on its way. The rules hold back what comes meanwhile.
    tasks.shutdown().await;
    if orderly {
        let drained = || terminal.tally().is_drained();
        stop.drain(config.drain.as_duration(), drained).await;
    }
    match rules {
        Some((rules, AfterStop::Release)) => rules.remove().await,
        Some((_, AfterStop::Hold)) => tracing::warn!(
            "the connections that would be taken are held back until the terminal is started again; `bentpipe terminal release` lets them pass"
        ),
        None => {}
    }
    endpoint.close(0u32.into(), b"the terminal is being stopped");
    daemon::patiently(endpoint.wait_idle()).await;
    daemon::patiently(keeper.stop()).await;
    daemon::say(format_args!("stopped"));
    Ok(())
}

/// Reads the configuration again and puts in force what can change while the terminal
/// runs. `None`: it is wrong, and all stays as it was.
async fn reloaded(
    files: &Files,
    before: &config::Terminal,
    rules: Option<&tproxy::Rules>,
) -> Option<config::Terminal> {
    let new = daemon::read_again(files.read_terminal())?;
    if let (Some(rules), Some(transparent)) = (rules, &new.ingress.transparent)
        && let Err(error) = rules.change(transparent.capture()).await
    {
        tracing::error!("{error}; all stays as it was");
        return None;
    }
    log::set_level(&new.log);
    daemon::tell_what_waits(before, &new, |config| {
        config.log.clear();
        config.drain = bentpipe_units::Span::from_millis(0);
        if let Some(transparent) = &mut config.ingress.transparent {
            transparent.leave.clear();
            transparent.leave_private = true;
            transparent.fail = tproxy::Fail::Closed;
            transparent.quic = tproxy::ApplicationQuic::Tunnel;
            if transparent.other_protocols != tproxy::OtherProtocols::Tunnel {
                transparent.other_protocols = tproxy::OtherProtocols::Refuse;
            }
        }
    });
    Some(new)
}

/// The endpoint that sessions with all gateways go out from.
pub fn endpoint(identity: &Identity) -> Result<noq::Endpoint, Failure> {
    // A wildcard IPv6 socket reaches IPv4 gateways too, where the machine has IPv6.
    let (endpoint, _) = quic::endpoint(([0u16; 8], 0).into(), identity, None)
        .or_else(|_| quic::endpoint(([0, 0, 0, 0], 0).into(), identity, None))
        .map_err(|error| anyhow::anyhow!("no UDP socket can be opened: {error}"))?;
    Ok(endpoint)
}

/// What opens sessions with `gateway` from `endpoint`.
pub fn connector(
    config: &config::Terminal,
    endpoint: &noq::Endpoint,
    identity: &Arc<Identity>,
    gateway: &PairedGateway,
    paths: Paths,
) -> Result<Connector<Machine>, Failure> {
    let transport = Transport {
        seed: secret::seed().map_err(anyhow::Error::from)?,
        ..config.transport.clone()
    };
    Ok(Connector {
        endpoint: endpoint.clone(),
        identity: identity.clone(),
        gateway: gateway.gateway.clone(),
        gateway_key: gateway.gateway_key,
        paths,
        resolver: Machine::new(transport.memory),
        transport,
    })
}

/// Tells whenever a session is up, for whoever waits for it.
async fn announce(
    mut session: tokio::sync::watch::Receiver<Option<bentpipe_tunnel::terminal::Session>>,
) {
    while session.changed().await.is_ok() {
        let current = session.borrow_and_update().clone();
        if let Some(current) = current
            && current.accepted().await.is_ok()
        {
            let gateway = current.gateway();
            daemon::say(format_args!("session: up with gateway {gateway}"));
        }
    }
}

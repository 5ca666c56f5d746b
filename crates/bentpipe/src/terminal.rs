//! `bentpipe terminal`: the end beside the dish.

mod gateways;
mod join;
mod key;
mod names;
mod paired_keys;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_os::kernel_memory::KernelMemory;
use bentpipe_os::machine::{self, Machine};
use bentpipe_os::privileges::{self, Needs};
use bentpipe_os::proxy::{Proxy, http_connect, socks5};
use bentpipe_os::ways::Ways;
use bentpipe_os::{limits, network_changes, quic, secret, tproxy};
use bentpipe_tunnel::identity::{Fingerprint, Identity};
use bentpipe_tunnel::paths::Paths;
use bentpipe_tunnel::session::remote_address;
use bentpipe_tunnel::terminal::dns::Resolver;
use bentpipe_tunnel::terminal::{Connector, Kept, Terminal};
use bentpipe_tunnel::transport::Transport;
use clap::{Args, Subcommand};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{self, AfterStop, Answer, AskFor};
use crate::failure::Failure;
use crate::files::{Files, PairedGateway};
use crate::path_file::Keeper;
use crate::status::{Ask, SessionStatus, Status, TunStatus};
use crate::{daemon, key_log, log, qlog};
use paired_keys::PairedKeys;

/// Names of servers that status tells.
const NAMES: usize = 10;

/// The end beside the dish: takes applications' connections into the tunnel
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Command {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    run: Run,
}

#[derive(Debug, Args)]
struct Config {
    /// The configuration; the terminal's key and its pairing lie beside it
    #[arg(long, default_value = "/etc/bentpipe/terminal.toml")]
    config: PathBuf,
}

#[derive(Debug, Args)]
struct Run {
    #[command(flatten)]
    config: Config,
    /// All traffic of this machine too, as an empty table [ingress.tun] says
    #[arg(long)]
    tun: bool,
}

impl Run {
    fn files(self) -> Files {
        Files::terminal(self.config.config).with_tun(self.tun)
    }
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
    /// This terminal's key, and its change without an outage
    #[command(subcommand)]
    Key(key::Key),
    /// Let the connections pass that a terminal which no longer runs has left held back
    ///
    /// They then go their own way, outside the tunnel.
    Release {
        #[command(flatten)]
        run: Run,
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
            let line = join::read_line(line, line_file)?;
            daemon::block_on(join::join(Files::terminal(config.config), line, add))
        }
        Some(Action::Gateways(command)) => gateways::run(command),
        Some(Action::Key(command)) => key::run(command),
        Some(Action::Release { run }) => daemon::block_on(release(run.files())),
        None => start(command.run.files()),
    }
}

async fn release(files: Files) -> Result<(), Failure> {
    let config = files.read_terminal()?;
    // By `--tun` alone, the configuration does not say.
    let transparent = config.ingress.transparent.unwrap_or_default();
    let port = transparent.port;
    if tproxy::listens(port) {
        return Err(anyhow::anyhow!(
            "a terminal runs (port {port} is in use); stop it first, or set after_stop = \"release\""
        )
        .into());
    }
    let removed = tproxy::release(port).await.map_err(anyhow::Error::from)?;
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

fn start(files: Files) -> Result<(), Failure> {
    let config = files.read_terminal()?;
    log::set_level(&config.log);
    key_log::warn();
    let listens = |address: Option<SocketAddr>| address.is_some_and(|a| a.port() < 1024);
    let needs = Needs {
        network_administration: config.ingress.transparent.is_some(),
        low_ports: listens(config.ingress.socks5.as_ref().map(|socks5| socks5.listen))
            || listens(config.ingress.http.as_ref().map(|http| http.listen))
            || listens(config.metrics.as_ref().map(|metrics| metrics.listen))
            || config
                .dns
                .iter()
                .flat_map(config::Dns::addresses)
                .any(|address| listens(Some(address))),
    };
    privileges::give_up(config.user.as_deref(), needs).map_err(anyhow::Error::from)?;
    daemon::run(|open_files| serve(files, config, open_files))
}

async fn serve(files: Files, mut config: config::Terminal, open_files: u64) -> Result<(), Failure> {
    let started = Instant::now();
    let mut stop = daemon::StopSignals::new();
    let mut reload = daemon::reload_signal();
    let gateways = files.read_pairing()?;
    let (renewed, identity) = watch::channel(Arc::new(files.identity()?));
    let (keeper, paths) = Keeper::start(files.paths());
    let mark = config.ingress.mark();
    let endpoint = endpoint(&identity.borrow(), mark)?;
    let pool = config.transport.pool();
    let instance = secret::seed().map_err(anyhow::Error::from)?;
    let connectors = gateways
        .iter()
        .map(|gateway| {
            let paths = paths.clone();
            let connector = connector(&files, &config, &endpoint, &identity, gateway, paths)?;
            Ok(Connector {
                instance: Some(instance),
                pool: pool.clone(),
                ..connector
            })
        })
        .collect::<Result<_, Failure>>()?;
    let ways = Arc::new(Ways::of(mark));
    if let Err(error) = network_changes::follow(endpoint.clone(), ways.clone()) {
        tracing::warn!("changes of this machine's addresses will be noticed late: {error}");
    }
    let (mut terminal, keep) = Terminal::with_gateways(connectors);
    terminal.set_early_udp_ports(&config.ingress.early_udp_ports);
    terminal.limit_flows(limits::for_flows(open_files));

    let mut tasks = JoinSet::new();
    let mut taken = Vec::new();
    let memory = KernelMemory::beside(config.transport.memory);
    let proxy = |of: &config::Proxy| {
        let users = files.users(of.users.as_ref())?;
        let after_origin = of.answer == Answer::AfterOrigin;
        let clients = of.clients.clone();
        Ok::<_, Failure>(Proxy {
            clients,
            users,
            after_origin,
        })
    };
    if let Some(socks5) = &config.ingress.socks5 {
        let listener = daemon::listen("ingress.socks5.listen", socks5.listen).await?;
        let proxy = proxy(socks5)?;
        let (memory, terminal) = (memory.clone(), terminal.clone());
        tasks.spawn(socks5::serve(listener, proxy, memory, terminal));
        taken.push(format!("SOCKS5 on {}", socks5.listen));
    }
    if let Some(http) = &config.ingress.http {
        let listener = daemon::listen("ingress.http.listen", http.listen).await?;
        let socks5 = config.ingress.socks5.as_ref().map(|socks5| socks5.listen);
        let proxy = proxy(http)?;
        let (memory, terminal) = (memory.clone(), terminal.clone());
        tasks.spawn(http_connect::serve(
            listener, proxy, socks5, memory, terminal,
        ));
        taken.push(format!("HTTP CONNECT on {}", http.listen));
    }
    terminal.quic_choice().measure(measures_quic(&config));
    let mut resolver = None;
    if let Some(settings) = config.resolver() {
        let (new, renew) = Resolver::new(terminal.clone(), &settings);
        tasks.spawn(async move { match renew.await {} });
        resolver = Some(new);
    }
    let mut certificate = None;
    if let (Some(dns), Some(resolver)) = (&config.dns, &resolver) {
        let (told, shown) = names::listen(dns, resolver, &mut tasks).await?;
        taken.extend(told);
        certificate = shown;
    }
    let status: Ask = {
        let (terminal, transport) = (terminal.clone(), config.transport.clone());
        let resolver = resolver.clone();
        let tun = config.ingress.tun.as_ref().map(|tun| tun.interface.clone());
        Arc::new(move || {
            let session = terminal.session().borrow().clone();
            let open = session.filter(|session| !session.is_closed());
            let sessions = open.and_then(|session| {
                let key = Fingerprint::of_peer(session.connection())?;
                let name = session.gateway().to_string();
                let mut status = SessionStatus::of(Some(name), key, session.connection());
                status.silent = session.is_silent();
                Some(status)
            });
            let flows = terminal.tally().snapshot();
            let sessions = sessions.into_iter().collect();
            Status {
                gateways: terminal.gateways().into_iter().map(Into::into).collect(),
                dns: resolver.as_ref().map(Resolver::snapshot),
                tun: tun.clone().map(|interface| TunStatus {
                    addresses: machine::addresses_of(&interface),
                    interface,
                }),
                names: terminal.by_name().largest(NAMES),
                quic: terminal.quic_choice().snapshot(),
                ..Status::of("terminal", started, &transport, sessions, flows)
            }
        })
    };
    // Also while flows drain.
    let mut telling = JoinSet::new();
    daemon::tell_status(&mut telling, &files, config.metrics.as_ref(), status).await?;
    let mut rules = None;
    if let (Some(transparent), Some(capture)) =
        (&config.ingress.transparent, config.ingress.capture())
    {
        let port_53 = resolver.clone().filter(|_| transparent.dns);
        let by_name = transparent.ask == AskFor::Name;
        let carries_packets = capture.tunnels_packets();
        let installed = tproxy::install(capture)
            .await
            .map_err(anyhow::Error::from)?;
        let held = installed.held.as_ref().map(|(held, _)| held.clone());
        tasks.spawn(tproxy::tcp::serve(
            installed.ipv4,
            by_name,
            held.clone(),
            port_53.clone(),
            memory.clone(),
            terminal.clone(),
        ));
        if let Some(listener) = installed.ipv6 {
            tasks.spawn(tproxy::tcp::serve(
                listener,
                by_name,
                held,
                port_53.clone(),
                memory.clone(),
                terminal.clone(),
            ));
        }
        if let Some((held, source)) = installed.held {
            let terminal = terminal.clone();
            tasks.spawn(async move {
                let error = held.serve(source, by_name, terminal).await;
                tracing::error!("connections can no longer be held back: {error}");
            });
        }
        if let Some(interface) = installed.interface {
            let terminal = terminal.clone();
            tasks.spawn(async move {
                if !carries_packets {
                    // It is there to be routed to.
                    std::future::pending::<()>().await;
                }
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
        if !transparent.interfaces.is_empty() {
            taken.push(format!(
                "transparent on {}",
                transparent.interfaces.join(", ")
            ));
        }
        if let Some(tun) = &config.ingress.tun {
            taken.push(format!("all of this machine by {}", tun.interface));
        }
    }
    daemon::ready(format_args!("ready: {}", taken.join("; ")));
    let session = terminal.session();
    let mut keep = pin!(keep);
    let mut announce = pin!(announce(session, &ways));
    let stop_asked = loop {
        tokio::select! {
            never = &mut keep => match never {},
            () = &mut announce => break None,
            _ = tasks.join_next() => {
                tracing::error!("an ingress has ended");
                break None;
            }
            orderly = stop.stop() => break Some(orderly),
            _ = reload.recv() => {
                reload_key(&files, &renewed);
                if let Some(certificate) = &certificate {
                    certificate.read_again();
                }
                let rules = rules.as_ref().map(|(rules, _)| &**rules);
                if let Some(new) = reloaded(&files, &config, rules).await {
                    config = new;
                    terminal.quic_choice().measure(measures_quic(&config));
                }
            }
        }
    };
    daemon::stopping();
    // First the way in, then what is on its way. The rules hold back what comes meanwhile.
    tasks.shutdown().await;
    if stop_asked == Some(true) {
        let drained = || terminal.tally().is_drained();
        stop.drain(config.drain.as_duration(), drained).await;
    }
    match rules {
        Some((rules, AfterStop::Release)) if stop_asked.is_some() => {
            if let Err(error) = rules.remove().await {
                tracing::error!("{error}; the connections that would be taken are held back");
            }
        }
        // What a failure leaves is for `fail` to say.
        Some((_, AfterStop::Release)) => {}
        Some((_, AfterStop::Hold)) => tracing::warn!(
            "the connections that would be taken are held back until the terminal is started again; `bentpipe terminal release` lets them pass"
        ),
        None => {}
    }
    endpoint.close(0u32.into(), b"the terminal is being stopped");
    daemon::patiently(endpoint.wait_idle()).await;
    daemon::patiently(keeper.stop()).await;
    daemon::say(format_args!("stopped"));
    daemon::ended(stop_asked.is_some())
}

/// Whether measurements decide what becomes of applications' own QUIC.
fn measures_quic(config: &config::Terminal) -> bool {
    let transparent = config.ingress.transparent.as_ref();
    transparent.is_some_and(|transparent| transparent.quic == tproxy::ApplicationQuic::Auto)
}

/// Reads the terminal's key again; flows from now on go to a session with it.
fn reload_key(files: &Files, renewed: &watch::Sender<Arc<Identity>>) {
    match files.identity() {
        Ok(identity) => {
            renewed.send_if_modified(|old| {
                let other = old.fingerprint() != identity.fingerprint();
                if other {
                    *old = Arc::new(identity);
                }
                other
            });
        }
        Err(failure) => tracing::error!("{failure}; the key stays as it was"),
    }
}

/// Reads the configuration again and puts in force what can change while the terminal
/// runs. `None`: it is wrong, and all stays as it was.
async fn reloaded(
    files: &Files,
    before: &config::Terminal,
    rules: Option<&tproxy::Rules>,
) -> Option<config::Terminal> {
    let new = daemon::read_again(files.read_terminal())?;
    if let (Some(rules), Some(capture)) = (rules, new.ingress.capture())
        && let Err(error) = rules.change(capture).await
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
            if transparent.other_protocols != Some(tproxy::OtherProtocols::Tunnel) {
                transparent.other_protocols = None;
            }
        }
    });
    Some(new)
}

/// The endpoint that sessions with all gateways go out from, whose socket carries `mark`.
pub fn endpoint(identity: &Identity, mark: Option<u32>) -> Result<noq::Endpoint, Failure> {
    // A wildcard IPv6 socket reaches IPv4 gateways too, where the machine has IPv6.
    let (endpoint, _) = quic::endpoint(([0u16; 8], 0).into(), identity, None, mark)
        .or_else(|_| quic::endpoint(([0, 0, 0, 0], 0).into(), identity, None, mark))
        .map_err(|error| anyhow::anyhow!("no UDP socket can be opened: {error}"))?;
    Ok(endpoint)
}

/// What opens sessions with `gateway` from `endpoint`.
pub fn connector(
    files: &Files,
    config: &config::Terminal,
    endpoint: &noq::Endpoint,
    identity: &watch::Receiver<Arc<Identity>>,
    gateway: &PairedGateway,
    paths: Paths,
) -> Result<Connector<Machine>, Failure> {
    let transport = Transport {
        seed: secret::seed().map_err(anyhow::Error::from)?,
        events: qlog::asked_for()?,
        ..config.transport.clone()
    };
    Ok(Connector {
        endpoint: endpoint.clone(),
        identity: identity.clone(),
        instance: None,
        gateway: gateway.gateway.clone(),
        gateway_keys: Arc::new(PairedKeys::new(files.clone(), gateway.clone())),
        paths,
        pool: transport.pool(),
        resolver: Machine::marked(transport.memory, config.ingress.mark()),
        kept: Kept::default(),
        transport,
    })
}

/// Tells whenever a session is up, for whoever waits for it, and notes the way to its gateway.
async fn announce(
    mut session: watch::Receiver<Option<bentpipe_tunnel::terminal::Session>>,
    ways: &Ways,
) {
    while session.changed().await.is_ok() {
        let current = session.borrow_and_update().clone();
        if let Some(current) = current
            && current.accepted().await.is_ok()
        {
            if let Some(peer) = remote_address(current.connection()) {
                ways.note(peer);
            }
            let gateway = current.gateway();
            daemon::say(format_args!("session: up with gateway {gateway}"));
        }
    }
}

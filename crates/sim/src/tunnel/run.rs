//! The run with a tunnel: a gateway, terminals and their applications, from the first to the last.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_quic::mapped::mapped;
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::gateway::policy::Unlimited;
use bentpipe_tunnel::gateway::{Configuration, Gateway, server_config};
use bentpipe_tunnel::identity::{Fingerprint, Identity, PeerRole, Registry};
use bentpipe_tunnel::paths::Paths;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::{Connector, Kept, Terminal};
use bentpipe_tunnel::transport::Transport;
use bentpipe_units::{Span, Time};
use bentpipe_vnet::clock::{Clock, virtual_time};
use bentpipe_vnet::host::HostSpec;
use bentpipe_vnet::network::{MemorySocket, Network};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::application::Application;
use super::call::{Caller, LAST_ECHO};
use super::plan::{FlowPlan, TunnelPlan, Work};
use super::progress::{End, Progress, Shared, lock};
use super::server::Servers;
use crate::identity;
use crate::plan::Plan;
use crate::record::{
    EchoRecord, FlowRecord, LinkRecord, Path, Record, SampleRecord, SessionRecord, TunnelFlow,
    TunnelSample, TunnelVerdict, WorkKind,
};

/// Where the gateway is.
const GATEWAY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4433);
/// Where the servers are: a public address, or the gateway would not dial it.
const SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(93, 184, 216, 34)), 80);

/// The host that has calls; connections are of another.
const CALLER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 168, 7, 1));

/// How long after a change of its address a terminal tells its gateway, as the daemon
/// does: the machine's messages about it have to settle first.
const NOTICED: Span = Span::from_millis(50);

/// Runs `tunnel` over the links of `plan`, both of which have been checked; `record` is
/// given each record when it is known.
pub(crate) fn run(plan: &Plan, tunnel: &TunnelPlan, record: &mut dyn FnMut(Record)) {
    virtual_time(tunnel.granularity, |clock| async move {
        let mut run = Run::new(plan, tunnel, &clock);
        run.watch(record).await;
        run.end(record);
    });
}

/// An endpoint for `number` (0 is the gateway) that draws nothing: connection IDs, keys
/// and everything else derive from the run's seed.
pub fn endpoint(
    clock: &Clock,
    socket: MemorySocket,
    (seed, number): (u64, u64),
    server: Option<noq::ServerConfig>,
) -> std::io::Result<noq::Endpoint> {
    let mut config = identity::endpoint(seed, number);
    let (mut socket, runtime): (Box<dyn noq::AsyncUdpSocket>, _) =
        (Box::new(socket), Arc::new(clock.clone()));
    if server.is_some() {
        // As the daemon's: terminals ask with another version whether it can be reached.
        config.supported_versions(vec![1]);
        socket = mapped(socket);
    }
    noq::Endpoint::new_with_abstract_socket(config, server, socket, runtime)
}

/// The gateway's configuration with tokens that derive from nothing but what they say.
fn without_secrets(mut server: noq::ServerConfig) -> noq::ServerConfig {
    server
        .token_key(Arc::new(identity::Keyless))
        .time_source(Arc::new(identity::Epoch));
    server
}

/// The transport of end `number`, whose controllers draw what no other's do.
fn seeded(transport: &Transport, seed: u64, number: u64) -> Transport {
    Transport {
        seed: crate::seed_of(seed, (1 << 32) + number),
        ..transport.clone()
    }
}

/// The clock on the machine of end `number`.
fn machine(clock: &Clock, spec: HostSpec, seed: u64, number: u64) -> Clock {
    clock.on(spec, crate::seed_of(seed, (2 << 32) + number))
}

/// The identity of end `number`.
fn identity_of(seed: u64, number: u64) -> Identity {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    Identity::from_seed(&bytes)
}

/// A terminal's address after so many moves; addresses only need to differ.
fn address(terminal: usize, moves: usize) -> SocketAddr {
    let [_, b, c, d] = u32::try_from(terminal).unwrap_or(0).to_be_bytes();
    let moves = u16::try_from(moves % 10_000).unwrap_or(0);
    SocketAddr::from((Ipv4Addr::new(10, b, c, d), 50_000 + moves))
}

/// Knows the run's terminals.
#[derive(Debug)]
struct Terminals(BTreeSet<Fingerprint>);

impl Registry for Terminals {
    fn role(&self, key: &Fingerprint) -> PeerRole {
        match self.0.contains(key) {
            true => PeerRole::Terminal,
            false => PeerRole::Unknown,
        }
    }

    fn enrol(&self, _enrolment: &Fingerprint, _terminal: Fingerprint) -> Result<(), String> {
        Err("simulated terminals are enrolled from the beginning".into())
    }
}

/// The sessions that a terminal has had.
#[derive(Debug, Clone, Copy, Default)]
struct Sessions {
    first: Option<Time>,
    count: u64,
}

struct Run<'a> {
    plan: &'a Plan,
    tunnel: &'a TunnelPlan,
    clock: Clock,
    network: Network,
    gateway: Arc<Gateway<Servers>>,
    keys: Vec<Fingerprint>,
    sessions: Vec<Arc<Mutex<Sessions>>>,
    /// Terminal, number among its flows, plan, progress.
    flows: Vec<(usize, usize, FlowPlan, Shared)>,
    open: BTreeSet<usize>,
    ended: tokio::sync::mpsc::UnboundedReceiver<usize>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, tunnel: &'a TunnelPlan, clock: &Clock) -> Self {
        let network = Network::new(clock, &plan.links, plan.seed, tunnel.segments);
        let gateway_identity = identity_of(plan.seed, 0);
        let identities: Vec<_> = (1..)
            .zip(&tunnel.terminals)
            .map(|(number, _)| Arc::new(identity_of(plan.seed, number)))
            .collect();
        let keys: Vec<_> = identities
            .iter()
            .map(|identity| identity.fingerprint())
            .collect();
        let registry = Arc::new(Terminals(keys.iter().copied().collect()));
        let mut flows = Vec::new();
        for (index, terminal) in tunnel.terminals.iter().enumerate() {
            let mine = terminal.flows.iter().enumerate();
            flows.extend(mine.map(|(number, flow)| (index, number, *flow, Shared::default())));
        }
        let server = server_config(&gateway_identity, registry.clone(), &tunnel.gateway);
        let server = without_secrets(server);
        let machine = machine(clock, tunnel.gateway_host, plan.seed, 0);
        let gateway = Gateway::new(
            endpoint(
                &machine,
                network.gateway(GATEWAY).on(&machine),
                (plan.seed, 0),
                Some(server.clone()),
            )
            .expect("a socket in memory has an address"),
            Configuration {
                server,
                registry,
                transport: seeded(&tunnel.gateway, plan.seed, 0),
                egress: Egress::default(),
                dialler: Servers {
                    clock: machine.clone(),
                    ground_rtt: tunnel.ground_rtt,
                    flows: flows
                        .iter()
                        .map(|(.., progress)| progress.clone())
                        .collect(),
                },
                paths: Paths::default(),
                ip: None,
                policies: Arc::new(Unlimited::default()),
            },
        );
        let serving = gateway.clone();
        tokio::spawn(async move { serving.run().await });

        let (tell, ended) = unbounded_channel();
        let mut run = Self {
            plan,
            tunnel,
            clock: clock.clone(),
            network,
            gateway,
            keys,
            sessions: Vec::new(),
            open: (0..flows.len()).collect(),
            flows,
            ended,
        };
        for (index, identity) in identities.into_iter().enumerate() {
            run.start_terminal(index, identity, gateway_identity.fingerprint(), &tell);
        }
        run
    }

    fn start_terminal(
        &mut self,
        index: usize,
        identity: Arc<Identity>,
        gateway_key: Fingerprint,
        tell: &UnboundedSender<usize>,
    ) {
        let plan = &self.tunnel.terminals[index];
        let clock = machine(&self.clock, plan.host, self.plan.seed, index as u64 + 1);
        let socket = self
            .network
            .terminal(address(index, 0), &plan.path)
            .on(&clock);
        let endpoint = endpoint(&clock, socket, (self.plan.seed, index as u64 + 1), None)
            .expect("a socket in memory has an address");
        let transport = seeded(&plan.transport, self.plan.seed, index as u64 + 1);
        let connector = Connector {
            endpoint: endpoint.clone(),
            identity: tokio::sync::watch::channel(identity).1,
            instance: None,
            gateway: Target::from(GATEWAY),
            gateway_keys: Arc::new(gateway_key),
            pool: transport.pool(),
            transport,
            paths: Paths::default(),
            resolver: NoNames,
            kept: Kept::default(),
        };
        let (terminal, keep) = Terminal::new(connector);
        let start = Time::ZERO + plan.start;
        let on = clock.clone();
        tokio::spawn(async move {
            on.sleep_until(start).await;
            keep.await;
        });
        let seen = Arc::<Mutex<Sessions>>::default();
        self.sessions.push(seen.clone());
        tokio::spawn(watch_session(self.clock.clone(), terminal.clone(), seen));
        for (number, (_, _, flow, progress)) in self
            .flows
            .iter()
            .enumerate()
            .filter(|(_, (terminal, ..))| *terminal == index)
        {
            let (clock, terminal, tell) = (clock.clone(), terminal.clone(), tell.clone());
            let (flow, progress) = (*flow, progress.clone());
            tokio::spawn(async move {
                clock.sleep_until(Time::ZERO + flow.start).await;
                let target = Target::from(SERVER);
                if let Work::Call(call) = flow.work {
                    let caller = Caller::new(&clock, &progress, call);
                    let over = clock.sleep(call.time() + LAST_ECHO);
                    let end = tokio::select! {
                        _ = terminal.carry_udp_for(CALLER, &caller, target) => End::Reset,
                        () = over => End::Closed,
                    };
                    lock(&progress).end = Some(end);
                } else {
                    let (upload, download) = flow.work.bytes();
                    let application = Application::new(&clock, &progress, number, upload, download);
                    terminal.carry(application, target).await;
                }
                // Nobody hears it when the run is over.
                let _ = tell.send(number);
            });
        }
        for (moves, to) in plan.moves.iter().cloned().enumerate() {
            let (clock, network, endpoint) =
                (self.clock.clone(), self.network.clone(), endpoint.clone());
            tokio::spawn(async move {
                clock.sleep_until(Time::ZERO + to.at).await;
                network.r#move(address(index, moves), address(index, moves + 1), &to.path);
                clock.sleep(NOTICED).await;
                endpoint.handle_network_change(None);
            });
        }
    }

    /// Until all flows have ended, or the time is over.
    async fn watch(&mut self, record: &mut dyn FnMut(Record)) {
        let end = Time::ZERO + self.plan.until;
        let mut sample_at = Time::ZERO + self.plan.sample_every;
        while !self.open.is_empty() {
            let wake = sample_at.min(end);
            tokio::select! {
                biased;
                Some(flow) = self.ended.recv() => {
                    self.open.remove(&flow);
                    record(Record::Flow(self.flow(flow)));
                    continue;
                }
                () = self.clock.sleep_until(wake) => {}
            }
            if wake == end {
                return;
            }
            for terminal in 0..self.keys.len() {
                record(Record::Sample(self.sample(terminal)));
            }
            sample_at = sample_at + self.plan.sample_every;
        }
    }

    /// What is known only at the end.
    fn end(&self, record: &mut dyn FnMut(Record)) {
        for &flow in &self.open {
            record(Record::Flow(self.flow(flow)));
        }
        for (terminal, sessions) in self.sessions.iter().enumerate() {
            let sessions = *sessions.lock().unwrap_or_else(PoisonError::into_inner);
            record(Record::Session(SessionRecord {
                terminal,
                up_ns: sessions.first.map(Time::as_nanos),
                sessions: sessions.count,
                session: self.path(terminal),
            }));
        }
        for direction in self.network.counters() {
            record(Record::Link(LinkRecord::new(direction)));
        }
    }

    fn flow(&self, number: usize) -> FlowRecord {
        let (terminal, flow, plan, progress) = &self.flows[number];
        let progress = lock(progress);
        let nanos = |at: Option<Time>| at.map(Time::as_nanos);
        let (work, bytes, arrived) = match plan.work {
            Work::Download(bytes) => (WorkKind::Download, bytes.as_u64(), progress.received),
            Work::Upload(bytes) => (WorkKind::Upload, bytes.as_u64(), progress.uploaded),
            Work::Call(_) => (WorkKind::Call, plan.work.bytes().1, progress.received),
        };
        let echo = matches!(plan.work, Work::Call(_))
            .then(|| EchoRecord::of(progress.datagrams, progress.echoes.clone()));
        FlowRecord::Tunnel(TunnelFlow {
            terminal: *terminal,
            flow: *flow,
            work,
            bytes,
            arrived,
            begun_ns: plan.start.as_nanos(),
            reached_ns: nanos(progress.reached),
            first_byte_ns: nanos(progress.first_byte),
            done_ns: nanos(progress.done),
            echo,
            verdict: verdict(&progress, plan.start >= self.plan.until),
        })
    }

    fn sample(&self, terminal: usize) -> SampleRecord {
        let mut sample = TunnelSample {
            at_ns: self.clock.now().as_nanos(),
            terminal,
            received: 0,
            uploaded: 0,
            session: self.path(terminal),
        };
        for (.., progress) in self.flows.iter().filter(|flow| flow.0 == terminal) {
            let progress = lock(progress);
            sample.received += progress.received;
            sample.uploaded += progress.uploaded;
        }
        SampleRecord::Tunnel(sample)
    }

    fn path(&self, terminal: usize) -> Option<Path> {
        let path = self.gateway.path(&self.keys[terminal])?;
        Some(Path {
            window: path.cwnd,
            rtt_ns: u64::try_from(path.rtt.as_nanos()).unwrap_or(u64::MAX),
            sent: path.udp_tx.datagrams,
            lost: path.lost_packets,
        })
    }
}

fn verdict(progress: &Progress, late: bool) -> TunnelVerdict {
    match progress.end {
        Some(End::Closed) if progress.wrong => TunnelVerdict::WrongContent,
        Some(End::Closed) => TunnelVerdict::Ok,
        Some(End::Reset) => TunnelVerdict::Reset,
        // It has all that it wanted; only the connection's end was still on its way.
        None if progress.done.is_some() && !progress.wrong => TunnelVerdict::Ok,
        None if late => TunnelVerdict::NotBegun,
        None => TunnelVerdict::TimedOut,
    }
}

/// Writes down when the first session stood, and counts them.
async fn watch_session(clock: Clock, terminal: Terminal, seen: Arc<Mutex<Sessions>>) {
    let mut sessions = terminal.session();
    loop {
        let Ok(session) = sessions.wait_for(Option::is_some).await.map(|s| s.clone()) else {
            return;
        };
        if let Some(session) = session
            && session.confirmed().await.is_ok()
        {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.first.get_or_insert(clock.now());
            seen.count += 1;
        }
        if sessions.wait_for(Option::is_none).await.is_err() {
            return;
        }
    }
}

/// Terminals of a run know their gateway's address.
#[derive(Debug)]
struct NoNames;

impl bentpipe_tunnel::sockets::Resolve for NoNames {
    async fn resolve(&self, _host: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
        Err(std::io::Error::other("simulated gateways have no names"))
    }
}

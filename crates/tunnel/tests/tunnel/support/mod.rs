//! A terminal and a gateway with a modelled link between them, in virtual time.
//!
//! The two ends are the product's own; clock, links and UDP sockets are the simulator's;
//! the applications and the origins are in memory.

pub mod call;
mod datagrams;
mod internet;
pub mod names;
pub mod own_quic;
mod streams;
pub mod tls;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use bentpipe_link::Scenario;
use bentpipe_tunnel::flow::tally::Tally;
use bentpipe_tunnel::gateway::egress::Egress;
use bentpipe_tunnel::gateway::ip_network::IpNetwork;
use bentpipe_tunnel::gateway::policy::{Policies, Unlimited};
use bentpipe_tunnel::gateway::{Configuration, Gateway, server_config};
use bentpipe_tunnel::identity::{Fingerprint, Identity, PeerRole, Registry};
use bentpipe_tunnel::paths::Paths;
use bentpipe_tunnel::target::Target;
use bentpipe_tunnel::terminal::{Connector, Kept, Session, Terminal, Unreachable};
use bentpipe_tunnel::transport::Transport;
use bentpipe_units::Span;
use bentpipe_vnet::clock::{Clock, virtual_time};
use bentpipe_vnet::host::HostSpec;
use bentpipe_vnet::network::{MemorySocket, Network};
use bentpipe_vnet::plan::LinkPlan;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use datagrams::{DatagramEnd, datagram_pair};
pub use internet::{Internet, NAME_SERVER, Origin};
pub use streams::{Stream, stream_pair};

/// Where the gateway is, and the terminal.
pub const GATEWAY: &str = "192.0.2.1:4433";
pub const TERMINAL: &str = "192.0.2.2:50000";

const SEGMENTS: NonZeroUsize = NonZeroUsize::new(10).unwrap();

/// Runs a test in virtual time.
pub fn in_virtual_time<F: Future>(test: impl FnOnce(Clock) -> F) -> F::Output {
    virtual_time(Span::ZERO, test)
}

/// The moment on the virtual clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's paused clock is the virtual one"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// A list of terminals in memory.
#[derive(Debug, Default)]
pub struct TerminalList {
    pub terminals: Mutex<Vec<Fingerprint>>,
    /// One-time keys, and who has used them.
    pub enrolments: Mutex<BTreeMap<Fingerprint, Option<Fingerprint>>>,
    /// Old keys with the new ones, while both are good.
    pub renewals: Mutex<Vec<(Fingerprint, Fingerprint)>>,
    /// What terminals have written down of the gateway's next key.
    pub known: Mutex<Vec<(Fingerprint, Fingerprint)>>,
}

impl Registry for TerminalList {
    fn role(&self, key: &Fingerprint) -> PeerRole {
        if self.terminals.lock().unwrap().contains(key) {
            PeerRole::Terminal
        } else if self.enrolments.lock().unwrap().contains_key(key) {
            PeerRole::Enrolment
        } else {
            PeerRole::Unknown
        }
    }

    fn enrol(&self, enrolment: &Fingerprint, terminal: Fingerprint) -> Result<(), String> {
        let mut enrolments = self.enrolments.lock().unwrap();
        let used_by = enrolments.get_mut(enrolment).ok_or("withdrawn")?;
        if used_by.is_some_and(|other| other != terminal) {
            return Err("used by another".into());
        }
        *used_by = Some(terminal);
        self.terminals.lock().unwrap().push(terminal);
        Ok(())
    }

    fn renew(&self, old: &Fingerprint, new: Fingerprint) -> Result<(), String> {
        self.terminals.lock().unwrap().push(new);
        self.renewals.lock().unwrap().push((*old, new));
        Ok(())
    }

    fn renewal(&self, key: &Fingerprint) -> Option<(Fingerprint, Fingerprint)> {
        let renewals = self.renewals.lock().unwrap();
        let has = |(old, new): &&(Fingerprint, Fingerprint)| old == key || new == key;
        renewals.iter().find(has).copied()
    }

    fn retire(&self, old: &Fingerprint) {
        self.terminals.lock().unwrap().retain(|key| key != old);
        self.renewals.lock().unwrap().retain(|(key, _)| key != old);
    }

    fn knows(&self, key: &Fingerprint, next: Fingerprint) {
        self.known.lock().unwrap().push((*key, next));
    }
}

/// Key of the gateway, of the terminal and of the enrolment in these tests.
pub fn identity(seed: u8) -> Identity {
    Identity::from_seed(&[seed; 32])
}
pub const GATEWAY_SEED: u8 = 1;
pub const TERMINAL_SEED: u8 = 2;

/// What differs between tests.
pub struct Setup {
    pub scenario: Scenario,
    pub transport: Transport,
    pub internet: Internet,
    pub list: Arc<TerminalList>,
    /// The key that the terminal expects at the gateway.
    pub expects: u8,
    /// The key that the terminal has.
    pub terminal: u8,
    /// What the terminal, and the gateway, know of the path from before.
    pub paths: [Paths; 2],
    /// What the gateway lets its terminals do.
    pub policies: Arc<dyn Policies>,
    /// Where the terminal looks for the gateway.
    pub gateway: &'static str,
    /// The gateway's network of IP packets.
    pub ip: Option<IpNetwork>,
    /// The machines of both.
    pub host: HostSpec,
    /// What they draw their stalls by.
    pub seed: u64,
    /// Datagrams that they hand over at once. The QUIC library (1.3.0) panics where a batch begins with a short one
    /// (`bentpipe_quic::batches`, which these sockets do not have).
    pub segments: NonZeroUsize,
}

/// Scenario with `delay` one way and plenty of everything else.
pub fn link(delay: &str) -> Scenario {
    scenario(&format!(
        "rate = \"1 Gbit/s\"\ndelay = \"{delay}\"\nqueue = \"100 MB\""
    ))
}

/// The same over GEO, and nothing comes through any more from `from` on.
pub fn outage_from(from: &str) -> Scenario {
    outage("250 ms", from, "1 h")
}

/// A link of `delay` one way, which is out for `time` from `from` on.
pub fn outage(delay: &str, from: &str, time: &str) -> Scenario {
    scenario(&format!(
        "rate = \"1 Gbit/s\"\ndelay = \"{delay}\"\nqueue = \"100 MB\"\n\
         outages = [{{ from = \"{from}\", for = \"{time}\", packets = \"lost\" }}]"
    ))
}

/// A link that is `direction` both ways.
pub fn scenario(direction: &str) -> Scenario {
    Scenario::parse(&format!(
        "name = \"test\"\n[forward]\n{direction}\n[return]\n{direction}\n"
    ))
    .unwrap()
}

impl Default for Setup {
    fn default() -> Self {
        let list = TerminalList::default();
        list.terminals
            .lock()
            .unwrap()
            .push(identity(TERMINAL_SEED).fingerprint());
        Self {
            scenario: link("250 ms"),
            transport: Transport::default(),
            internet: Internet::default(),
            list: Arc::new(list),
            expects: GATEWAY_SEED,
            terminal: TERMINAL_SEED,
            paths: Default::default(),
            policies: Arc::new(Unlimited::default()),
            gateway: GATEWAY,
            ip: None,
            host: HostSpec::IDEAL,
            seed: 0,
            segments: SEGMENTS,
        }
    }
}

/// Two ends and what is between them. Clones are the same; it ends with the last.
#[derive(Clone)]
pub struct World {
    pub internet: Internet,
    pub terminal: Terminal,
    pub gateway: noq::Endpoint,
    /// The first gateway's counts of flows.
    pub at_gateway: Tally,
    /// The terminal's.
    pub endpoint: noq::Endpoint,
    pub network: Network,
    setup: Arc<Setup>,
    tasks: Arc<Tasks>,
}

struct Tasks(Mutex<Vec<JoinHandle<()>>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        for task in self.0.lock().unwrap().iter() {
            task.abort();
        }
    }
}

/// A network of the scenario's link, and the sockets of terminal and gateway at its ends.
pub fn sockets(clock: &Clock, scenario: &Scenario) -> (Network, MemorySocket, MemorySocket) {
    sockets_with(clock, scenario, SEGMENTS)
}

/// The same that hand over as many datagrams at once.
fn sockets_with(
    clock: &Clock,
    scenario: &Scenario,
    segments: NonZeroUsize,
) -> (Network, MemorySocket, MemorySocket) {
    let links = [LinkPlan::of(scenario)];
    let network = Network::new(clock, &links, scenario.seed, segments);
    let terminal = network.terminal(TERMINAL.parse().unwrap(), &[0]);
    let gateway = network.gateway(GATEWAY.parse().unwrap());
    (network, terminal, gateway)
}

/// A QUIC endpoint on `socket`.
pub fn endpoint(
    clock: &Clock,
    socket: MemorySocket,
    server: Option<noq::ServerConfig>,
) -> noq::Endpoint {
    let number = u64::from(server.is_none());
    bentpipe_sim::tunnel::endpoint(clock, socket, (7, number), server).unwrap()
}

impl Setup {
    /// A connector of the terminal on `endpoint`.
    pub fn connector(&self, endpoint: noq::Endpoint) -> Connector<Internet> {
        Connector {
            endpoint,
            identity: watch::channel(Arc::new(identity(self.terminal))).1,
            instance: Some(self.terminal.into()),
            gateway: self.gateway.parse().unwrap(),
            gateway_keys: Arc::new(identity(self.expects).fingerprint()),
            transport: self.transport.clone(),
            pool: self.transport.pool(),
            paths: self.paths[0].clone(),
            resolver: self.internet.clone(),
            kept: Kept::default(),
        }
    }

    /// The configuration of the gateway.
    pub fn server(&self) -> noq::ServerConfig {
        server_config(&identity(GATEWAY_SEED), self.list.clone(), &self.transport)
    }

    /// Starts a gateway on `endpoint`.
    pub fn gateway(&self, endpoint: noq::Endpoint) -> JoinHandle<()> {
        self.counted_gateway(endpoint).1
    }

    /// The same with the counts of its flows.
    fn counted_gateway(&self, endpoint: noq::Endpoint) -> (Tally, JoinHandle<()>) {
        let gateway = Gateway::new(
            endpoint,
            Configuration {
                server: self.server(),
                registry: self.list.clone(),
                transport: self.transport.clone(),
                egress: Egress::default(),
                dialler: self.internet.clone(),
                paths: self.paths[1].clone(),
                policies: self.policies.clone(),
                ip: self.ip.clone(),
            },
        );
        let network = self.ip.clone();
        let tally = gateway.tally().clone();
        let serving = tokio::spawn(async move {
            match network {
                Some(network) => drop(tokio::join!(gateway.run(), network.deliver())),
                None => gateway.run().await,
            }
        });
        (tally, serving)
    }

    /// Starts everything.
    pub fn start(self, clock: &Clock) -> World {
        let (network, terminal_socket, gateway_socket) =
            sockets_with(clock, &self.scenario, self.segments);
        let [at_gateway, at_terminal] =
            [0, 1].map(|number| clock.on(self.host, 2 * self.seed + number));
        let gateway_socket = gateway_socket.on(&at_gateway);
        let gateway = endpoint(&at_gateway, gateway_socket, Some(self.server()));
        let (at_gateway, serving) = self.counted_gateway(gateway.clone());
        let terminal_socket = terminal_socket.on(&at_terminal);
        let terminal_endpoint = endpoint(&at_terminal, terminal_socket, None);
        let (terminal, keep) = Terminal::new(self.connector(terminal_endpoint.clone()));
        let keeping = tokio::spawn(async move {
            keep.await;
        });
        World {
            internet: self.internet.clone(),
            terminal,
            gateway,
            at_gateway,
            endpoint: terminal_endpoint,
            network,
            setup: Arc::new(self),
            tasks: Arc::new(Tasks(Mutex::new(vec![serving, keeping]))),
        }
    }
}

impl World {
    /// Noise on the way to the gateway, as anyone on the internet can send it.
    pub fn noise(&self, payload: Vec<u8>) {
        let stranger = "198.51.100.66:6666".parse().unwrap();
        let [terminal, gateway] = [TERMINAL, GATEWAY].map(|address| address.parse().unwrap());
        self.network.inject(terminal, stranger, gateway, payload);
    }

    /// A connector of another terminal's, on `endpoint`.
    pub fn connector(&self, endpoint: noq::Endpoint) -> Connector<Internet> {
        self.setup.connector(endpoint)
    }

    /// An application's connection through the tunnel to `target`.
    pub fn connect(&self, target: &str) -> Stream {
        self.connect_from(0, target)
    }

    /// The same from the application's `host`.
    pub fn connect_from(&self, host: u8, target: &str) -> Stream {
        let (application, terminals_side) = stream_pair(256 * 1024);
        let terminal = self.terminal.clone();
        let target: Target = target.parse().unwrap();
        let client = IpAddr::from([192, 168, 7, host]);
        tokio::spawn(async move { terminal.carry_for(client, terminals_side, target).await });
        application
    }

    /// The gateway is killed: nobody hears another word of it.
    pub fn kill_gateway(&self) {
        self.network.remove(GATEWAY.parse().unwrap());
    }

    /// Another process of the gateway, in the place of one that was killed.
    pub fn start_gateway(&self, clock: &Clock) {
        let socket = self.network.gateway(GATEWAY.parse().unwrap());
        let endpoint = endpoint(clock, socket, Some(self.setup.server()));
        self.tasks
            .0
            .lock()
            .unwrap()
            .push(self.setup.gateway(endpoint));
    }

    /// Waits for a session other than `old`.
    pub async fn next_session(&self, old: usize) -> Session {
        let mut sessions = self.terminal.session();
        let other = |session: &Option<Session>| {
            (session.as_ref()).is_some_and(|s| s.connection().stable_id() != old)
        };
        let session = sessions.wait_for(other).await.unwrap().clone().unwrap();
        session.confirmed().await.unwrap();
        session
    }

    /// An application's UDP socket that is connected through the tunnel to `target`, and
    /// what it is told in the end.
    pub fn connect_udp(
        &self,
        host: u8,
        target: &str,
    ) -> (DatagramEnd, JoinHandle<Option<Unreachable>>) {
        let (application, terminals_side) = datagram_pair();
        let terminal = self.terminal.clone();
        let target: Target = target.parse().unwrap();
        let client = IpAddr::from([192, 168, 7, host]);
        let carried = tokio::spawn(async move {
            let socket = terminals_side;
            terminal.carry_udp_for(client, &socket, target).await
        });
        (application, carried)
    }

    /// A flow of datagrams to `target` that has carried one in each direction, with both its ends.
    pub async fn open_udp(&self, target: &str) -> (DatagramEnd, DatagramEnd) {
        let mut sockets = self.internet.serve_udp(target);
        let (application, _carried) = self.connect_udp(1, target);
        application.send(b"ring");
        let peer = sockets.recv().await.unwrap();
        assert_eq!(peer.receive().await.unwrap(), b"ring");
        peer.send(b"here");
        assert_eq!(application.receive().await.unwrap(), b"here");
        (application, peer)
    }

    /// Waits until the session is up and both ends know it.
    pub async fn warm(&self) {
        let mut session = self.terminal.session();
        let session = session
            .wait_for(Option::is_some)
            .await
            .unwrap()
            .clone()
            .unwrap();
        session.confirmed().await.unwrap();
        // Let what is still on its way arrive.
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    }
}

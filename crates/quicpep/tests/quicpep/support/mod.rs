//! A client, proxies and a server in virtual time, joined by links.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_link::Scenario;
use bentpipe_quic::layer::Layer as _;
use bentpipe_quic::version2::VERSION_2;
use bentpipe_quic::version2::socket::Version2;
use bentpipe_quicpep::hello::Hellos;
use bentpipe_quicpep::memory::Memory;
use bentpipe_quicpep::next_hop::{NextHops, Resolve};
use bentpipe_quicpep::paths::Paths;
use bentpipe_quicpep::proxy::{self, Configuration, Mode, Proxy};
use bentpipe_quicpep::routes::{Route, Routes};
use bentpipe_quicpep::tls::{self, Certificates};
use bentpipe_quicpep::transport::Side;
use bentpipe_units::{Rate, Span};
use bentpipe_vnet::clock::{Clock, virtual_time};
use bentpipe_vnet::network::{MemorySocket, Network};
use bentpipe_vnet::plan::LinkPlan;
use noq_proto::HashedConnectionIdGenerator;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// The name in everybody's certificate.
pub const NAME: &str = "server.test";
/// In virtual time waiting is free; what has not happened by then never will.
pub const STUCK: Duration = Duration::from_secs(600);

/// Runs `work` in virtual time.
pub fn in_virtual_time<F: Future>(work: impl FnOnce(Clock) -> F) -> F::Output {
    virtual_time(Span::ZERO, work)
}

/// A link of `rate` and `delay` one way that loses `loss` of its packets in each direction.
pub fn link(rate: &str, delay: &str, loss: &str) -> Scenario {
    let direction =
        format!("rate = \"{rate}\"\ndelay = \"{delay}\"\nqueue = \"1 bdp\"\nloss = \"{loss}\"");
    let direction = direction.replace("loss = \"0 %\"", "");
    let direction = direction.replace("\"1 bdp\"", "\"4 MB\"");
    Scenario::parse(&format!(
        "name = \"test\"\n[forward]\n{direction}\n[return]\n{direction}\n"
    ))
    .unwrap()
}

/// A local network: 1 Gbit/s, 1 ms of round trip.
pub fn lan() -> Scenario {
    link("1 Gbit/s", "0.5 ms", "0 %")
}

/// A satellite: 20 Mbit/s, 500 ms of round trip.
pub fn geo() -> Scenario {
    link("20 Mbit/s", "250 ms", "0 %")
}

/// A certificate with its key and the store that trusts it.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    key: Vec<u8>,
}

impl Identity {
    pub fn new(name: &str) -> Self {
        Self::until(name, 4000)
    }

    /// With a certificate that has expired when the year `year` begins.
    pub fn until(name: &str, year: i32) -> Self {
        // Ed25519: signatures of one length, so that packets have theirs.
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        Self {
            certificate: params.self_signed(&key).unwrap().der().clone(),
            key: key.serialize_der(),
        }
    }

    pub fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }

    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }

    pub fn certificates(&self) -> Certificates {
        Certificates::own(vec![self.certificate.clone()], self.key()).unwrap()
    }
}

/// Numbers for names.
#[derive(Debug, Clone)]
pub struct Names;

impl Resolve for Names {
    async fn resolve(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        let address = address.parse();
        Ok(vec![address.map_err(|_| io::Error::other("no such name"))?])
    }
}

/// What stands on a row: client, proxies, server, each joined to the next by a link.
pub struct Row {
    pub clock: Clock,
    pub network: Network,
    /// Everybody's.
    pub identity: Identity,
    hops: usize,
    next_number: u64,
}

/// A socket that reads both versions of QUIC; [`Hellos::tap`] makes another into one.
fn both_versions(socket: MemorySocket) -> Box<dyn noq::AsyncUdpSocket> {
    Version2.over(Box::new(socket))
}

/// Where the right end of hop `number` listens.
pub fn address(number: usize) -> SocketAddr {
    format!("192.0.2.{}:4433", number + 1).parse().unwrap()
}

impl Row {
    /// A row over `links`, from the client on.
    pub fn new(clock: &Clock, links: &[Scenario]) -> Self {
        Self::seeded(clock, links, 7)
    }

    /// The same with the random numbers of `seed` on the links.
    pub fn seeded(clock: &Clock, links: &[Scenario], seed: u64) -> Self {
        let plans: Vec<_> = links.iter().map(LinkPlan::of).collect();
        let segments = NonZeroUsize::new(10).unwrap();
        Self {
            clock: clock.clone(),
            network: Network::new(clock, &plans, seed, segments),
            identity: Identity::new(NAME),
            hops: links.len(),
            next_number: 0,
        }
    }

    /// A socket at the left end of hop `hop`, which opens connections over it.
    fn left(&self, hop: usize, number: u64) -> Box<dyn noq::AsyncUdpSocket> {
        let address = format!("10.{hop}.{}.{}:50000", number / 250, number % 250 + 1);
        both_versions(self.network.terminal(address.parse().unwrap(), &[hop]))
    }

    /// An endpoint of either version of QUIC over `socket`, which reads both.
    pub fn endpoint(
        &mut self,
        socket: Box<dyn noq::AsyncUdpSocket>,
        server: Option<noq::ServerConfig>,
    ) -> noq::Endpoint {
        self.next_number += 1;
        // Random numbers of its own, and nobody else's.
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[0; 32]);
        let mut config = noq::EndpointConfig::new(Arc::new(key));
        config.rng_seed(Some([u8::try_from(self.next_number % 251).unwrap(); 32]));
        config.supported_versions(vec![1, VERSION_2]);
        // One that is put where another was tells that one's peers so, as real ones do.
        config.cid_generator(Arc::new(|| {
            Box::new(HashedConnectionIdGenerator::from_key(0))
        }));
        let runtime = Arc::new(self.clock.clone());
        noq::Endpoint::new_with_abstract_socket(config, server, socket, runtime).unwrap()
    }

    /// A server at the end of the row that speaks `protocols`.
    pub fn server(&mut self, protocols: &[&str], side: &Side) -> noq::Endpoint {
        let certificates = self.identity.certificates();
        self.server_that_shows(certificates, protocols, side)
    }

    /// The same with certificates of its own.
    pub fn server_that_shows(
        &mut self,
        certificates: Certificates,
        protocols: &[&str],
        side: &Side,
    ) -> noq::Endpoint {
        self.server_with(server_config(certificates, protocols, plain(side)))
    }

    /// The same as `server` says.
    pub fn server_with(&mut self, server: noq::ServerConfig) -> noq::Endpoint {
        let socket = self.network.gateway(address(self.hops - 1));
        self.endpoint(both_versions(socket), Some(server))
    }

    /// Both ends of a relay between hop `hop` and the next one: where it is reached as `server` says, and from where it
    /// goes on.
    pub fn relay(&mut self, hop: usize, server: noq::ServerConfig) -> [noq::Endpoint; 2] {
        let socket = both_versions(self.network.gateway(address(hop)));
        let listener = self.endpoint(socket, Some(server));
        let socket = self.left(hop + 1, self.next_number);
        [listener, self.endpoint(socket, None)]
    }

    /// A client at the beginning of the row.
    pub fn client(&mut self) -> noq::Endpoint {
        let number = self.next_number;
        let socket = self.left(0, number);
        self.endpoint(socket, None)
    }

    /// A client behind several links, from the server on, without a proxy between them.
    pub fn client_behind(&mut self, links: &[usize]) -> noq::Endpoint {
        let address = format!("10.99.0.{}:50000", self.next_number + 1);
        let socket = self.network.terminal(address.parse().unwrap(), links);
        self.endpoint(both_versions(socket), None)
    }

    /// How a client with `protocols` connects.
    pub fn client_config(&self, protocols: &[&str], side: &Side) -> noq::ClientConfig {
        let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
        let tls = tls::client_with(&tls::client(self.identity.roots()), protocols.collect());
        let mut config = noq::ClientConfig::new(tls);
        config.transport_config(Arc::new(plain(side)));
        config.version(side.version_number());
        config
    }

    /// Starts a proxy between hop `hop` and the next one.
    pub fn proxy(&mut self, hop: usize, setup: Setup) -> Arc<Proxy<Names>> {
        let certificates = Arc::new(self.identity.certificates());
        let crypto = tls::server_with(&tls::server(certificates.clone()), Vec::new());
        let hellos = Hellos::new(crypto.clone());
        let server = proxy::listening(crypto);
        let socket = hellos.tap(Box::new(self.network.gateway(address(hop))));
        let listener = self.endpoint(socket, Some(server.clone()));
        let number = self.next_number;
        let socket = self.left(hop + 1, number);
        let onwards = self.endpoint(socket, None);
        let route = setup
            .route
            .unwrap_or_else(|| Route::server(address(hop + 1).to_string()));
        let routes = Routes::fixed(route);
        let roots = setup.roots.unwrap_or_else(|| self.identity.roots());
        let proxy = Proxy::new(Configuration {
            mode: setup.mode,
            listener,
            hellos,
            server,
            certificates,
            clients: setup.clients,
            next: NextHops::new(onwards, tls::client(roots), setup.next, Names, &routes, 4),
            routes,
            memory: Memory::new(setup.memory),
        });
        tokio::spawn(proxy.clone().run());
        proxy
    }
}

/// How a server shows `certificates` and speaks `protocols`.
pub fn server_config(
    certificates: Certificates,
    protocols: &[&str],
    transport: noq::TransportConfig,
) -> noq::ServerConfig {
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    let tls = tls::server_with(&tls::server(Arc::new(certificates)), protocols.collect());
    let mut server = noq::ServerConfig::with_crypto(tls);
    server.transport_config(Arc::new(transport));
    server
}

/// A side as an end without a proxy has it: its windows are all its own.
pub fn plain(side: &Side) -> noq::TransportConfig {
    let mut transport = side.quic(&Paths::default().lease([0, 0, 0, 0].into()));
    let window = noq::VarInt::from_u64(side.receive_window()).unwrap();
    transport
        .receive_window(window)
        .send_window(side.send_window());
    transport
}

/// How a proxy is set up.
pub struct Setup {
    pub mode: Mode,
    pub clients: Side,
    pub next: Side,
    pub route: Option<Route>,
    pub roots: Option<RootCertStore>,
    pub memory: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            mode: Mode::Default,
            clients: ground(),
            next: satellite(),
            route: None,
            roots: None,
            memory: 256 << 20,
        }
    }
}

/// A side on the ground.
pub fn ground() -> Side {
    Side::ground(
        Rate::from_bits_per_second(100_000_000),
        Span::from_millis(20),
    )
}

/// A side of a satellite link of 20 Mbit/s.
pub fn satellite() -> Side {
    Side {
        expected_rate: Rate::from_bits_per_second(20_000_000),
        expected_rtt: Span::from_millis(600),
        ..Side::default()
    }
}

/// Waits for what has to happen.
pub async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(STUCK, what).await.expect("it happens")
}

//! `bentpipe quic-pep`: a proxy that splits QUIC connections at the satellite hop.

mod config;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bentpipe_os::machine::Machine;
use bentpipe_os::privileges::{self, Needs};
use bentpipe_os::quic_runtime::SystemRuntime;
use bentpipe_os::{quic, quic_socket, secret};
use bentpipe_quic::layer::Layer as _;
use bentpipe_quic::version2::socket::Version2;
use bentpipe_quicpep::close::Code;
use bentpipe_quicpep::hello::Hellos;
use bentpipe_quicpep::memory::Memory;
use bentpipe_quicpep::next_hop::{NextHops, Resolve};
use bentpipe_quicpep::proxy::{self, Configuration, Proxy};
use bentpipe_quicpep::tls::{self, Authority, Certificates};
use bentpipe_tunnel::sockets::Resolve as _;
use clap::{Args, Subcommand};
use noq::Endpoint;
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use config::QuicPep;
pub use config::schema;

use crate::failure::{self, Failure};
use crate::perf::endpoint::certificates as certificates_in;
use crate::{daemon, log, qlog};

const FIRST_CONFIG: &str = r#"# bentpipe quic-pep; all options: docs/configuration.md
# This proxy decrypts what it carries: see docs/pep.md.

# Where clients arrive (UDP).
listen = "0.0.0.0:4433"
# Where they are taken: a "server", or another "pep".
next = { address = "origin.example:443", kind = "server" }
# A file with the authorities by which the next hop is verified; without it, the system's.
# ca = "/etc/bentpipe/other-pep.ca.pem"

# The two sides: the fastest that each may be, its round trip, and how fast this end sends.
[towards_clients]
expected_rate = "1 Gbit/s"
expected_rtt = "20 ms"
controller = "cubic"
initial_window = 10

[towards_next]
expected_rate = "250 Mbit/s"
expected_rtt = "650 ms"
"#;

/// A proxy that splits QUIC connections, and sees all that they carry
///
/// It ends its clients' QUIC connections, opens others to a server or to another such proxy,
/// and carries streams and datagrams between them, so that each part of the way has loss
/// recovery and congestion control of its own. IT DECRYPTS EVERYTHING: requests, answers,
/// passwords. Clients have to trust its certificate. Use it to study what splitting does, or
/// where you are both ends; the tunnel (`bentpipe terminal`) is as fast and sees nothing of
/// what is encrypted from end to end.
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
    /// The configuration; the key of its certificate authority lies beside it
    #[arg(long, default_value = "/etc/bentpipe/quic-pep.toml")]
    config: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a certificate authority for this proxy, and say how clients come to trust it
    ///
    /// Whoever has its private key can pretend to be any server to those that trust it: keep
    /// it on this machine. What exists stays as it is.
    Init {
        #[command(flatten)]
        config: Config,
    },
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command.action {
        Some(Action::Init { config }) => init(&config.config),
        None => start(&command.run.config),
    }
}

/// The authority's private key beside the configuration, and its certificate.
fn authority_files(config: &Path) -> [PathBuf; 2] {
    ["ca.key", "ca.pem"].map(|extension| config.with_extension(extension))
}

fn init(config: &Path) -> Result<(), Failure> {
    if let Some(directory) = config.parent() {
        std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
    }
    if !config.exists() {
        std::fs::write(config, FIRST_CONFIG).map_err(|error| Failure::file(config, error))?;
        eprintln!("wrote {}", config.display());
    }
    let [key, certificate] = authority_files(config);
    if !key.exists() {
        let (private, public) = Authority::create(year()).map_err(anyhow::Error::from)?;
        secret::write(&key, &private).map_err(|error| Failure::file(&key, error))?;
        std::fs::write(&certificate, public).map_err(|error| Failure::file(&certificate, error))?;
        eprintln!(
            "wrote {} (keep it here) and {}",
            key.display(),
            certificate.display()
        );
    }
    let path = certificate.display();
    daemon::say(format_args!(
        "Clients that are to trust this proxy need {path}:\n\
         \x20 curl            --cacert {path}\n\
         \x20 another proxy   ca = \"{path}\" in its configuration\n\
         \x20 Debian          copy it to /usr/local/share/ca-certificates/bentpipe.crt, run update-ca-certificates\n\
         \x20 Firefox         Settings, Certificates, Authorities, Import\n\
         \x20 Chromium        does not take QUIC from an authority of one's own, unless it is started with\n\
         \x20                 --origin-to-force-quic-on=HOST:PORT\n\
         This proxy then reads everything that they send through it."
    ));
    Ok(())
}

const WANTED: &str = "`bentpipe quic-pep init` writes a first one";

fn start(path: &Path) -> Result<(), Failure> {
    let config: QuicPep = toml::from_str(&failure::read_or(path, WANTED)?)
        .map_err(|error| Failure::file(path, error))?;
    config.check().map_err(|why| Failure::file(path, why))?;
    log::set_level(&config.log);
    let certificates = certificates(path, &config)?;
    let key = private_key(path, &config);
    let key = std::fs::read(&key).map_err(|error| Failure::file(&key, error))?;
    let roots = roots(&config)?;
    let needs = Needs {
        network_administration: false,
        low_ports: config.listen.port() < 1024,
    };
    privileges::give_up(config.user.as_deref(), needs).map_err(anyhow::Error::from)?;
    daemon::run(|_| serve(config, certificates, roots, &key))
}

async fn serve(
    config: QuicPep,
    certificates: Certificates,
    roots: RootCertStore,
    key: &[u8],
) -> Result<(), Failure> {
    let mut signals = daemon::StopSignals::new();
    let certificates = Arc::new(certificates);
    let crypto = tls::server_with(&tls::server(certificates.clone()), Vec::new());
    let hellos = Hellos::new(crypto.clone());
    let server = proxy::listening(crypto);
    let (socket, _) = quic_socket::bind(config.listen, true)
        .map_err(|error| daemon::cannot_listen("listen", "UDP", config.listen, &error))?;
    let listener = endpoint(
        hellos.tap(socket),
        Some(server.clone()),
        config.towards_clients.version_number(),
        key,
    )?;
    let onwards = quic_socket::bind(([0u16; 8], 0).into(), false)
        .or_else(|_| quic_socket::bind(([0, 0, 0, 0], 0).into(), false))
        .map_err(|error| anyhow::anyhow!("no UDP socket can be opened: {error}"))?;
    let onwards = endpoint(
        Version2.over(onwards.0),
        None,
        config.towards_next.version_number(),
        key,
    )?;
    let routes = config.routes();
    let mut next_side = config.towards_next.clone();
    next_side.seed = secret::seed().map_err(anyhow::Error::from)?;
    let mut clients = config.towards_clients.clone();
    clients.seed = secret::seed().map_err(anyhow::Error::from)?;
    next_side.events = qlog::asked_for()?;
    clients.events = next_side.events.clone();
    let proxy = Proxy::new(Configuration {
        mode: config.mode,
        listener: listener.clone(),
        hellos,
        server,
        certificates,
        clients,
        next: NextHops::new(
            onwards.clone(),
            tls::client(roots),
            next_side,
            Names(Machine::new(config.memory)),
            &routes,
            config.ready(),
        ),
        routes,
        memory: Memory::new(config.memory.as_u64()),
    });
    let running = tokio::spawn(proxy.run());
    daemon::ready(format_args!(
        "quic-pep: listening on {}; it decrypts what it carries",
        listener.local_addr().unwrap_or(config.listen)
    ));
    signals.stop().await;
    daemon::stopping();
    for endpoint in [&listener, &onwards] {
        endpoint.close(Code::Stopping.into(), b"the proxy is being stopped");
        daemon::patiently(endpoint.wait_idle()).await;
    }
    running.abort();
    daemon::say(format_args!("stopped"));
    Ok(())
}

/// An endpoint of the proxy with that private key, which its peers know again: to a proxy before it that has connections
/// ready it says at once that it was started anew.
fn endpoint(
    socket: Box<dyn noq::AsyncUdpSocket>,
    server: Option<noq::ServerConfig>,
    version: u32,
    key: &[u8],
) -> Result<Endpoint, Failure> {
    let mut config = quic::known_after_a_restart(|purpose| secret::derived(key, purpose));
    config.supported_versions(vec![version]);
    let endpoint =
        Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(SystemRuntime));
    Ok(endpoint.map_err(anyhow::Error::from)?)
}

/// The file with the private key of what clients are shown, or of the authority that makes it.
fn private_key(path: &Path, config: &QuicPep) -> PathBuf {
    let [authority, _] = authority_files(path);
    config.key.clone().unwrap_or(authority)
}

/// What clients are shown.
fn certificates(path: &Path, config: &QuicPep) -> Result<Certificates, Failure> {
    if let (Some(chain), Some(key)) = (&config.certificate, &config.key) {
        let private = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| Failure::file(key, format!("not a private key in PEM: {error}")))?;
        return Certificates::own(certificates_in(chain)?, private)
            .map_err(|error| Failure::file(chain, error));
    }
    let [key, _] = authority_files(path);
    if !key.exists() {
        return Err(Failure::file(
            path,
            format!(
                "there is no certificate to show clients: run `bentpipe quic-pep init --config {}`, or give `certificate` and `key`",
                path.display()
            ),
        ));
    }
    let authority =
        Authority::new(&failure::read(&key)?, year).map_err(|error| Failure::file(&key, error))?;
    Ok(Certificates::Authority(Box::new(authority)))
}

/// By what next hops are verified.
fn roots(config: &QuicPep) -> Result<RootCertStore, Failure> {
    let mut roots = RootCertStore::empty();
    let Some(file) = &config.ca else {
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        if roots.is_empty() {
            return Err(Failure::Configuration(
                "this system has no certificate authorities by which a next hop could be verified; install ca-certificates, or give `ca`".into(),
            ));
        }
        return Ok(roots);
    };
    for certificate in certificates_in(file)? {
        roots
            .add(certificate)
            .map_err(|error| Failure::file(file, format!("ca: {error}")))?;
    }
    Ok(roots)
}

/// The year of now, give or take a day.
fn year() -> i32 {
    /// Of the Gregorian calendar, on average.
    const SECONDS: u64 = 31_556_952;
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i32::try_from(1970 + since.as_secs() / SECONDS).unwrap_or(i32::MAX)
}

/// The machine's resolver.
#[derive(Debug)]
struct Names(Machine);

impl Resolve for Names {
    async fn resolve(&self, address: &str) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = address.parse() {
            return Ok(vec![address]);
        }
        let (host, port) = (address.rsplit_once(':'))
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .ok_or_else(|| io::Error::other("not a host and a port"))?;
        let addresses = self.0.resolve(host).await?;
        Ok(addresses
            .into_iter()
            .map(|ip| SocketAddr::new(ip, port))
            .collect())
    }
}

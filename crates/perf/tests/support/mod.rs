//! A client and a server of the measurement over one link of 300 ms each way, in virtual time.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bentpipe_cc::PathMemory;
use bentpipe_link::Scenario;
use bentpipe_perf::client;
use bentpipe_perf::clock::Clock;
use bentpipe_perf::files::{self, Fetch, Files, Sink, Source, Store};
use bentpipe_perf::parameters::Parameters;
use bentpipe_perf::protocol::{ALPN, Application};
use bentpipe_perf::quic::{QuicDialler, Target};
use bentpipe_perf::report::Report;
use bentpipe_perf::server::Service;
use bentpipe_perf::tls::{self, Credentials, Trust};
use bentpipe_perf::workload::Workload;
use bentpipe_quic::version2;
use bentpipe_units::Span;
use bentpipe_vnet::clock::virtual_time;
use bentpipe_vnet::network::Network;
use bentpipe_vnet::plan::LinkPlan;
use futures_util::future::{BoxFuture, FutureExt as _, pending, ready};
use rustls::server::StoresServerSessions;
use tokio::io::AsyncWrite;

/// A direction that carries a packet in a fraction of a nanosecond.
pub const UNLIMITED: &str = "rate = \"1000000 Gbit/s\"";
const SERVER: &str = "192.0.2.1:4433";
const CLIENT: &str = "192.0.2.2:50000";

/// What a server gives its clients to resume from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sessions {
    Kept,
    /// It knows nothing of what it has given when somebody comes with it.
    Forgotten,
    None,
}

/// How a server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Honest,
    /// It does not hear anything.
    Dead,
    /// It answers half and then says nothing.
    Silent,
    /// It takes requests and says nothing.
    Mute,
    /// It resets streams halfway.
    Resets,
    /// It closes connections halfway.
    Closes,
    /// It sends so many bytes more than it is asked for, and never more than a thousand.
    Lies(i64),
}

/// How the two ends differ from ordinary ones.
#[derive(Debug)]
pub struct Ends {
    pub client: Parameters,
    pub server: Parameters,
    pub resume: bool,
    /// What the client knows of the path.
    pub memory: PathMemory,
    pub manner: Manner,
    pub wrong_key: bool,
    pub protocol: &'static [u8],
    pub sessions: Sessions,
    /// When the client is to stop.
    pub stopped: Option<Span>,
    /// Files that are fetched instead of the workload, and the protocol for that.
    pub files: Option<(Application, Vec<http::Uri>)>,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            client: Parameters::default(),
            server: Parameters::default(),
            resume: false,
            memory: PathMemory::default(),
            manner: Manner::Honest,
            wrong_key: false,
            protocol: ALPN,
            sessions: Sessions::Kept,
            stopped: None,
            files: None,
        }
    }
}

impl Ends {
    /// Ends whose first flights are not spread out: a window of a thousand packets in an
    /// initial round trip whose third timeout is longer than the real one.
    pub fn unpaced() -> Self {
        let mut parameters = Parameters::default();
        parameters.settings.initial_window = 1_000;
        parameters.settings.initial_rtt = Span::from_millis(240);
        Self {
            client: parameters.clone(),
            server: parameters,
            ..Self::default()
        }
    }
}

/// What both ends reported.
#[derive(Debug)]
pub struct Measured {
    pub client: Report,
    pub server: Vec<Report>,
}

/// A link whose directions are as `direction` says, with a queue of 1500 kB if it says nothing of one.
fn link(direction: &str) -> Scenario {
    let queue = match direction.contains("queue") {
        true => "",
        false => "queue = \"1500 kB\"",
    };
    let text = format!(
        "name = \"test\"\n[forward]\ndelay = \"300 ms\"\n{queue}\n{direction}\n[return]\ndelay = \"300 ms\"\n{queue}\n{direction}\n"
    );
    Scenario::parse(&text).expect("a scenario")
}

/// Measures `workload` over a link whose directions are as `direction` says.
pub fn measure(direction: &str, ends: Ends, workload: Workload) -> Measured {
    let (client, mut server) = run(direction, ends, workload);
    let client = client.expect("the measurement begins");
    // A connection that only left something to resume from comes first.
    let measured = server.split_off(server.len().saturating_sub(client.connections.len()));
    Measured {
        client,
        server: measured,
    }
}

/// Why a measurement with these ends does not begin.
pub fn refused(ends: Ends) -> String {
    let (client, _) = run(UNLIMITED, ends, Workload::default());
    client.expect_err("there is nothing to measure").to_string()
}

/// Keeps no sessions, and says that it does.
#[derive(Debug)]
struct Forgetful;

impl StoresServerSessions for Forgetful {
    fn put(&self, _: Vec<u8>, _: Vec<u8>) -> bool {
        true
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// A server that resumes nothing.
fn without_sessions(
    credentials: Credentials,
    protocol: &[u8],
    sessions: Sessions,
) -> Arc<version2::keys::Server> {
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])
    .expect("the provider has TLS 1.3")
    .with_no_client_auth()
    .with_single_cert(credentials.chain, credentials.key)
    .expect("a certificate and its key");
    tls.alpn_protocols = vec![protocol.to_vec()];
    tls.max_early_data_size = u32::MAX;
    tls.session_storage = Arc::new(Forgetful);
    if sessions == Sessions::None {
        tls.send_tls13_tickets = 0;
    }
    Arc::new(version2::keys::Server::new(Arc::new(tls)).expect("AES-128-GCM"))
}

fn run(
    direction: &str,
    ends: Ends,
    workload: Workload,
) -> (Result<Report, bentpipe_perf::error::PerfError>, Vec<Report>) {
    let scenario = link(direction);
    virtual_time(Span::ZERO, |clock| async move {
        let links = [LinkPlan::of(&scenario)];
        let network = Network::new(&clock, &links, 1, NonZeroUsize::new(10).expect("not zero"));
        let (address, from): (SocketAddr, SocketAddr) = (
            SERVER.parse().expect("an address"),
            CLIENT.parse().expect("an address"),
        );
        let (credentials, _) = Credentials::generate(vec!["server.test".into()]).expect("a key");
        let (other, _) = Credentials::generate(vec!["server.test".into()]).expect("a key");
        let key = match ends.wrong_key {
            true => other.fingerprint(),
            false => credentials.fingerprint(),
        };
        let tls: Arc<dyn noq_proto::crypto::ServerConfig> = match ends.sessions {
            Sessions::Kept => tls::server(credentials, &[ends.protocol], None).expect("TLS"),
            sessions => without_sessions(credentials, ends.protocol, sessions),
        };
        let mut config = noq::ServerConfig::with_crypto(tls);
        config.transport_config(Arc::new(ends.server.transport(PathMemory::default())));
        let socket = network.gateway(address);
        let server = bentpipe_sim::tunnel::endpoint(&clock, socket, (1, 0), Some(config))
            .expect("an endpoint");
        let perf_clock = Clock::new(Arc::new(clock.clone()));
        let reports = Arc::new(Mutex::new(Vec::new()));
        let told = reports.clone();
        let service = Service {
            clock: perf_clock.clone(),
            parameters: (&ends.server).into(),
            interval: Span::from_millis(1_000),
            connections: 100,
            files: Some(Arc::new(Patterns)),
            tell: Arc::new(move |report| told.lock().expect("no panic").push(report)),
        };
        match ends.manner {
            Manner::Dead => {}
            Manner::Honest => drop(tokio::spawn(service.quic(server.clone()))),
            manner => drop(tokio::spawn(misbehaving(server.clone(), manner))),
        }
        let socket = network.terminal(from, &[0]);
        let endpoint =
            bentpipe_sim::tunnel::endpoint(&clock, socket, (1, 1), None).expect("an endpoint");
        let dialler = QuicDialler::new(
            endpoint.clone(),
            Target {
                address,
                name: "server.test".into(),
                trust: Trust::Key(key.expect("a fingerprint")),
                application: (ends.files.as_ref()).map_or(Application::Perf, |(files, _)| *files),
                resume: ends.resume,
                patience: Span::from_millis(5_000),
            },
            &ends.client,
            ends.memory.clone(),
            None,
        );
        let parameters = (&ends.client).into();
        let mut record = |_: &_| {};
        let client = match ends.files {
            None => {
                let stop = async {
                    match ends.stopped {
                        Some(at) => perf_clock.sleep_until(at).await,
                        None => pending().await,
                    }
                };
                client::run(
                    &dialler,
                    &perf_clock,
                    &workload,
                    parameters,
                    stop,
                    &mut record,
                )
                .await
            }
            Some((_, files)) => {
                let fetch = Fetch {
                    files,
                    at_once: 2,
                    store: Arc::new(Patterns),
                    interval: workload.interval,
                    stall: workload.stall,
                    changes: false,
                };
                let for_ever = pending();
                files::run(
                    &dialler,
                    &perf_clock,
                    &fetch,
                    parameters,
                    for_ever,
                    &mut record,
                )
                .await
            }
        };
        // The server hears of the end half a round trip later.
        endpoint.wait_idle().await;
        let reports = std::mem::take(&mut *reports.lock().expect("no panic"));
        (client, reports)
    })
}

/// Files whose path is their length, and whose bytes count up; they are checked where they go.
struct Patterns;

fn pattern(path: &str) -> io::Result<Vec<u8>> {
    let length = path.trim_start_matches('/').parse();
    let length: usize = length.map_err(|_| io::ErrorKind::NotFound)?;
    Ok((0..=250).cycle().take(length).collect())
}

impl Files for Patterns {
    fn open<'a>(&'a self, path: &'a str) -> BoxFuture<'a, io::Result<(Source, u64)>> {
        let opened = pattern(path).map(|bytes| {
            let length = bytes.len() as u64;
            (Box::new(io::Cursor::new(bytes)) as Source, length)
        });
        ready(opened).boxed()
    }
}

impl Store for Patterns {
    fn create<'a>(&'a self, path: &'a str) -> BoxFuture<'a, io::Result<Sink>> {
        let expected = pattern(path).unwrap_or_default();
        ready(Ok(Box::new(Check(expected.into())) as Sink)).boxed()
    }
}

/// What is still to come of a file.
struct Check(VecDeque<u8>);

impl AsyncWrite for Check {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        assert!(data.len() <= self.0.len(), "too much");
        assert!(
            self.0.drain(..data.len()).eq(data.iter().copied()),
            "wrong content"
        );
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        assert!(self.0.is_empty(), "{} bytes are missing", self.0.len());
        Poll::Ready(Ok(()))
    }
}

/// A server that is not honest.
async fn misbehaving(endpoint: noq::Endpoint, manner: Manner) {
    let incoming = endpoint.accept().await.expect("a client");
    let connection = incoming.await.expect("a handshake");
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let asked = receive.read_to_end(1_000).await.expect("a request");
        let asked = u64::from_be_bytes(asked[..8].try_into().expect("a header"));
        if manner == Manner::Mute {
            // Streams that are dropped are ended.
            std::mem::forget((send, receive));
            continue;
        }
        let honest = i64::try_from(asked.min(1_000)).expect("at most a thousand");
        let bytes = match (manner, asked) {
            // As good as endless, and yet it ends.
            (Manner::Lies(_), u64::MAX) => 999,
            (Manner::Lies(more), _) => honest + more,
            _ => honest / 2,
        };
        let bytes = usize::try_from(bytes).expect("not less than nothing");
        let sent = send.write_all(&vec![0; bytes]).await;
        sent.expect("a client that listens");
        match manner {
            Manner::Resets => send.reset(77_u32.into()).expect("it is open"),
            Manner::Closes => connection.close(78_u32.into(), b"not today"),
            Manner::Silent => pending().await,
            _ => send.finish().expect("it is open"),
        }
    }
}

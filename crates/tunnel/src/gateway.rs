//! The gateway: authenticates terminals and speaks to the real servers for them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bentpipe_cc::PathMemory;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h3::error::Code;
use noq::VarInt;
use tokio::sync::Semaphore;

use crate::egress::Egress;
use crate::flow::{self, Carried, Down as _};
use crate::identity::{Fingerprint, Identity, Registry, Standing};
use crate::outside::Dial;
use crate::paths::{Paths, Use};
use crate::session::{describe, path};
use crate::stall::Stalls;
use crate::target::{Host, Target};
use crate::transport::{MAX_FLOWS, Transport};
use crate::wire::request::{self, Asked, ErrorKind, Refusal};
use bentpipe_quic::h3::{Connection, Stops};

/// An origin that has not answered by then is told to the terminal as a timeout.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Handshakes that may be under way. Nobody has shown a key yet, so they get little:
/// no stream, 16 KiB of early packets, and not for long.
const MAX_HANDSHAKES: usize = 256;
/// When more than these are under way, each new source first proves that it receives
/// what is sent to its address (Retry, RFC 9000, section 8.1.2).
const HANDSHAKES_ON_TRUST: usize = 64;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
const EARLY_PACKETS: u64 = 16 * 1024;
/// A one-time key has this long to enrol its terminal.
const ENROLMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait before the next address of a name is tried beside the last (RFC 8305, section 8).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

type RequestStream = h3::server::RequestStream<crate::session::BidiStream, Bytes>;

/// A running gateway.
pub struct Gateway<D> {
    endpoint: noq::Endpoint,
    server: noq::ServerConfig,
    registry: Arc<dyn Registry>,
    transport: Transport,
    egress: Egress,
    dialler: D,
    paths: Paths,
    sessions: Mutex<Sessions>,
    /// UDP datagrams that belonged to sessions which have ended.
    datagrams: AtomicU64,
}

/// Open sessions: one for each terminal, the newest.
#[derive(Default)]
struct Sessions {
    open: BTreeMap<Fingerprint, noq::Connection>,
}

/// One session, as its requests see it.
struct Peer {
    connection: noq::Connection,
    key: Fingerprint,
    standing: Standing,
    stops: Stops,
    stalls: Stalls,
}

/// What a gateway needs beside its endpoint.
pub struct Parts<D> {
    /// The configuration that its endpoint has, of [`server_config`].
    pub server: noq::ServerConfig,
    /// Whom it knows.
    pub registry: Arc<dyn Registry>,
    /// Windows and controller.
    pub transport: Transport,
    /// What may be dialled.
    pub egress: Egress,
    /// How it is dialled.
    pub dialler: D,
    /// What earlier sessions learnt of the ways to the terminals.
    pub paths: Paths,
}

/// The QUIC configuration of a gateway that is `identity`.
pub fn server_config(
    identity: &Identity,
    registry: Arc<dyn Registry>,
    transport: &Transport,
) -> noq::ServerConfig {
    let tls = Arc::new(identity.tls_from(registry));
    let mut config = noq::ServerConfig::with_crypto(tls);
    config
        .transport_config(Arc::new(transport.quic(MAX_FLOWS, PathMemory::default())))
        .max_incoming(MAX_HANDSHAKES)
        .incoming_buffer_size(EARLY_PACKETS)
        .incoming_buffer_size_total(EARLY_PACKETS * MAX_HANDSHAKES as u64);
    config
}

impl<D: Dial> Gateway<D> {
    /// A gateway that serves what arrives at `endpoint`.
    pub fn new(endpoint: noq::Endpoint, parts: Parts<D>) -> Arc<Self> {
        let Parts {
            server,
            registry,
            transport,
            egress,
            dialler,
            paths,
        } = parts;
        Arc::new(Self {
            endpoint,
            server,
            registry,
            transport,
            egress,
            dialler,
            paths,
            sessions: Mutex::default(),
            datagrams: AtomicU64::new(0),
        })
    }

    /// Serves until the endpoint is closed.
    pub async fn run(self: &Arc<Self>) {
        let handshakes = Arc::new(Semaphore::new(MAX_HANDSHAKES));
        while let Some(incoming) = self.endpoint.accept().await {
            let Ok(place) = handshakes.clone().try_acquire_owned() else {
                incoming.refuse();
                continue;
            };
            let under_way = MAX_HANDSHAKES - handshakes.available_permits();
            if under_way > HANDSHAKES_ON_TRUST
                && incoming.may_retry()
                && !incoming.remote_address_validated()
            {
                // Fails only for a source that has been validated.
                let _ = incoming.retry();
                continue;
            }
            let gateway = self.clone();
            tokio::spawn(async move {
                let from = incoming.remote_address();
                let memory = PathMemory::default();
                let server = gateway.server(memory.clone());
                let shaken = async { incoming.accept_with(server)?.await };
                let shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, shaken).await;
                drop(place);
                match shaken {
                    Ok(Ok(connection)) => gateway.serve(connection, from, memory).await,
                    Ok(Err(error)) => tracing::warn!(%from, "no session: {}", describe(&error)),
                    Err(_) => tracing::debug!(%from, "no session: the handshake was not finished"),
                }
            });
        }
    }

    /// The configuration for a session whose controller works with `memory`.
    fn server(&self, memory: PathMemory) -> Arc<noq::ServerConfig> {
        let transport = self.transport.quic(MAX_FLOWS, memory);
        let mut server = self.server.clone();
        server.transport_config(Arc::new(transport));
        Arc::new(server)
    }

    /// UDP datagrams that belonged to a session, so far.
    pub fn session_datagrams(&self) -> u64 {
        let open: u64 = self
            .lock()
            .open
            .values()
            .map(|c| c.stats().udp_rx.datagrams)
            .sum();
        open + self.datagrams.load(Ordering::Relaxed)
    }

    /// How the path to the terminal with `key` stands, if it has a session.
    pub fn path(&self, key: &Fingerprint) -> Option<noq::PathStats> {
        let connection = self.lock().open.get(key)?.clone();
        connection.path_stats(noq::PathId::ZERO)
    }

    async fn serve(
        self: Arc<Self>,
        connection: noq::Connection,
        from: SocketAddr,
        memory: PathMemory,
    ) {
        let Some(key) = Fingerprint::of_peer(&connection) else {
            // The handshake requires a certificate; without one it is a defect of ours.
            connection.close(VarInt::from_u32(0), b"no key was shown");
            return;
        };
        let standing = self.registry.standing(&key);
        if standing == Standing::Terminal && !self.admit(key, &connection) {
            tracing::warn!(%from, %key, "session refused: {} are open, which is what the memory is for", self.transport.max_sessions());
            close(
                &connection,
                Code::H3_EXCESSIVE_LOAD,
                b"the gateway has no room for another session",
            );
            return;
        }
        // From here on it is known who sends, and with that what may be known of the path.
        let used = (standing == Standing::Terminal).then(|| self.paths.enter(key, memory));
        let known = used.as_ref().map(Use::describe);
        tracing::info!(%from, %key, ?standing, known, "session is up");
        let serving = self.serve_requests(&connection, key, standing);
        if standing == Standing::Terminal {
            serving.await;
        } else if tokio::time::timeout(ENROLMENT_TIMEOUT, serving)
            .await
            .is_err()
        {
            close(&connection, Code::H3_NO_ERROR, b"the time to enrol is over");
        }
        drop(used);
        let why = connection
            .close_reason()
            .map_or_else(|| "ended".into(), |error| describe(&error));
        let path = path(&connection);
        tracing::info!(%from, %key, %path, "session ended: {why}");
        self.datagrams
            .fetch_add(connection.stats().udp_rx.datagrams, Ordering::Relaxed);
        let mut sessions = self.lock();
        if sessions
            .open
            .get(&key)
            .is_some_and(|open| open.stable_id() == connection.stable_id())
        {
            sessions.open.remove(&key);
        }
    }

    /// Gives the session a place. A terminal's new session replaces its old one, which
    /// it has lost or it would not open another.
    fn admit(&self, key: Fingerprint, connection: &noq::Connection) -> bool {
        let mut sessions = self.lock();
        let known = sessions.open.contains_key(&key);
        if !known && sessions.open.len() as u64 >= self.transport.max_sessions() {
            return false;
        }
        if let Some(old) = sessions.open.insert(key, connection.clone()) {
            close(
                &old,
                Code::H3_NO_ERROR,
                b"replaced by a newer session of the same terminal",
            );
        }
        true
    }

    async fn serve_requests(
        self: &Arc<Self>,
        connection: &noq::Connection,
        key: Fingerprint,
        standing: Standing,
    ) {
        let wire = Connection::new(connection.clone());
        let peer = Arc::new(Peer {
            connection: connection.clone(),
            key,
            standing,
            stops: wire.stops(),
            stalls: Stalls::new(self.transport.max_stalled_flows()),
        });
        let mut requests = match h3::server::builder()
            .max_field_section_size(request::MAX_FIELD_SECTION)
            .send_grease(false)
            .build::<_, Bytes>(wire)
            .await
        {
            Ok(requests) => requests,
            Err(error) => {
                tracing::warn!(%key, "HTTP/3 could not be set up: {error}");
                return;
            }
        };
        loop {
            match requests.accept().await {
                Ok(Some(resolver)) => {
                    let (gateway, peer) = (self.clone(), peer.clone());
                    tokio::spawn(async move {
                        match resolver.resolve_request().await {
                            Ok((request, stream)) => {
                                gateway
                                    .answer(request::asked(&request), stream, &peer)
                                    .await;
                            }
                            Err(error) => tracing::debug!(%key, "request not understood: {error}"),
                        }
                    });
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::debug!(%key, "no more requests: {error}");
                    return;
                }
            }
        }
    }

    async fn answer(&self, asked: Result<Asked, Refusal>, stream: RequestStream, peer: &Peer) {
        let prohibited = |detail: &str| Refusal {
            kind: ErrorKind::DestinationIpProhibited,
            detail: detail.into(),
        };
        match (asked, peer.standing) {
            (Ok(Asked::Connect(target)), Standing::Terminal) => match self.dial(&target).await {
                Ok(socket) => {
                    let (carried, result) = self.open_flow(socket, stream, peer).await;
                    let Carried { up, down } = carried;
                    let path = path(&peer.connection);
                    match result {
                        Ok(()) => tracing::debug!(%target, up, down, path, "flow ended"),
                        Err(error) => {
                            tracing::debug!(%target, up, down, path, "flow reset: {error}")
                        }
                    }
                }
                Err(refusal) => {
                    tracing::debug!(%target, "flow refused: {refusal}");
                    refuse(stream, &refusal).await;
                }
            },
            (Ok(Asked::Enrol(terminal)), Standing::Enrolment) => {
                match self.registry.enrol(&peer.key, terminal) {
                    Ok(()) => {
                        tracing::info!(%terminal, "terminal enrolled");
                        accept(stream).await;
                    }
                    Err(why) => {
                        tracing::warn!(%terminal, "terminal not enrolled: {why}");
                        refuse(stream, &prohibited(&why)).await;
                    }
                }
            }
            (Ok(Asked::Connect(_)), _) => {
                refuse(stream, &prohibited("a one-time key can only enrol")).await;
            }
            (Ok(Asked::Enrol(_)), _) => {
                refuse(
                    stream,
                    &prohibited("an enrolled terminal cannot enrol others"),
                )
                .await;
            }
            (Err(refusal), _) => refuse(stream, &refusal).await,
        }
    }

    async fn open_flow(
        &self,
        socket: D::Socket,
        mut stream: RequestStream,
        peer: &Peer,
    ) -> (Carried, Result<(), flow::FlowError>) {
        if let Err(error) = stream.send_response(request::accepted()).await {
            return (Carried::default(), Err(error.into()));
        }
        let stopped = peer.stops.stopped(stream.send_id());
        let (up, down) = stream.split();
        flow::carry(
            socket,
            up,
            down,
            async |_: &mut _| Ok(()),
            stopped,
            &peer.stalls,
        )
        .await
    }

    /// Connects to `target`: its addresses that egress allows, one after the other,
    /// beside each other when one is slow (RFC 8305).
    async fn dial(&self, target: &Target) -> Result<D::Socket, Refusal> {
        let deadline = tokio::time::sleep(DIAL_TIMEOUT);
        tokio::pin!(deadline);
        let addresses = tokio::select! {
            biased;
            addresses = self.allowed(target) => addresses?,
            () = &mut deadline => {
                let detail = format!("{target} did not resolve within {} s", DIAL_TIMEOUT.as_secs());
                return Err(Refusal { kind: ErrorKind::DnsTimeout, detail });
            }
        };
        let mut waiting = addresses.into_iter();
        let mut dialling = FuturesUnordered::new();
        let mut failure = None;
        loop {
            if let Some(address) = waiting.next() {
                let address = SocketAddr::new(address, target.port);
                dialling.push(async move { (address, self.dialler.dial(address).await) });
            } else if dialling.is_empty() {
                return Err(failure.unwrap_or_else(|| Refusal {
                    kind: ErrorKind::DnsError,
                    detail: format!("{target} has no address"),
                }));
            }
            let more = waiting.len() > 0;
            tokio::select! {
                biased;
                Some((address, dialled)) = dialling.next() => match dialled {
                    Ok(socket) => return Ok(socket),
                    Err(error) => {
                        let detail = format!("{address}: {error}");
                        failure.get_or_insert(Refusal { kind: ErrorKind::of_dial(&error), detail });
                    }
                },
                () = tokio::time::sleep(NEXT_ADDRESS), if more => {}
                () = &mut deadline => {
                    let detail = format!("{target} did not answer within {} s", DIAL_TIMEOUT.as_secs());
                    return Err(Refusal { kind: ErrorKind::ConnectionTimeout, detail });
                }
            }
        }
    }

    /// The target's addresses that may be dialled.
    async fn allowed(&self, target: &Target) -> Result<Vec<IpAddr>, Refusal> {
        let addresses = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.dialler.resolve(name).await.map_err(|error| Refusal {
                kind: ErrorKind::DnsError,
                detail: format!("{name}: {error}"),
            })?,
        };
        let own = self.dialler.own_addresses();
        let mut denied = None;
        let allowed: Vec<_> = addresses
            .into_iter()
            .filter(|address| match self.egress.check(*address, &own) {
                Ok(()) => true,
                Err(kind) => {
                    denied = Some(Refusal {
                        kind: ErrorKind::DestinationIpProhibited,
                        detail: format!("{address} is {kind} and not in egress.allow"),
                    });
                    false
                }
            })
            .collect();
        match denied {
            Some(refusal) if allowed.is_empty() => {
                tracing::warn!(%target, "egress denied: {}", refusal.detail);
                Err(refusal)
            }
            _ => Ok(allowed),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn close(connection: &noq::Connection, code: Code, reason: &[u8]) {
    connection.close(VarInt::from_u64(code.value()).unwrap_or_default(), reason);
}

/// Answers that it is done. An error means that nobody is there to hear it.
async fn accept(mut stream: RequestStream) {
    let _ = stream.send_response(request::accepted()).await;
    let _ = stream.finish().await;
}

/// Answers that it is refused. An error means that nobody is there to hear it.
async fn refuse(stream: RequestStream, refusal: &Refusal) {
    let (mut up, mut down) = stream.split();
    let _ = up.send_response(refusal.response()).await;
    let _ = up.finish().await;
    down.abort();
}

//! The gateway as a whole: accepts sessions and serves them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use bentpipe_cc::PathMemory;
use bentpipe_quic::clock::now;
use h3::error::Code;
use noq::VarInt;
use tokio::sync::{Semaphore, watch};

use super::admission::{Admission, HANDSHAKE_TIMEOUT};
use super::client::Arriving;
use super::dial::Dialler;
use super::egress::Egress;
use super::ip_network::IpNetwork;
use super::log_limit::LogLimit;
use super::policy::Policies;
use super::requests::Requests;
use super::sessions::Sessions;
use super::usage::Usages;
use crate::flow::tally::Tally;
use crate::identity::{Fingerprint, Identity, PeerRole, Registry, tls};
use crate::paths::{PathLease, Paths};
use crate::session::{canonical, close, describe, path_summary};
use crate::sockets::Dial;
use crate::transport::{MAX_FLOWS, MAX_UDP_FLOWS, Transport, UDP_FLOWS_ENDING};

/// A one-time key has this long to enrol its terminal.
const ENROLMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Sessions with one-time keys, at most.
const MAX_ENROLMENTS: usize = 1;
/// What such a session may send before it is read, bytes.
const ENROLMENT_WINDOW: VarInt = VarInt::from_u32(16 * 1024);
/// Sessions of clients that have shown neither key nor token yet, at most.
const MAX_UNKNOWN: usize = 16;
/// What a session may send before it is known who it is with, where that comes after the
/// handshake, bytes.
const UNKNOWN_WINDOW: VarInt = VarInt::from_u32(64 * 1024);
/// Whether terminals are still enrolled is asked so often.
const REVOCATION: Duration = Duration::from_secs(2);

/// A running gateway.
pub struct Gateway<D> {
    endpoint: noq::Endpoint,
    server: RwLock<noq::ServerConfig>,
    registry: Arc<dyn Registry>,
    transport: Transport,
    requests: Arc<Requests<D>>,
    paths: Paths,
    sessions: Arc<Sessions>,
    drain: watch::Sender<bool>,
    enrolments: Semaphore,
    unknown: Semaphore,
    /// Lines about handshakes that failed.
    refusals: LogLimit,
}

/// What a gateway needs beside its endpoint.
pub struct Configuration<D> {
    /// The configuration that its endpoint has, of [`server_config`].
    pub server: noq::ServerConfig,
    /// The keys that it accepts.
    pub registry: Arc<dyn Registry>,
    /// Windows and controller.
    pub transport: Transport,
    /// What may be dialled.
    pub egress: Egress,
    /// How it is dialled.
    pub dialler: D,
    /// What earlier sessions learnt of the ways to the terminals.
    pub paths: Paths,
    /// What each terminal may do.
    pub policies: Arc<dyn Policies>,
    /// The network of terminals' IP packets, if there is to be one; whoever has it makes it
    /// [deliver](IpNetwork::deliver).
    pub ip: Option<IpNetwork>,
}

/// The QUIC configuration of a gateway that is `identity`.
pub fn server_config(
    identity: &Identity,
    registry: Arc<dyn Registry>,
    transport: &Transport,
) -> noq::ServerConfig {
    let tls = Arc::new(tls::server(identity, registry));
    let mut config = noq::ServerConfig::with_crypto(tls);
    config.transport_config(Arc::new(transport.quic(MAX_FLOWS, PathMemory::default())));
    Admission::configure(&mut config);
    config
}

impl<D: Dial> Gateway<D> {
    /// A gateway that serves what arrives at `endpoint`.
    pub fn new(endpoint: noq::Endpoint, configuration: Configuration<D>) -> Arc<Self> {
        let Configuration {
            server,
            registry,
            transport,
            egress,
            dialler,
            paths,
            policies,
            ip,
        } = configuration;
        let (drain, draining) = watch::channel(false);
        let sessions = Arc::<Sessions>::default();
        let requests = Arc::new(Requests {
            registry: registry.clone(),
            sessions: sessions.clone(),
            dialler: Dialler::new(egress, dialler),
            pool: transport.pool(),
            flow_window: transport.flow_window(),
            tally: Tally::default(),
            policies,
            usages: Usages::default(),
            udp_flows: AtomicUsize::new(MAX_UDP_FLOWS + UDP_FLOWS_ENDING),
            ip,
            draining,
        });
        Arc::new(Self {
            endpoint,
            server: RwLock::new(server),
            registry,
            transport,
            requests,
            paths,
            sessions,
            drain,
            enrolments: Semaphore::new(MAX_ENROLMENTS),
            unknown: Semaphore::new(MAX_UNKNOWN),
            refusals: LogLimit::default(),
        })
    }

    /// Serves until the endpoint is closed.
    pub async fn run(self: &Arc<Self>) {
        tokio::select! {
            () = self.accept() => {}
            () = self.watch_revocations() => {}
        }
    }

    /// Ends the sessions of terminals that are no longer enrolled.
    pub fn close_revoked(&self) {
        for (key, connection) in self.sessions.all() {
            if self.registry.role(&key) != PeerRole::Terminal {
                tracing::warn!(%key, "session closed: the terminal is no longer enrolled");
                close(
                    &connection,
                    Code::H3_NO_ERROR,
                    "this terminal is no longer enrolled at the gateway",
                );
            }
        }
    }

    async fn watch_revocations(&self) {
        loop {
            tokio::time::sleep(REVOCATION).await;
            self.close_revoked();
        }
    }

    async fn accept(self: &Arc<Self>) {
        let admission = Admission::default();
        while let Some(incoming) = self.endpoint.accept().await {
            let Some((incoming, admitted)) = admission.admit(incoming) else {
                continue;
            };
            let gateway = self.clone();
            tokio::spawn(async move {
                let from = canonical(incoming.remote_address());
                let memory = PathMemory::default();
                let server = gateway.server(memory.clone());
                let handshake = async {
                    match incoming.accept_with(server)?.into_0rtt() {
                        // Whoever has shown a ticket is known by the key that it was given for.
                        Ok((connection, _)) if Fingerprint::of_peer(&connection).is_some() => {
                            Ok(connection)
                        }
                        Ok((connection, finished)) => {
                            finished.await;
                            connection.close_reason().map_or(Ok(connection), Err)
                        }
                        Err(connecting) => connecting.await,
                    }
                };
                let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
                drop(admitted);
                match handshake {
                    Ok(Ok(connection)) => gateway.serve(connection, from, memory).await,
                    Ok(Err(error)) => {
                        if let Some(left_out) = gateway.refusals.admit(now()) {
                            let why = describe(&error);
                            tracing::warn!(%from, left_out, "no session: {why}");
                        }
                    }
                    Err(_) => tracing::debug!(%from, "no session: the handshake was not finished"),
                }
            });
        }
    }

    /// The configuration for a session whose controller works with `memory`.
    fn server(&self, memory: PathMemory) -> Arc<noq::ServerConfig> {
        let mut transport = self.transport.quic(MAX_FLOWS, memory);
        if self.registry.has_tokens() {
            transport.receive_window(UNKNOWN_WINDOW);
        }
        let server = self.server.read().unwrap_or_else(PoisonError::into_inner);
        let mut server = server.clone();
        server.transport_config(Arc::new(transport));
        Arc::new(server)
    }

    /// Sessions that begin from now on see the key of `server`, of [`server_config`].
    pub fn set_server(&self, server: noq::ServerConfig) {
        self.endpoint.set_server_config(Some(server.clone()));
        *self.server.write().unwrap_or_else(PoisonError::into_inner) = server;
    }

    /// Tells terminals that the gateway's next key is `next`, now and in sessions to come.
    pub fn announce(&self, next: Option<Fingerprint>) {
        self.sessions.announce(next);
    }

    /// The old key of a terminal is good no longer, once a session has shown its new one and
    /// none with the old one is left.
    fn retire(&self, key: &Fingerprint) {
        if let Some((old, new)) = self.registry.renewal(key)
            && self.sessions.get(&new).is_some()
            && self.sessions.get(&old).is_none()
        {
            self.registry.retire(&old);
            tracing::info!(%old, %new, "a terminal's old key is good no longer");
        }
    }

    /// UDP datagrams that belonged to a session, so far.
    pub fn session_datagrams(&self) -> u64 {
        self.sessions.datagrams()
    }

    /// How the path to the terminal with `key` stands, if it has a session.
    pub fn path(&self, key: &Fingerprint) -> Option<noq::PathStats> {
        self.sessions.get(key)?.path_stats(noq::PathId::ZERO)
    }

    /// The open sessions, for status and figures.
    pub fn sessions(&self) -> Vec<(Fingerprint, noq::Connection)> {
        self.sessions.all()
    }

    /// Where other machines have live sessions from that use the same key as a terminal's session.
    pub fn others_with_key(
        &self,
        key: &Fingerprint,
        connection: &noq::Connection,
    ) -> Vec<SocketAddr> {
        self.sessions.others(key, connection)
    }

    /// Replaces what may be dialled, for flows from now on.
    pub fn set_egress(&self, egress: Egress) {
        self.requests.dialler.set_egress(egress);
    }

    /// Sessions that begin from now on have no more than `most` flows of datagrams open, nor
    /// more than [`MAX_UDP_FLOWS`] but for those that are ending. Each is a socket.
    pub fn limit_udp_flows(&self, most: usize) {
        let most = most.min(MAX_UDP_FLOWS + UDP_FLOWS_ENDING);
        self.requests.udp_flows.store(most, Ordering::Relaxed);
    }

    /// The counts of all sessions' flows.
    pub fn tally(&self) -> &Tally {
        &self.requests.tally
    }

    /// Takes no more sessions and no more flows; flows that are open go on.
    pub fn drain(&self) {
        self.endpoint.set_server_config(None);
        self.drain.send_replace(true);
    }

    /// The hash of the token that a client shows who has shown no key; the handshake lets such
    /// clients pass only while there are tokens. The error is told to the client.
    async fn token(&self, arriving: &mut Arriving) -> Result<Fingerprint, (Code, &'static str)> {
        let Ok(_place) = self.unknown.try_acquire() else {
            let why = "too many clients have shown neither key nor token yet; try again";
            return Err((Code::H3_EXCESSIVE_LOAD, why));
        };
        let why = "no request showed a bearer token that this gateway knows";
        let shown = arriving.token(&*self.registry).await;
        shown.ok_or((Code::H3_REQUEST_REJECTED, why))
    }

    async fn serve(
        self: Arc<Self>,
        connection: noq::Connection,
        from: SocketAddr,
        memory: PathMemory,
    ) {
        let Some(mut arriving) = self.requests.arriving(&connection).await else {
            return;
        };
        let shown = match Fingerprint::of_peer(&connection) {
            Some(key) => Ok(key),
            None => self.token(&mut arriving).await,
        };
        let key = match shown {
            Ok(key) => key,
            Err((code, why)) => {
                if let Some(left_out) = self.refusals.admit(now()) {
                    tracing::warn!(%from, left_out, "no session: {why}");
                }
                close(&connection, code, why);
                return;
            }
        };
        let role = self.registry.role(&key);
        if role == PeerRole::Unknown {
            let why = "this key is not enrolled at the gateway";
            close(&connection, Code::H3_REQUEST_REJECTED, why);
            return;
        }
        connection.set_receive_window(self.transport.session_window());
        let most = self.transport.max_sessions();
        if role == PeerRole::Terminal && !self.sessions.admit(key, &connection, most) {
            let memory = self.transport.memory;
            tracing::warn!(%from, %key, "session refused: {most} are open, as many as transport.memory = \"{memory}\" allows; raise it");
            let reason = format!(
                "the gateway has {most} sessions, as many as its transport.memory = \"{memory}\" allows; its operator can raise that"
            );
            close(&connection, Code::H3_EXCESSIVE_LOAD, &reason);
            return;
        }
        let mut enrolling = None;
        if role == PeerRole::Enrolment {
            enrolling = self.enrolments.try_acquire().ok();
            // A one-time key is worth one terminal, and little room until then.
            connection.set_receive_window(ENROLMENT_WINDOW);
            if enrolling.is_none() {
                close(
                    &connection,
                    Code::H3_EXCESSIVE_LOAD,
                    "another terminal is being enrolled; try again in a minute",
                );
                return;
            }
        }
        let mut lease = None;
        // From here on it is known who sends, and with that what may be known of the path.
        let up = async {
            let confirmed = connection.handshake_confirmed();
            let confirmed = tokio::time::timeout(HANDSHAKE_TIMEOUT, confirmed).await;
            if !matches!(confirmed, Ok(Ok(()))) {
                close(
                    &connection,
                    Code::H3_NO_ERROR,
                    "the handshake was not finished",
                );
                return;
            }
            let rtt = connection.rtt(noq::PathId::ZERO).unwrap_or_default();
            lease = (role == PeerRole::Terminal).then(|| self.paths.lease(key, rtt, memory));
            let known = lease.as_ref().map(PathLease::describe);
            tracing::info!(%from, %key, ?role, known, "session is up");
            self.retire(&key);
        };
        let serving = self.requests.serve(&connection, &mut arriving, key, role);
        if role == PeerRole::Terminal {
            tokio::select! {
                () = serving => {}
                never = async {
                    up.await;
                    self.sessions.judge(&key, &connection).await;
                    std::future::pending::<std::convert::Infallible>().await
                } => match never {},
            }
        } else if tokio::time::timeout(ENROLMENT_TIMEOUT, async { tokio::join!(up, serving) })
            .await
            .is_err()
        {
            close(&connection, Code::H3_NO_ERROR, "the time to enrol is over");
        }
        drop((lease, enrolling));
        let why = connection
            .close_reason()
            .map_or_else(|| "ended".into(), |error| describe(&error));
        let path = path_summary(&connection);
        tracing::info!(%from, %key, %path, "session ended: {why}");
        self.sessions.ended(&key, &connection);
        self.retire(&key);
    }
}

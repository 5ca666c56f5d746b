//! The requests of one session: read, checked against the peer's role, answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bentpipe_quic::h3::{Connection, Flows};
use bentpipe_quic::windows::Pool;
use bytes::Bytes;
use tokio::sync::{Semaphore, watch};

use super::client::{Arriving, HEADER_TIMEOUT, RequestStream, answer_and_abort, demand_token};
use super::dial::Dialler;
use super::dns;
use super::guarded::Guarded;
use super::ip_network::IpNetwork;
use super::policy::Policies;
use super::sessions::Sessions;
use super::usage::{Metered, Usages};
use crate::flow::stalled::{Held, StalledFlows};
use crate::flow::tally::Tally;
use crate::flow::tcp;
use crate::flow::{Carried, FlowError};
use crate::identity::{Fingerprint, PeerRole, Registry};
use crate::session::{path_summary, remote_address};
use crate::sockets::Dial;
use crate::wire::dns::{MAX_GIVEN_UP, MAX_UNDER_WAY};
use crate::wire::notices::Ask;
use crate::wire::proxy_status::{self, ErrorKind, Refusal};
use crate::wire::request::Request;
use crate::wire::{MAX_FIELD_SECTION, bearer, connect};

/// Longer than any session is silent for that was asked to be.
const SILENCE: Duration = Duration::from_secs(3600);
/// Requests of a one-time key, at most: it needs one, and may repeat it.
const MAX_ENROLMENT_REQUESTS: usize = 8;

/// Names that one session may have under way at the same time, so that slow ones delay
/// nobody else's.
const MAX_RESOLVING: usize = 64;

/// Answers requests.
pub struct Requests<D> {
    /// The keys that may be enrolled with.
    pub registry: Arc<dyn Registry>,
    /// The open sessions.
    pub sessions: Arc<Sessions>,
    /// Connections to origins.
    pub dialler: Dialler<D>,
    /// The memory that flows are lent receive windows from.
    pub pool: Pool,
    /// The most that one flow is lent, bytes.
    pub flow_window: u64,
    /// The counts of all sessions' flows.
    pub tally: Tally,
    /// What each terminal may do, and does of it.
    pub policies: Arc<dyn Policies>,
    /// Flows and rates that terminals have now.
    pub usages: Usages,
    /// Flows of UDP datagrams that a session may have open.
    pub udp_flows: AtomicUsize,
    /// The network of IP packets, if there is one.
    pub ip: Option<IpNetwork>,
    /// Turns true when sessions are to take no more requests.
    pub draining: watch::Receiver<bool>,
}

/// One session, as its requests see it.
pub(super) struct Peer {
    connection: noq::Connection,
    pub(super) key: Fingerprint,
    /// The key under which what it uses is counted.
    pub(super) account: Fingerprint,
    role: PeerRole,
    /// Each request has to show the token of which `key` is the hash.
    by_token: bool,
    pub(super) flows: Flows,
    stalled: StalledFlows,
    /// Names that it may have under way at the same time.
    pub(super) resolving: Semaphore,
    /// Flows of UDP datagrams that it may have open beside each other.
    pub(super) udp: Semaphore,
    /// Questions of DNS that it may have under way at the same time.
    asking: Semaphore,
    /// Questions for notices that wait.
    noticing: Semaphore,
}

impl<D: Dial> Requests<D> {
    /// Sets up HTTP/3 on `connection`; `None` where that fails.
    pub async fn arriving(&self, connection: &noq::Connection) -> Option<Arriving> {
        let lent = (&self.pool, self.flow_window);
        let drops = self.tally.drops().clone();
        let (wire, flows) = Connection::new(connection.clone(), lent, drops);
        let requests = h3::server::builder()
            .max_field_section_size(MAX_FIELD_SECTION)
            .send_grease(false)
            .enable_extended_connect(true)
            .enable_datagram(true)
            .build::<_, Bytes>(wire)
            .await;
        match requests {
            Ok(requests) => Some(Arriving::new(requests, flows)),
            Err(error) => {
                let from = remote_address(connection);
                tracing::warn!(?from, "HTTP/3 could not be set up: {error}");
                None
            }
        }
    }

    /// Answers all requests of a session until it ends.
    pub async fn serve(
        self: &Arc<Self>,
        connection: &noq::Connection,
        arriving: &mut Arriving,
        key: Fingerprint,
        role: PeerRole,
    ) {
        let first = arriving.first.take();
        let peer = Arc::new(Peer {
            connection: connection.clone(),
            key,
            account: self.registry.account(&key),
            role,
            by_token: first.is_some(),
            flows: arriving.flows.clone(),
            stalled: StalledFlows::default(),
            resolving: Semaphore::new(MAX_RESOLVING),
            udp: Semaphore::new(self.udp_flows.load(Ordering::Relaxed)),
            asking: Semaphore::new(MAX_UNDER_WAY + MAX_GIVEN_UP),
            noticing: Semaphore::new(1),
        });
        if let Some((request, stream)) = first {
            self.clone().take(&request, stream, peer.clone()).await;
        }
        let requests = &mut arriving.requests;
        let mut most = match role {
            PeerRole::Terminal => usize::MAX,
            _ => MAX_ENROLMENT_REQUESTS,
        };
        let mut draining = self.draining.clone();
        let mut told = false;
        while most > 0 {
            let accepted = tokio::select! {
                accepted = requests.accept() => accepted,
                () = async { drop(draining.wait_for(|&draining| draining).await) }, if !told => {
                    told = true;
                    // GOAWAY (RFC 9114, section 5.2). An error is told by the next request.
                    let _ = requests.shutdown(0).await;
                    continue;
                }
            };
            most -= 1;
            match accepted {
                Ok(Some(resolver)) => {
                    let (service, peer) = (self.clone(), peer.clone());
                    tokio::spawn(async move {
                        let resolved =
                            tokio::time::timeout(HEADER_TIMEOUT, resolver.resolve_request());
                        match Box::pin(resolved).await {
                            Ok(Ok((request, stream))) => service.take(&request, stream, peer).await,
                            Ok(Err(error)) => {
                                tracing::debug!(%key, "request not understood: {error}")
                            }
                            Err(_) => tracing::debug!(%key, "request not complete in time"),
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

    /// Takes a request of `peer`.
    async fn take(
        self: Arc<Self>,
        request: &http::Request<()>,
        stream: RequestStream,
        peer: Arc<Peer>,
    ) {
        // Several clients may share a connection, behind a proxy of theirs.
        if peer.by_token && bearer::token(request) != Some(peer.key) {
            tokio::spawn(demand_token(stream));
            return;
        }
        let id = stream.send_id().into_inner();
        let host = connect::host(request);
        peer.flows.scheduler.set_host(id, host.into());
        let request = Request::read(request);
        // RFC 8470: in early data only what may be done twice, although no ticket lets it. A
        // question changes nothing, and neither does a connection to which nothing but a TLS
        // ClientHello is said. Whoever asks for UDP early says by that that its datagrams may come twice, as on
        // any network.
        let may_be_early = matches!(
            request,
            Ok(Request::Connect(_) | Request::ConnectUdp(..) | Request::Dns(_))
        );
        if !may_be_early && peer.connection.handshake_confirmed().await.is_err() {
            return;
        }
        self.begin(request, stream, peer, host);
    }

    /// Begins to answer a request, in a task that holds nothing of how it was read: what an
    /// idle flow costs is the size of its task.
    fn begin(
        self: Arc<Self>,
        request: Result<Request, Refusal>,
        stream: RequestStream,
        peer: Arc<Peer>,
        host: u32,
    ) {
        match request {
            Ok(Request::ConnectUdp(target, agreed)) if peer.role == PeerRole::Terminal => {
                tokio::spawn(self.carry_udp((target, agreed), stream, peer, host));
            }
            Ok(Request::ConnectIp) if peer.role == PeerRole::Terminal => {
                tokio::spawn(self.carry_ip(stream, peer, host));
            }
            request => {
                tokio::spawn(async move { self.answer(request, stream, &peer).await });
            }
        }
    }

    async fn answer(&self, request: Result<Request, Refusal>, stream: RequestStream, peer: &Peer) {
        let prohibited = |detail: &str| Refusal {
            kind: ErrorKind::DestinationIpProhibited,
            detail: detail.into(),
        };
        match (request, peer.role) {
            (Ok(Request::Connect(target)), PeerRole::Terminal) => {
                let connected = async {
                    let place = self.usages.enter(peer.account, &self.policies)?;
                    let client = remote_address(&peer.connection);
                    let connecting =
                        self.dialler
                            .connect(&target, &peer.resolving, place.policy(), client);
                    let socket = connecting.await?;
                    Ok::<_, Refusal>(place.meter(socket))
                };
                let mut stopped = Box::pin(peer.flows.stops.stopped(stream.send_id()));
                let connected = tokio::select! {
                    biased;
                    connected = Box::pin(connected) => connected,
                    // Each attempt is a socket, and hosts that look for open ports make many.
                    () = &mut stopped => {
                        tracing::debug!(%target, "flow given up before its origin answered");
                        return;
                    }
                };
                match connected {
                    Ok(socket) => {
                        let _open = self.tally.open();
                        let (carried, result) =
                            Box::pin(self.open_flow(socket, stream, stopped, peer)).await;
                        self.tally.over(carried, &result);
                        let Carried { up, down } = carried;
                        let path = path_summary(&peer.connection);
                        match result {
                            Ok(()) => tracing::debug!(%target, up, down, path, "flow ended"),
                            Err(error) => {
                                tracing::debug!(%target, up, down, path, "flow reset: {error}")
                            }
                        }
                    }
                    Err(refusal) => {
                        tracing::debug!(%target, "flow refused: {refusal}");
                        self.tally.failed(refusal.kind.name());
                        Box::pin(refuse(stream, &refusal)).await;
                    }
                }
            }
            (Ok(Request::Dns(question)), PeerRole::Terminal) => {
                let mut stream = stream;
                let stopped = Box::pin(peer.flows.stops.stopped(stream.send_id()));
                let resolver = self.dialler.resolver();
                let answered = dns::answer(resolver, &peer.asking, question, &mut stream);
                let answered = tokio::select! {
                    biased;
                    answered = Box::pin(answered) => answered,
                    // Its place is another's.
                    () = stopped => return,
                };
                if let Err(refusal) = answered {
                    tracing::debug!("question refused: {refusal}");
                    Box::pin(refuse(stream, &refusal)).await;
                }
            }
            (Ok(Request::Enrol(terminal)), PeerRole::Enrolment) => {
                match self.registry.enrol(&peer.key, terminal) {
                    Ok(()) => {
                        tracing::info!(%terminal, "terminal enrolled");
                        Box::pin(accept(stream)).await;
                    }
                    Err(why) => {
                        tracing::warn!(%terminal, "terminal not enrolled: {why}");
                        Box::pin(refuse(stream, &prohibited(&why))).await;
                    }
                }
            }
            (Ok(Request::Renew(new)), PeerRole::Terminal) => {
                match self.registry.renew(&peer.key, new) {
                    Ok(()) => {
                        tracing::info!(old = %peer.key, %new, "terminal has a new key");
                        Box::pin(accept(stream)).await;
                    }
                    Err(why) => {
                        tracing::warn!(key = %peer.key, %new, "terminal has no new key: {why}");
                        Box::pin(refuse(stream, &prohibited(&why))).await;
                    }
                }
            }
            (Ok(Request::Notices(ask)), PeerRole::Terminal) => {
                Box::pin(self.notice(&ask, stream, peer)).await;
            }
            (
                Ok(
                    Request::Connect(_)
                    | Request::ConnectUdp(..)
                    | Request::ConnectIp
                    | Request::Dns(_)
                    | Request::Renew(_)
                    | Request::Notices(_),
                ),
                _,
            ) => {
                Box::pin(refuse(stream, &prohibited("a one-time key can only enrol"))).await;
            }
            (Ok(Request::Enrol(_)), _) => {
                Box::pin(refuse(
                    stream,
                    &prohibited("an enrolled terminal cannot enrol others"),
                ))
                .await;
            }
            (Err(refusal), _) => Box::pin(refuse(stream, &refusal)).await,
        }
    }

    /// Answers a question for notices when there are some; one at a time.
    async fn notice(&self, ask: &Ask, mut stream: RequestStream, peer: &Peer) {
        let unavailable = |detail: &str| Refusal {
            kind: ErrorKind::ConnectionLimitReached,
            detail: detail.into(),
        };
        let Ok(place) = peer.noticing.try_acquire() else {
            return refuse(stream, &unavailable("another question waits already")).await;
        };
        if let Some(next) = ask.known_key {
            self.registry.knows(&peer.key, next);
        }
        // Whoever wants silence for some time wants to know what becomes of a silent path. The
        // time is set anew when the answer to the ping arrives.
        if ask.after.is_some()
            && let Some(path) = peer.connection.path(noq::PathId::ZERO)
        {
            let _ = path.set_keep_alive_interval(Some(SILENCE));
            let _ = path.ping();
        }
        let mut draining = self.draining.clone();
        tokio::select! {
            notices = self.sessions.notices(&peer.key, &peer.connection, ask) => {
                // Whoever has the answer may ask again at once.
                drop(place);
                let _ = stream.send_response(notices.response()).await;
                let _ = stream.finish().await;
            }
            () = async { drop(draining.wait_for(|&draining| draining).await) } => {
                refuse(stream, &unavailable("the gateway is being stopped")).await;
            }
            _ = peer.connection.closed() => {}
        }
    }

    async fn open_flow(
        &self,
        socket: Metered<D::Socket>,
        mut stream: RequestStream,
        stopped: impl Future<Output = ()> + Send,
        peer: &Peer,
    ) -> (Carried, Result<(), FlowError>) {
        if let Err(error) = stream.send_response(proxy_status::accepted()).await {
            return (Carried::default(), Err(error.into()));
        }
        let held = Held {
            windows: peer.flows.windows.clone(),
            stream: stream.send_id().into_inner(),
        };
        let (up, down) = stream.split();
        let connection = peer.connection.clone();
        let confirmed = async move { connection.handshake_confirmed().await.is_ok() };
        tcp::carry(
            socket,
            up,
            Guarded::new(down, confirmed),
            async |_: &mut _| Ok(()),
            (stopped, std::future::pending()),
            &peer.stalled,
            &held,
        )
        .await
    }
}

/// Answers that it is done. An error means that nobody is there to hear it.
async fn accept(mut stream: RequestStream) {
    let _ = stream.send_response(proxy_status::accepted()).await;
    let _ = stream.finish().await;
}

/// Answers that it is refused. An error means that nobody is there to hear it.
pub(super) async fn refuse(stream: RequestStream, refusal: &Refusal) {
    answer_and_abort(stream, refusal.response()).await;
}

//! The connector: opens a terminal's session with a gateway.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bentpipe_cc::PathMemory;
use bentpipe_quic::drops::Drops;
use bentpipe_quic::windows::Pool;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use noq::crypto::rustls::QuicClientConfig;
use tokio::sync::watch;

use super::session::Session;
use super::{liveness, probe};
use crate::identity::{Fingerprint, GatewayKeys, Identity, tls};
use crate::paths::Paths;
use crate::session::{describe, remote_address};
use crate::sockets::Resolve;
use crate::target::{Host, Target};
use crate::transport::Transport;
use crate::wire::bearer;
use crate::wire::notices::Ask;

/// An attempt to open a session ends after this: seven timeouts of a GEO handshake.
const OPEN_TIMEOUT: Duration = Duration::from_secs(12);
/// Round trips after which the next of a gateway's addresses is tried: a handshake takes one.
pub(super) const NEXT_ADDRESS: u32 = 3;
/// First and longest wait between attempts.
pub(super) const BACKOFF: (Duration, Duration) =
    (Duration::from_millis(500), Duration::from_secs(30));

/// How to open a session.
#[derive(Debug)]
pub struct Connector<R> {
    /// Where from.
    pub endpoint: noq::Endpoint,
    /// As whom, from the next session on.
    pub identity: watch::Receiver<Arc<Identity>>,
    /// A random number of this process, with which the gateway is asked for notices; without, it
    /// is not asked.
    pub instance: Option<u64>,
    /// Where to.
    pub gateway: Target,
    /// The keys that may be there.
    pub gateway_keys: Arc<dyn GatewayKeys>,
    /// With what windows and controller.
    pub transport: Transport,
    /// What all sessions of this terminal lend receive windows from: [`Transport::pool`], the
    /// same for all its gateways.
    pub pool: Pool,
    /// What earlier sessions learnt of the way there.
    pub paths: Paths,
    /// How the gateway's name becomes an address.
    pub resolver: R,
    /// What is kept from session to session.
    pub kept: Kept,
}

/// What a connector keeps from session to session.
#[derive(Debug, Default)]
pub struct Kept {
    /// Where datagrams are counted that are dropped.
    pub(super) drops: Drops,
    /// The session whose handshake is under way, if it takes early data.
    pub(super) early: Arc<watch::Sender<Option<Session>>>,
    /// The gateway's settings have come, in any session.
    settings: Arc<AtomicBool>,
    tls: Mutex<Option<Tls>>,
}

/// TLS with the gateway's tickets, and the keys of both ends that they are of.
struct Tls {
    own: Fingerprint,
    gateway: Vec<Fingerprint>,
    config: Arc<QuicClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Kept {
    /// TLS as `identity` with a gateway that has one of `keys`: the same as long as they are.
    fn tls(&self, identity: &Identity, keys: Vec<Fingerprint>) -> Arc<QuicClientConfig> {
        let mut kept = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        let own = identity.fingerprint();
        if let Some(tls) = &*kept
            && tls.own == own
            && tls.gateway == keys
        {
            return tls.config.clone();
        }
        let config = Arc::new(tls::client(identity, keys.clone()));
        *kept = Some(Tls {
            own,
            gateway: keys,
            config: config.clone(),
        });
        config
    }
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The gateway's name does not resolve.
    #[error("the gateway's name {0:?} does not resolve: {1}")]
    Resolve(String, String),
    /// The address cannot be used.
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, noq::ConnectError),
    /// The handshake failed, or the session was lost.
    #[error("{0}")]
    Lost(String),
    /// The gateway has forgotten the ticket by which early data was sent.
    #[error("the gateway takes no early data any more")]
    Rejected,
    /// No answer.
    #[error("{0} did not answer within {time} s; is the gateway running there and its UDP port open?", time = OPEN_TIMEOUT.as_secs())]
    NoAnswer(SocketAddr),
    /// HTTP/3 could not be set up.
    #[error("HTTP/3 could not be set up: {0}")]
    Http(String),
}

impl<R: Resolve> Connector<R> {
    /// Opens a session. The other end's key has been verified when this returns; ours
    /// is verified by the gateway while the first requests are on their way.
    ///
    /// Where the gateway has several addresses, the next is tried beside those that have
    /// not answered in time (RFC 8305), and the first that answers is taken.
    pub async fn open(&self) -> Result<Session, SessionError> {
        let mut waiting = self.addresses().await?.into_iter();
        let mut attempts = FuturesUnordered::new();
        let mut failure = None;
        let pause = self.transport.expected_rtt.as_duration() * NEXT_ADDRESS;
        loop {
            if let Some(address) = waiting.next() {
                attempts.push(self.open_at_either(address));
            } else if attempts.is_empty() {
                let host = self.gateway.to_string();
                let none = || SessionError::Resolve(host, "it has no address".into());
                return Err(failure.unwrap_or_else(none));
            }
            let more = waiting.len() > 0;
            tokio::select! {
                biased;
                Some(opened) = attempts.next() => match opened {
                    Ok(session) => return Ok(session),
                    Err(error) => {
                        failure.get_or_insert(error);
                    }
                },
                () = tokio::time::sleep(pause), if more => {}
            }
        }
    }

    /// A session with the gateway at `address`: where early data is refused, without.
    async fn open_at_either(&self, address: SocketAddr) -> Result<Session, SessionError> {
        match self.open_at(address).await {
            Err(SessionError::Rejected) => self.open_at(address).await,
            opened => opened,
        }
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Session, SessionError> {
        let identity = self.identity.borrow().clone();
        let keys = self.gateway_keys.accepted();
        let mut config = noq::ClientConfig::new(self.kept.tls(&identity, keys));
        let memory = PathMemory::default();
        // The gateway opens no requests towards us.
        config.transport_config(Arc::new(self.transport.quic(0, memory.clone())));
        // The name is never checked, the key is; a fixed name tells eavesdroppers nothing.
        let connecting = self
            .endpoint
            .connect_with(config, address, "bentpipe.invalid")
            .map_err(|error| SessionError::Connect(address, error))?;
        let session = match connecting.into_0rtt() {
            Ok((connection, accepted)) => {
                let session = self.session(connection, &identity).await?;
                self.early(&session, accepted, address).await?;
                session
            }
            Err(connecting) => {
                let connection = tokio::time::timeout(OPEN_TIMEOUT, connecting)
                    .await
                    .map_err(|_| SessionError::NoAnswer(address))?
                    .map_err(|error| SessionError::Lost(describe(&error)))?;
                self.session(connection, &identity).await?
            }
        };
        let connection = session.connection();
        let shown = Fingerprint::of_peer(connection)
            .ok_or_else(|| SessionError::Lost("the gateway has shown no key".into()))?;
        self.gateway_keys.shown(&shown);
        // Only now: what is known would not age while the gateway cannot be reached.
        let rtt = connection.rtt(noq::PathId::ZERO).unwrap_or_default();
        session.establish(self.paths.lease(shown, rtt, memory));
        Ok(session)
    }

    /// HTTP/3 on `connection`.
    async fn session(
        &self,
        connection: noq::Connection,
        identity: &Identity,
    ) -> Result<Session, SessionError> {
        let lent = (&self.pool, self.transport.flow_window());
        let token = self.gateway_keys.token();
        let token = token.as_deref().and_then(bearer::shown);
        let session = Session::new(
            connection,
            lent,
            self.kept.drops.clone(),
            self.gateway.clone(),
            identity.fingerprint(),
            token,
            self.kept.settings.clone(),
        );
        session.await.map_err(SessionError::Http)
    }

    /// Lets early data be sent in `session` until the gateway, at `address`, has `accepted` it. A
    /// gateway that has forgotten the ticket is asked again, without.
    async fn early(
        &self,
        session: &Session,
        accepted: noq::ZeroRttAccepted,
        address: SocketAddr,
    ) -> Result<(), SessionError> {
        self.kept.early.send_replace(Some(session.clone()));
        let accepted = tokio::time::timeout(OPEN_TIMEOUT, accepted).await;
        self.kept.early.send_if_modified(|early| {
            let ours = early.as_ref().is_some_and(|early| early.is(session));
            if ours {
                *early = None;
            }
            ours
        });
        if accepted == Ok(true) && !session.is_closed() {
            return Ok(());
        }
        let why = session.connection().close_reason();
        session.give_up();
        Err(match (accepted, why) {
            (Err(_), _) => SessionError::NoAnswer(address),
            (_, Some(error)) => SessionError::Lost(describe(&error)),
            (_, None) => SessionError::Rejected,
        })
    }

    /// Follows `session` until it ends, and ends it when the gateway has forgotten it.
    pub(super) async fn follow(&self, session: &Session) {
        let known = remote_address(session.connection());
        let mut addresses = self.addresses().await.unwrap_or_default();
        addresses.extend(known.filter(|known| !addresses.contains(known)));
        tokio::select! {
            _ = session.closed() => {}
            () = liveness::forgotten(session, &self.endpoint, &addresses) => session.forget(),
            never = self.listen(session) => match never {},
        }
    }

    /// Hears the gateway's notices, for as long as the session is open.
    async fn listen(&self, session: &Session) -> Infallible {
        if let Some(instance) = self.instance
            && session.accepted().await.is_ok()
        {
            let mut ask = Ask {
                instance: Some(instance),
                ..Ask::default()
            };
            let mut told = Vec::new();
            // A gateway that is being stopped, or not of ours, has none.
            while let Ok(notices) = session.notices(&ask).await {
                ask.seen = Some(notices.revision);
                if let Some(next) = notices.next_key {
                    match self.gateway_keys.announced(next) {
                        Ok(()) => ask.known_key = Some(next),
                        Err(error) => {
                            tracing::error!(gateway = %self.gateway, %next, "the gateway has announced its next key, which cannot be kept: {error}; after the change this terminal would not accept it")
                        }
                    }
                }
                if notices.same_key != told && !notices.same_key.is_empty() {
                    let others = &notices.same_key;
                    let key = session.identity();
                    tracing::error!(
                        %key, ?others,
                        "another machine uses this terminal's key: pair one of the two anew, with a key of its own (remove its terminal.key, then `bentpipe terminal join`)"
                    );
                }
                told = notices.same_key;
            }
        }
        std::future::pending().await
    }

    /// How long an answer of the gateway takes; `None` if none comes.
    pub(super) async fn delay(&self) -> Option<Duration> {
        let patience = self.transport.expected_rtt.as_duration() * NEXT_ADDRESS;
        let addresses = self.addresses().await.ok()?;
        let ask = |address| probe::round_trip(&self.endpoint, address, patience);
        let answers = join_all(addresses.into_iter().map(ask)).await;
        answers.into_iter().flatten().min()
    }

    /// The gateway's addresses, the preferred first.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, SessionError> {
        let with_port = |address| SocketAddr::new(address, self.gateway.port);
        let host = match &self.gateway.host {
            Host::Address(address) => return Ok(vec![with_port(*address)]),
            Host::Name(name) => name,
        };
        let addresses = self.resolver.resolve(host).await;
        let addresses =
            addresses.map_err(|error| SessionError::Resolve(host.clone(), error.to_string()))?;
        Ok(addresses.into_iter().map(with_port).collect())
    }
}

//! The one warm session with the gateway: opened at the start, kept alive, reopened
//! with back-off when it is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_cc::PathMemory;
use bytes::Bytes;
use h3::error::StreamError;
use tokio::sync::watch;

use crate::identity::{Fingerprint, Identity};
use crate::outside::Resolve;
use crate::paths::{Paths, Use};
use crate::target::{Host, Target};
use crate::transport::Transport;
use crate::wire::request;
use bentpipe_quic::h3::{Connection, Opener, RecvStream, SendStream, Stops};

/// An attempt to open a session ends after this: seven timeouts of a GEO handshake.
const OPEN_TIMEOUT: Duration = Duration::from_secs(12);
/// First and longest wait between attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// How to open a session.
#[derive(Debug)]
pub struct Connector<R> {
    /// Where from.
    pub endpoint: noq::Endpoint,
    /// As whom.
    pub identity: Arc<Identity>,
    /// Where to.
    pub gateway: Target,
    /// The key that must be there.
    pub gateway_key: Fingerprint,
    /// With what windows and controller.
    pub transport: Transport,
    /// What earlier sessions learnt of the way there.
    pub paths: Paths,
    /// How the gateway's name becomes an address.
    pub resolver: R,
}

/// An open session. Clones are the same session.
#[derive(Clone)]
pub struct Session {
    connection: noq::Connection,
    requests: h3::client::SendRequest<Opener, Bytes>,
    stops: Stops,
    path: Arc<Use>,
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
    /// No answer.
    #[error("{0} did not answer within {time} s; is the gateway running there and its UDP port open?", time = OPEN_TIMEOUT.as_secs())]
    Silent(SocketAddr),
    /// HTTP/3 could not be set up.
    #[error("HTTP/3 could not be set up: {0}")]
    Http(String),
}

impl<R: Resolve> Connector<R> {
    /// Opens a session. The other end's key has been verified when this returns; ours
    /// is verified by the gateway while the first requests are on their way.
    pub async fn open(&self) -> Result<Session, SessionError> {
        let address = self.address().await?;
        let tls = Arc::new(self.identity.tls_to(self.gateway_key));
        let mut config = noq::ClientConfig::new(tls);
        let known = self.paths.known(&self.gateway_key);
        let memory = known.map_or_else(PathMemory::default, PathMemory::with);
        // The gateway opens no requests towards us.
        config.transport_config(Arc::new(self.transport.quic(0, memory.clone())));
        // The name is never checked, the key is; a fixed name tells eavesdroppers nothing.
        let connecting = self
            .endpoint
            .connect_with(config, address, "bentpipe.invalid")
            .map_err(|error| SessionError::Connect(address, error))?;
        let connection = tokio::time::timeout(OPEN_TIMEOUT, connecting)
            .await
            .map_err(|_| SessionError::Silent(address))?
            .map_err(|error| SessionError::Lost(describe(&error)))?;
        // Only now: what is known would not age while the gateway cannot be reached.
        let path = self.paths.enter(self.gateway_key, memory);
        Session::new(connection, path).await
    }

    async fn address(&self) -> Result<SocketAddr, SessionError> {
        let host = match &self.gateway.host {
            Host::Address(address) => return Ok(SocketAddr::new(*address, self.gateway.port)),
            Host::Name(name) => name,
        };
        let error = |why: &str| SessionError::Resolve(host.clone(), why.to_owned());
        let addresses = self
            .resolver
            .resolve(host)
            .await
            .map_err(|failure| error(&failure.to_string()))?;
        let address = addresses
            .first()
            .ok_or_else(|| error("it has no address"))?;
        Ok(SocketAddr::new(*address, self.gateway.port))
    }

    /// Keeps a session open for ever and publishes it in `current`.
    pub async fn keep(&self, current: &watch::Sender<Option<Session>>) -> std::convert::Infallible {
        let mut wait = BACKOFF.0;
        loop {
            match self.open().await {
                Ok(session) => {
                    current.send_replace(Some(session.clone()));
                    match session.confirmed().await {
                        Ok(()) => {
                            wait = BACKOFF.0;
                            let known = session.path.describe();
                            tracing::info!(gateway = %self.gateway, known, "session is up");
                            let why = session.closed().await;
                            let path = path(&session.connection);
                            tracing::warn!(gateway = %self.gateway, %path, "session lost: {why}");
                        }
                        Err(why) => {
                            tracing::warn!(gateway = %self.gateway, "no session: {why}");
                        }
                    }
                    current.send_replace(None);
                }
                Err(error) => tracing::warn!(gateway = %self.gateway, "no session: {error}"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(BACKOFF.1);
        }
    }
}

impl Session {
    async fn new(connection: noq::Connection, path: Use) -> Result<Self, SessionError> {
        let wire = Connection::new(connection.clone());
        let stops = wire.stops();
        let (mut driver, requests) = h3::client::builder()
            .max_field_section_size(request::MAX_FIELD_SECTION)
            .send_grease(false)
            .build::<_, _, Bytes>(wire)
            .await
            .map_err(|error| SessionError::Http(error.to_string()))?;
        tokio::spawn(async move {
            // Ends with the connection; why is asked of the connection itself.
            std::future::poll_fn(|context| driver.poll_close(context)).await;
        });
        Ok(Self {
            connection,
            requests,
            stops,
            path: Arc::new(path),
        })
    }

    /// Waits until the gateway has accepted our key.
    pub async fn confirmed(&self) -> Result<(), String> {
        self.connection
            .handshake_confirmed()
            .await
            .map_err(|error| describe(&error))
    }

    /// Waits until the session is lost, and says why.
    pub async fn closed(&self) -> String {
        describe(&self.connection.closed().await)
    }

    /// Whether the session is lost.
    pub fn is_closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    /// Opens a flow to `target` and returns at once, without the gateway's answer.
    pub async fn connect(
        &self,
        target: &Target,
    ) -> Result<h3::client::RequestStream<BidiStream, Bytes>, StreamError> {
        self.requests
            .clone()
            .send_request(request::connect(target))
            .await
    }

    /// Asks the gateway to enrol `terminal`, and waits for its answer.
    pub async fn enrol(&self, gateway: &Target, terminal: &Fingerprint) -> Result<(), String> {
        let ask = async {
            let mut requests = self.requests.clone();
            let mut stream = requests
                .send_request(request::enrol(gateway, terminal))
                .await?;
            stream.finish().await?;
            stream.recv_response().await
        };
        let response = match ask.await {
            Ok(response) => response,
            // The connection knows better why it broke.
            Err(error) => {
                return Err(self
                    .connection
                    .close_reason()
                    .map_or(error.to_string(), |e| describe(&e)));
            }
        };
        request::Refusal::read(&response).map_err(|refusal| refusal.to_string())
    }

    /// Ends the session, telling the gateway.
    pub fn close(&self) {
        let code = h3::error::Code::H3_NO_ERROR.value();
        self.connection
            .close(noq::VarInt::from_u64(code).unwrap_or_default(), b"done");
    }

    /// Where the gateway's refusals to read on are learnt.
    pub fn stops(&self) -> &Stops {
        &self.stops
    }

    /// Figures of the session's QUIC connection.
    pub fn stats(&self) -> noq::ConnectionStats {
        self.connection.stats()
    }
}

/// A request's stream, both halves.
pub type BidiStream = bentpipe_quic::h3::BidiStream<Bytes>;
/// A request's sending half.
pub type UpStream = h3::client::RequestStream<SendStream<Bytes>, Bytes>;
/// A request's receiving half.
pub type DownStream = h3::client::RequestStream<RecvStream, Bytes>;

/// How a session's path stands, for people who look into the log.
pub fn path(connection: &noq::Connection) -> String {
    let Some(path) = connection.path_stats(noq::PathId::ZERO) else {
        return "no path".into();
    };
    format!(
        "rtt {:.0} ms, window {} kB, mtu {}, sent {} and lost {} packets in {} congestion events",
        path.rtt.as_secs_f64() * 1e3,
        path.cwnd / 1000,
        path.current_mtu,
        path.udp_tx.datagrams,
        path.lost_packets,
        path.congestion_events,
    )
}

/// A connection's end in words for people at both ends.
pub fn describe(error: &noq::ConnectionError) -> String {
    // The TLS library's name for an error of ours.
    const OURS: &str = "unexpected error: ";
    match error {
        noq::ConnectionError::ConnectionClosed(close) if !close.reason.is_empty() => {
            let reason = String::from_utf8_lossy(&close.reason);
            format!(
                "refused by the other end: {}",
                reason.trim_start_matches(OURS)
            )
        }
        noq::ConnectionError::ApplicationClosed(close) if !close.reason.is_empty() => {
            format!(
                "closed by the other end: {}",
                String::from_utf8_lossy(&close.reason)
            )
        }
        noq::ConnectionError::TransportError(error) if !error.reason.is_empty() => {
            error.reason.trim_start_matches(OURS).to_owned()
        }
        noq::ConnectionError::Reset => "the other end has restarted".into(),
        noq::ConnectionError::TimedOut => "nothing was heard for too long".into(),
        error => error.to_string(),
    }
}

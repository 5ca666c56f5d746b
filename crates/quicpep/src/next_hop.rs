//! Connections to next hops.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_cc::PathMemory;
use noq::crypto::rustls::HandshakeData;
use noq::{ConnectError, Connection, ConnectionError, Endpoint, TransportConfig, VarInt};
use rustls::ClientConfig;

use crate::close::{Code, describe};
use crate::hello::ClientHello;
use crate::routes::{Route, Routes};
use crate::tls;
use crate::transport::Side;

/// A next hop that has not answered by then does not: seven timeouts of a GEO handshake.
pub const PATIENCE: Duration = Duration::from_secs(12);
/// TLS alert no_application_protocol (RFC 7301, section 3.2) as a QUIC error (RFC 9001, 4.8).
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// Turns "host:port" into addresses.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses, the preferred first.
    fn resolve(&self, address: &str) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// Why there is no connection to the next hop: what its client is told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NextHopError {
    /// The error code.
    pub code: VarInt,
    /// And the reason.
    pub reason: String,
}

impl NextHopError {
    pub(crate) fn new(code: Code, reason: String) -> Self {
        Self {
            code: code.into(),
            reason,
        }
    }

    fn lost(address: &str, error: &ConnectionError) -> Self {
        let is_alpn = |code: u64| code == NO_APPLICATION_PROTOCOL;
        match error {
            // The server's own refusal goes on as it is.
            ConnectionError::ApplicationClosed(close) => Self {
                code: close.error_code,
                reason: String::from_utf8_lossy(&close.reason).into_owned(),
            },
            ConnectionError::TransportError(own)
                if let Some(tls) = (own.crypto.as_deref())
                    .and_then(|error| error.downcast_ref::<rustls::Error>())
                    && !is_alpn(u64::from(own.code)) =>
            {
                let reason = format!("the certificate of {address} is not to be trusted: {tls}");
                Self::new(Code::Untrusted, reason)
            }
            ConnectionError::TransportError(own) if is_alpn(u64::from(own.code)) => {
                Self::protocol(address)
            }
            ConnectionError::ConnectionClosed(close) if is_alpn(u64::from(close.error_code)) => {
                Self::protocol(address)
            }
            ConnectionError::TimedOut => Self::silent(address),
            other => Self::new(
                Code::Refused,
                format!("{address} refused the connection: {}", describe(other)),
            ),
        }
    }

    fn protocol(address: &str) -> Self {
        let reason =
            format!("{address} does not speak the application protocol that was asked for");
        Self::new(Code::Protocol, reason)
    }

    fn silent(address: &str) -> Self {
        let reason = format!("{address} does not answer");
        Self::new(Code::Unreachable, reason)
    }
}

/// An open connection to a next hop.
#[derive(Debug)]
pub struct NextHop {
    /// The connection.
    pub connection: Connection,
    /// The application protocol that was agreed on.
    pub protocol: Option<Vec<u8>>,
}

/// What is needed to open connections to next hops.
#[derive(Debug)]
pub struct NextHops<R> {
    endpoint: Endpoint,
    tls: ClientConfig,
    side: Side,
    resolver: R,
    /// One for each next hop: its connections share what is known of the path.
    transports: BTreeMap<Route, Arc<TransportConfig>>,
}

impl<R: Resolve> NextHops<R> {
    /// Connections from `endpoint` to those in `routes`, verified by `tls`.
    pub fn new(
        endpoint: Endpoint,
        tls: ClientConfig,
        side: Side,
        resolver: R,
        routes: &Routes,
    ) -> Self {
        let transports = routes.all().map(|route| {
            let transport = Arc::new(side.quic(PathMemory::default()));
            (route.clone(), transport)
        });
        Self {
            endpoint,
            tls,
            transports: transports.collect(),
            side,
            resolver,
        }
    }

    /// How they are set up.
    pub fn side(&self) -> &Side {
        &self.side
    }

    /// Opens a connection by `route` for a client that says `hello`, with one of `protocols`.
    pub async fn connect(
        &self,
        route: &Route,
        hello: &ClientHello,
        protocols: Vec<Vec<u8>>,
    ) -> Result<NextHop, NextHopError> {
        let address = &route.address;
        let unreachable = |why| NextHopError::new(Code::Unreachable, why);
        let resolved = self.resolver.resolve(address).await;
        let resolved = resolved
            .map_err(|error| unreachable(format!("{address} does not resolve: {error}")))?;
        let name = (route.name.as_deref())
            .or(hello.server_name.as_deref())
            .unwrap_or(route.host());
        let mut config = noq::ClientConfig::new(tls::client_with(&self.tls, protocols));
        config.version(self.side.version);
        if let Some(transport) = self.transports.get(route) {
            config.transport_config(transport.clone());
        }
        let mut failure = unreachable(format!("{address} has no address"));
        let patience = PATIENCE / u32::try_from(resolved.len().max(1)).unwrap_or(u32::MAX);
        for to in resolved {
            match self.connect_to(config.clone(), to, name, patience).await {
                Ok(next) => return Ok(next),
                Err(why) => failure = why(address),
            }
        }
        Err(failure)
    }

    async fn connect_to(
        &self,
        config: noq::ClientConfig,
        to: SocketAddr,
        name: &str,
        patience: Duration,
    ) -> Result<NextHop, Box<dyn FnOnce(&str) -> NextHopError + Send>> {
        let connecting = self.endpoint.connect_with(config, to, name);
        let connecting = connecting.map_err(|error| failed_to_begin(&error))?;
        match tokio::time::timeout(patience, connecting).await {
            Ok(Ok(connection)) => Ok(NextHop {
                protocol: protocol(&connection),
                connection,
            }),
            Ok(Err(error)) => Err(Box::new(move |to: &str| NextHopError::lost(to, &error))),
            Err(_) => Err(Box::new(NextHopError::silent)),
        }
    }
}

fn failed_to_begin(error: &ConnectError) -> Box<dyn FnOnce(&str) -> NextHopError + Send> {
    let error = error.to_string();
    Box::new(move |to: &str| {
        let reason = format!("no connection to {to} can be begun: {error}");
        NextHopError::new(Code::Unreachable, reason)
    })
}

/// The application protocol that the handshake has agreed on.
fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    let data = connection.handshake_data()?;
    data.downcast::<HandshakeData>().ok()?.protocol
}

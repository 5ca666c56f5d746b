//! Connections to next hops.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bentpipe_quic::clock::now;
use bentpipe_quic::version2::keys::application_protocol;
use futures_util::future::{BoxFuture, join_all};
use noq::{ConnectError, Connection, Endpoint};
use rustls::ClientConfig;
use tokio::time::Instant;

use crate::close::Code;
use crate::failure::NextHopError;
use crate::hello::ClientHello;
use crate::pair::{self, Client};
use crate::paths::{Lease, Paths};
use crate::pool::{Pool, Ready};
use crate::routes::{Kind, Route, Routes};
use crate::tls;
use crate::transport::Side;

/// A next hop that has answered nobody for so long does not answer: seven timeouts of a GEO handshake. One that
/// is busy with many clients takes longer with each.
pub const PATIENCE: Duration = Duration::from_secs(12);
/// First and longest wait after connections to another proxy could not be opened.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// Connections that wait for clients keep NATs open with a packet each (RFC 4787).
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Addresses that are known to have answered; beyond, it begins anew.
const MOST_ANSWERED: usize = 4096;

/// Turns "host:port" into addresses.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses, the preferred first.
    fn resolve(&self, address: &str) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send;
}

/// An open connection to a next hop.
#[derive(Debug)]
pub struct NextHop {
    /// The connection.
    pub connection: Connection,
    /// The application protocol, as far as it is known.
    pub protocol: Protocol,
    /// Its use of the path.
    _lease: Lease,
}

/// The application protocol of a next hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protocol {
    /// The server has chosen it, or none.
    Chosen(Option<Vec<u8>>),
    /// Another proxy will tell.
    Awaited,
}

impl NextHop {
    /// Waits for what the server has chosen, where another proxy is to tell.
    pub async fn chosen(&mut self) -> Result<Option<Vec<u8>>, NextHopError> {
        if self.protocol == Protocol::Awaited {
            let Some(chosen) = pair::answered(&self.connection).await else {
                let ended = self.connection.closed().await;
                return Err(NextHopError::lost("the next proxy", &ended));
            };
            self.protocol = Protocol::Chosen(chosen);
        }
        match &self.protocol {
            Protocol::Chosen(chosen) => Ok(chosen.clone()),
            Protocol::Awaited => Ok(None),
        }
    }
}

/// What is needed to open connections to next hops.
#[derive(Debug)]
pub struct NextHops<R> {
    endpoint: Endpoint,
    tls: ClientConfig,
    side: Side,
    resolver: R,
    paths: Paths,
    /// One for each next hop that is a proxy.
    pools: BTreeMap<Route, Pool>,
    /// When each address has last completed a handshake.
    answered: Mutex<BTreeMap<SocketAddr, Instant>>,
}

impl<R: Resolve> NextHops<R> {
    /// Connections from `endpoint` to those in `routes`, verified by `tls`; of those to another
    /// proxy, [`Self::keep`] keeps `ready` open.
    pub fn new(
        endpoint: Endpoint,
        tls: ClientConfig,
        side: Side,
        resolver: R,
        routes: &Routes,
        ready: usize,
    ) -> Self {
        let proxies = routes.all().filter(|route| route.kind == Kind::Pep);
        Self {
            endpoint,
            tls,
            pools: proxies
                .map(|route| (route.clone(), Pool::new(ready)))
                .collect(),
            side,
            resolver,
            paths: Paths::default(),
            answered: Mutex::default(),
        }
    }

    /// Keeps connections to other proxies ready, for ever.
    pub async fn keep(&self) {
        let pools = self.pools.iter();
        let keeping: Vec<BoxFuture<'_, ()>> = pools
            .map(|(route, pool)| Box::pin(self.keep_pool(route, pool)) as _)
            .collect();
        join_all(keeping).await;
    }

    async fn keep_pool(&self, route: &Route, pool: &Pool) {
        let mut wait = BACKOFF.0;
        loop {
            let opening: Vec<BoxFuture<'_, _>> = (0..pool.missing().await)
                .map(|_| Box::pin(self.open_ready(route)) as _)
                .collect();
            let mut failed = false;
            for opened in join_all(opening).await {
                match opened {
                    Ok(ready) => pool.put(ready),
                    Err(why) => {
                        tracing::warn!("no connection ready: {why}");
                        failed = true;
                    }
                }
            }
            if failed {
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(BACKOFF.1);
            } else {
                wait = BACKOFF.0;
            }
        }
    }

    /// Opens a connection to another proxy.
    async fn open_ready(&self, route: &Route) -> Result<Ready, NextHopError> {
        let ours = vec![pair::PROTOCOL.to_vec()];
        let opened = self.open(route, &ClientHello::default(), ours).await;
        Ok(opened?.0)
    }

    /// Connections to other proxies that are ready.
    pub fn ready(&self) -> usize {
        self.pools.values().map(Pool::count).sum()
    }

    /// How they are set up.
    pub fn side(&self) -> &Side {
        &self.side
    }

    /// A connection by `route` for `client`, which is told of as offering its protocols.
    pub async fn connect(&self, route: &Route, client: &Client) -> Result<NextHop, NextHopError> {
        let hello = &client.hello;
        let Some(pool) = self.pools.get(route) else {
            let opened = self.open(route, hello, hello.protocols.clone()).await?;
            let (Ready { connection, lease }, protocol) = opened;
            return Ok(NextHop {
                connection,
                protocol: Protocol::Chosen(protocol),
                _lease: lease,
            });
        };
        let Ready {
            connection,
            mut lease,
        } = match pool.take() {
            Some(ready) => ready,
            None => self.open_ready(route).await?,
        };
        lease.begin();
        // An error: the connection is lost, as its client will hear.
        let _ = pair::ask(&connection, client).await;
        Ok(NextHop {
            connection,
            protocol: Protocol::Awaited,
            _lease: lease,
        })
    }

    /// Opens a connection by `route`, for the name that `hello` asks for, with one of
    /// `protocols`; the one that was chosen is told.
    async fn open(
        &self,
        route: &Route,
        hello: &ClientHello,
        protocols: Vec<Vec<u8>>,
    ) -> Result<(Ready, Option<Vec<u8>>), NextHopError> {
        let address = &route.address;
        let unreachable = |why| NextHopError::new(Code::Unreachable, why);
        let resolved = self.resolver.resolve(address).await;
        let resolved = resolved
            .map_err(|error| unreachable(format!("{address} does not resolve: {error}")))?;
        let name = (route.name.as_deref())
            .or(hello.server_name.as_deref())
            .unwrap_or(route.host());
        let mut config = noq::ClientConfig::new(tls::client_with(&self.tls, protocols));
        config.version(self.side.version_number());
        let mut failure = unreachable(format!("{address} has no address"));
        let patience = PATIENCE / u32::try_from(resolved.len().max(1)).unwrap_or(u32::MAX);
        for to in resolved {
            let lease = match route.kind {
                Kind::Pep => self.paths.lease_together(to.ip()),
                Kind::Server => self.paths.lease(to.ip()),
            };
            let mut transport = self.side.quic(&lease);
            if route.kind == Kind::Pep {
                transport.keep_alive_interval(Some(KEEP_ALIVE));
            }
            config.transport_config(Arc::new(transport));
            match self.connect_to(config.clone(), to, name, patience).await {
                Ok(connection) => {
                    let protocol = application_protocol(&connection);
                    return Ok((Ready { connection, lease }, protocol));
                }
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
    ) -> Result<Connection, Box<dyn FnOnce(&str) -> NextHopError + Send>> {
        let connecting = self.endpoint.connect_with(config, to, name);
        let connecting = connecting.map_err(|error| failed_to_begin(&error))?;
        tokio::select! {
            biased;
            connected = connecting => match connected {
                Ok(connection) => {
                    self.answered(to);
                    Ok(connection)
                }
                Err(error) => Err(Box::new(move |to: &str| NextHopError::lost(to, &error))),
            },
            () = self.silence(to, patience) => Err(Box::new(NextHopError::silent)),
        }
    }

    /// Waits until `to` has answered nobody for `patience`, from now on.
    async fn silence(&self, to: SocketAddr, patience: Duration) {
        let mut heard = now();
        while now() < heard + patience {
            tokio::time::sleep_until(heard + patience).await;
            let answered = self.answers().get(&to).copied();
            heard = answered.map_or(heard, |answered| answered.max(heard));
        }
    }

    /// `to` has completed a handshake.
    fn answered(&self, to: SocketAddr) {
        let mut answers = self.answers();
        if answers.len() >= MOST_ANSWERED {
            answers.clear();
        }
        answers.insert(to, now());
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Instant>> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed_to_begin(error: &ConnectError) -> Box<dyn FnOnce(&str) -> NextHopError + Send> {
    let error = error.to_string();
    Box::new(move |to: &str| {
        let reason = format!("no connection to {to} can be begun: {error}");
        NextHopError::new(Code::Unreachable, reason)
    })
}

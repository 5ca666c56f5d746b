//! The proxy: takes clients' connections and joins each to one to its next hop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use noq::{Connection, Endpoint, Incoming, ServerConfig};
use noq_proto::crypto::ServerConfig as Crypto;
use rustls::server::ResolvesServerCert;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::close::Code;
use crate::failure::NextHopError;
use crate::hello::{ClientHello, Hellos};
use crate::join::join;
use crate::memory::Memory;
use crate::next_hop::{NextHop, NextHops, Resolve};
use crate::pair::{self, Client};
use crate::paths::{Lease, Paths};
use crate::protocols::Protocols;
use crate::routes::{Route, Routes};
use crate::tls;
use crate::transport::Side;

/// A client whose first flight is not complete by then is let go.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Clients whose first flight waits, all together.
const MOST_WAITING: usize = 4096;
/// What follows the first packet of one of them, and of all, bytes.
const WAITING: (u64, u64) = (64 << 10, 16 << 20);
/// A client that has not finished its handshake by then is not told why it is closed.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(3);

/// Who is waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The client is answered while the next hop is still being reached; its data follow as
    /// soon as they can. The application protocol is what the next hop has last chosen of
    /// those that the client offers, or else the client's first.
    #[default]
    Default,
    /// The next hop first: it is offered all that the client offers, and the client is
    /// answered with what it has chosen.
    H3Capable,
    /// As `default` for a server that has answered within the hour and not failed since, whose
    /// application protocol is therefore known; as `h3-capable` for others.
    H3Parallel,
}

/// What a server's choice of an application protocol is for, once it is known.
enum Choice<'a> {
    /// The client has been answered with it.
    Told,
    /// The next client of that server.
    Learnt(&'a Route, &'a ClientHello),
    /// The proxy before this one.
    Awaited,
}

/// What a proxy is made of.
#[derive(Debug)]
pub struct Configuration<R> {
    /// Who is waited for.
    pub mode: Mode,
    /// Where clients arrive, on a socket that [`Hellos::tap`] gave.
    pub listener: Endpoint,
    /// What they say first.
    pub hellos: Hellos,
    /// [`listening`].
    pub server: ServerConfig,
    /// What they are shown.
    pub certificates: Arc<dyn ResolvesServerCert>,
    /// Towards clients.
    pub clients: Side,
    /// Where they lead.
    pub routes: Routes,
    /// Towards next hops.
    pub next: NextHops<R>,
    /// What all connections may hold together.
    pub memory: Memory,
}

/// How the library takes connections with the TLS of `crypto`: what waits is bounded.
pub fn listening(crypto: Arc<dyn Crypto>) -> ServerConfig {
    let (one, all) = WAITING;
    let mut server = ServerConfig::with_crypto(crypto);
    server
        .max_incoming(MOST_WAITING)
        .incoming_buffer_size(one)
        .incoming_buffer_size_total(all);
    server
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy<R> {
    is: Configuration<R>,
    tls: rustls::ServerConfig,
    protocols: Protocols,
    paths: Paths,
    open: AtomicUsize,
}

impl<R: Resolve> Proxy<R> {
    /// A proxy as `configuration` says.
    pub fn new(configuration: Configuration<R>) -> Arc<Self> {
        Arc::new(Self {
            tls: tls::server(configuration.certificates.clone()),
            is: configuration,
            protocols: Protocols::default(),
            paths: Paths::default(),
            open: AtomicUsize::new(0),
        })
    }

    /// Clients that are connected.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes connections until the endpoint is closed.
    pub async fn run(self: Arc<Self>) {
        let proxy = self.clone();
        let keeping = tokio::spawn(async move { proxy.is.next.keep().await });
        while let Some(incoming) = self.is.listener.accept().await {
            let proxy = self.clone();
            tokio::spawn(async move {
                proxy.open.fetch_add(1, Ordering::Relaxed);
                proxy.serve(incoming).await;
                proxy.open.fetch_sub(1, Ordering::Relaxed);
            });
        }
        keeping.abort();
    }

    /// Connections to other proxies that are ready for clients.
    pub fn ready(&self) -> usize {
        self.is.next.ready()
    }

    async fn serve(&self, incoming: Incoming) {
        let room = self.is.memory.room();
        if self.open() > room.saturating_mul(2) {
            // There is no room for a reason either.
            return incoming.refuse();
        }
        let from = incoming.remote_address();
        let hello = (self.is.hellos).take(from, incoming.orig_dst_cid());
        let Ok(hello) = tokio::time::timeout(HELLO_PATIENCE, hello).await else {
            return;
        };
        if self.open() > room {
            let reason = format!("this proxy has room for {room} connections");
            let why = NextHopError::new(Code::Full, reason);
            return self.refuse(incoming, &hello, &why).await;
        }
        if hello
            .protocols
            .iter()
            .any(|offered| offered == pair::PROTOCOL)
        {
            return self.serve_proxy(incoming).await;
        }
        let client = Client {
            address: Some(from),
            hello,
        };
        let route = match self.route(&client.hello) {
            Ok(route) => route,
            Err(why) => return self.refuse(incoming, &client.hello, &why).await,
        };
        match self.is.mode {
            Mode::Default => self.answer_first(incoming, route, client).await,
            Mode::H3Parallel if self.protocols.known(route, &client.hello).is_some() => {
                self.answer_first(incoming, route, client).await;
            }
            Mode::H3Capable | Mode::H3Parallel => {
                self.connect_first(incoming, route, client).await;
            }
        }
    }

    fn route(&self, hello: &ClientHello) -> Result<&Route, NextHopError> {
        let name = hello.server_name.as_deref();
        self.is.routes.find(name).ok_or_else(|| {
            let name = name.unwrap_or("no server name");
            let reason = format!("this proxy knows no way to {name:?}");
            NextHopError::new(Code::NoRoute, reason)
        })
    }

    /// Answers the client while the next hop is being reached.
    async fn answer_first(&self, incoming: Incoming, route: &Route, mut client: Client) {
        let offered = client.hello.clone();
        let protocol = self.protocols.expected(route, &offered);
        client.hello.protocols = protocol.into_iter().collect();
        let Some(accepted) = self.accept(incoming, client.hello.protocols.clone()) else {
            return;
        };
        let next = tokio::select! {
            next = self.is.next.connect(route, &client) => next,
            _ = accepted.connection.closed() => return,
        };
        match next {
            Ok(next) => {
                (self.join(&accepted, next, Choice::Learnt(route, &offered))).await;
            }
            Err(why) => {
                self.protocols.forget(route, &offered);
                accepted.close(&why).await;
            }
        }
    }

    /// Reaches the next hop and then answers the client.
    async fn connect_first(&self, incoming: Incoming, route: &Route, client: Client) {
        let next = async {
            let mut next = self.is.next.connect(route, &client).await?;
            let protocol = next.chosen().await?;
            Ok((next, protocol))
        };
        let (next, protocol) = match next.await {
            Ok(next) => next,
            Err(why) => return self.refuse(incoming, &client.hello, &why).await,
        };
        if let Some(chosen) = &protocol {
            self.protocols.learn(route, &client.hello, chosen.clone());
        }
        let protocols: Vec<_> = protocol.into_iter().collect();
        match self.accept(incoming, protocols) {
            Some(accepted) => self.join(&accepted, next, Choice::Told).await,
            None => next
                .connection
                .close(Code::Lost.into(), b"the client is gone"),
        }
    }

    /// Waits for a client of the proxy before this one, and takes it to its next hop.
    async fn serve_proxy(&self, incoming: Incoming) {
        let Some(mut accepted) = self.accept(incoming, vec![pair::PROTOCOL.to_vec()]) else {
            return;
        };
        let asked = match pair::asked(&accepted.connection).await {
            None => return,
            Some(Ok(client)) => self.route(&client.hello).map(|route| (client, route)),
            Some(Err(error)) => Err(NextHopError::new(Code::NoRoute, error.to_string())),
        };
        let next = match asked {
            Ok((client, route)) => {
                accepted.lease.begin();
                self.is.next.connect(route, &client).await
            }
            Err(why) => Err(why),
        };
        match next {
            // Data go on at once, also while a third proxy has yet to answer.
            Ok(next) => self.join(&accepted, next, Choice::Awaited).await,
            Err(why) => accepted.close(&why).await,
        }
    }

    /// Carries everything between a client and its next hop, with their part of the memory.
    async fn join(&self, client: &Accepted, mut next: NextHop, choice: Choice<'_>) {
        let (clients, nexts) = (&self.is.clients, self.is.next.side());
        let (client, onwards) = (&client.connection, next.connection.clone());
        let _part = (self.is.memory).join((client, clients), (&onwards, nexts));
        let answered = async {
            // An error: the connection is lost, and the client will hear of that.
            let chosen = next.chosen().await.ok();
            match (choice, chosen) {
                (Choice::Learnt(route, hello), Some(Some(chosen))) => {
                    self.protocols.learn(route, hello, chosen);
                }
                (Choice::Learnt(route, hello), _) => self.protocols.forget(route, hello),
                (Choice::Awaited, Some(chosen)) => {
                    // An error: this connection is lost.
                    let _ = pair::answer(client, chosen.as_deref()).await;
                }
                (Choice::Awaited, None) | (Choice::Told, _) => {}
            }
        };
        join(client, &onwards, &self.is.memory, answered).await;
    }

    /// Takes a connection with one of `protocols`. What is sent from now on goes out with
    /// the answer to the client's first flight.
    fn accept(&self, incoming: Incoming, protocols: Vec<Vec<u8>>) -> Option<Accepted> {
        let peer = incoming.remote_address().ip();
        let proxy = protocols.iter().any(|name| name == pair::PROTOCOL);
        let lease = match proxy {
            true => self.paths.lease_together(peer),
            false => self.paths.lease(peer),
        };
        let mut server = self.is.server.clone();
        let transport = (self.is.clients).quic(&lease);
        server.transport_config(Arc::new(transport));
        server.crypto = tls::server_with(&self.tls, protocols);
        // An error: the client is gone, or its first flight was no handshake.
        let connecting = incoming.accept_with(Arc::new(server)).ok()?;
        let (connection, ready) = connecting.into_0rtt().ok()?;
        Some(Accepted {
            connection,
            ready,
            lease,
        })
    }

    /// Takes a connection only to say why it is closed.
    async fn refuse(&self, incoming: Incoming, hello: &ClientHello, why: &NextHopError) {
        if let Some(accepted) = self.accept(incoming, hello.protocols.clone()) {
            accepted.close(why).await;
        }
    }
}

/// A connection that has been taken.
struct Accepted {
    connection: Connection,
    /// Its handshake is done.
    ready: noq::ZeroRttAccepted,
    lease: Lease,
}

impl Accepted {
    /// Closes it, once its client can be told why.
    async fn close(self, why: &NextHopError) {
        tracing::info!("client closed: {why}");
        // Before the handshake is done the code and the reason would be left out (RFC 9000,
        // section 10.2.3).
        let _ = tokio::time::timeout(FAREWELL_PATIENCE, self.ready).await;
        (self.connection).close(why.code, why.reason.as_bytes());
    }
}

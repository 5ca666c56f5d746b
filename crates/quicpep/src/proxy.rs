//! The proxy: takes clients' connections and joins each to one to its next hop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bentpipe_cc::PathMemory;
use noq::{Connection, Endpoint, Incoming, ServerConfig};
use rustls::server::ResolvesServerCert;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::close::Code;
use crate::hello::{ClientHello, Hellos};
use crate::join::join;
use crate::memory::Memory;
use crate::next_hop::{NextHop, NextHopError, NextHops, Resolve};
use crate::protocols::Protocols;
use crate::routes::{Route, Routes};
use crate::tls;
use crate::transport::Side;

/// A client whose first flight is not complete by then is let go.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
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
    /// How the library takes connections; TLS and transport are the proxy's.
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

/// A running proxy.
#[derive(Debug)]
pub struct Proxy<R> {
    is: Configuration<R>,
    tls: rustls::ServerConfig,
    protocols: Protocols,
    open: AtomicUsize,
}

impl<R: Resolve> Proxy<R> {
    /// A proxy as `configuration` says.
    pub fn new(mut configuration: Configuration<R>) -> Arc<Self> {
        let tls = tls::server(configuration.certificates.clone());
        let transport = configuration.clients.quic(PathMemory::default());
        configuration.server.transport_config(Arc::new(transport));
        Arc::new(Self {
            is: configuration,
            tls,
            protocols: Protocols::default(),
            open: AtomicUsize::new(0),
        })
    }

    /// Clients that are connected.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes connections until the endpoint is closed.
    pub async fn run(self: Arc<Self>) {
        while let Some(incoming) = self.is.listener.accept().await {
            let proxy = self.clone();
            tokio::spawn(async move {
                proxy.open.fetch_add(1, Ordering::Relaxed);
                proxy.serve(incoming).await;
                proxy.open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    async fn serve(&self, incoming: Incoming) {
        let from = incoming.remote_address();
        let hello = (self.is.hellos).take(from, incoming.orig_dst_cid());
        let Ok(hello) = tokio::time::timeout(HELLO_PATIENCE, hello).await else {
            return;
        };
        let name = hello.server_name.as_deref();
        let room = self.is.memory.room();
        if self.open() > room {
            let reason = format!("this proxy has room for {room} connections");
            return self
                .refuse(incoming, &hello, NextHopError::new(Code::Full, reason))
                .await;
        }
        let Some(route) = self.is.routes.find(name) else {
            let reason = format!(
                "this proxy knows no way to {:?}",
                name.unwrap_or("no server name")
            );
            return self
                .refuse(incoming, &hello, NextHopError::new(Code::NoRoute, reason))
                .await;
        };
        match self.is.mode {
            Mode::Default => self.answer_first(incoming, route, &hello).await,
            Mode::H3Capable => self.connect_first(incoming, route, &hello).await,
        }
    }

    /// Answers the client while the next hop is being reached.
    async fn answer_first(&self, incoming: Incoming, route: &Route, hello: &ClientHello) {
        let protocol = self.protocols.expected(route, hello);
        let protocols: Vec<_> = protocol.into_iter().collect();
        let Some((client, ready)) = self.accept(incoming, protocols.clone()) else {
            return;
        };
        let next = tokio::select! {
            next = self.is.next.connect(route, hello, protocols) => next,
            _ = client.closed() => return,
        };
        match next {
            Ok(next) => self.joined(route, hello, &client, next).await,
            Err(why) => close(&client, ready, &why).await,
        }
    }

    /// Reaches the next hop and then answers the client.
    async fn connect_first(&self, incoming: Incoming, route: &Route, hello: &ClientHello) {
        let next = (self.is.next).connect(route, hello, hello.protocols.clone());
        let next = match next.await {
            Ok(next) => next,
            Err(why) => return self.refuse(incoming, hello, why).await,
        };
        let protocols = next.protocol.iter().cloned().collect();
        match self.accept(incoming, protocols) {
            Some((client, _)) => self.joined(route, hello, &client, next).await,
            None => next
                .connection
                .close(Code::Lost.into(), b"the client is gone"),
        }
    }

    async fn joined(&self, route: &Route, hello: &ClientHello, client: &Connection, next: NextHop) {
        if let Some(protocol) = next.protocol {
            self.protocols.learn(route, hello, protocol);
        }
        let (clients, nexts) = (&self.is.clients, self.is.next.side());
        let _part = (self.is.memory).join((client, clients), (&next.connection, nexts));
        join(client, &next.connection).await;
    }

    /// Takes a connection with one of `protocols`. What is sent from now on goes out with
    /// the answer to the client's first flight.
    fn accept(
        &self,
        incoming: Incoming,
        protocols: Vec<Vec<u8>>,
    ) -> Option<(Connection, noq::ZeroRttAccepted)> {
        let mut server = self.is.server.clone();
        server.crypto = tls::server_with(&self.tls, protocols);
        // An error: the client is gone, or its first flight was no handshake.
        let connecting = incoming.accept_with(Arc::new(server)).ok()?;
        connecting.into_0rtt().ok()
    }

    /// Takes a connection only to say why it is closed.
    async fn refuse(&self, incoming: Incoming, hello: &ClientHello, why: NextHopError) {
        if let Some((client, ready)) = self.accept(incoming, hello.protocols.clone()) {
            close(&client, ready, &why).await;
        }
    }
}

/// Closes a client's connection, once it can be told why.
async fn close(client: &Connection, ready: noq::ZeroRttAccepted, why: &NextHopError) {
    tracing::info!(client = client.stable_id(), "{why}");
    // Before the handshake is done the code and the reason would be left out (RFC 9000,
    // section 10.2.3).
    let _ = tokio::time::timeout(FAREWELL_PATIENCE, ready).await;
    client.close(why.code, why.reason.as_bytes());
}

//! One end of a connection, with the measurement's program behind it.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use bentpipe_perf::lean;
use bentpipe_quic::batches::Batches;
use bytes::BytesMut;
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint,
    EndpointConfig, Event, FourTuple, ServerConfig, Transmit,
};

use crate::REQUEST;

/// One end.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    endpoint: Endpoint,
    pub(crate) connection: Option<(ConnectionHandle, Connection)>,
    buffer: Vec<u8>,
    /// Sends batches when real ends do: the library panics at others.
    batches: Batches,
    pub(crate) program: Program,
    pub(crate) broken: Option<String>,
}

/// What the end is for.
pub(crate) enum Program {
    /// Requests and receives.
    Terminal(lean::Client),
    /// Answers.
    Gateway(lean::Server),
}

impl Node {
    pub(crate) fn terminal(config: EndpointConfig, address: SocketAddr) -> Self {
        Self::new(
            Endpoint::new(Arc::new(config), None, false),
            address,
            Program::Terminal(lean::Client::default()),
        )
    }

    pub(crate) fn gateway(
        config: EndpointConfig,
        server: ServerConfig,
        address: SocketAddr,
    ) -> Self {
        Self::new(
            Endpoint::new(Arc::new(config), Some(Arc::new(server)), false),
            address,
            Program::Gateway(lean::Server::default()),
        )
    }

    fn new(endpoint: Endpoint, address: SocketAddr, program: Program) -> Self {
        Self {
            address,
            endpoint,
            connection: None,
            buffer: Vec::new(),
            batches: Batches::default(),
            program,
            broken: None,
        }
    }

    /// The terminal connects.
    pub(crate) fn connect(&mut self, now: Instant, config: ClientConfig, to: SocketAddr) {
        match self
            .endpoint
            .connect(now, config, to, crate::identity::NAME)
        {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => self.broken = Some(error.to_string()),
        }
    }

    /// The terminal requests `bytes`.
    pub(crate) fn request(&mut self, bytes: u64) {
        if let (Some((_, connection)), Program::Terminal(client)) =
            (&mut self.connection, &mut self.program)
            && !client.request(connection, bytes, REQUEST)
        {
            self.broken
                .get_or_insert_with(|| "a request found no stream".into());
        }
    }

    /// A datagram arrives.
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ecn: Option<EcnCodepoint>,
        payload: BytesMut,
    ) {
        let path = FourTuple::new(from, None);
        self.buffer.clear();
        match self
            .endpoint
            .handle(now, path, ecn, payload, &mut self.buffer)
        {
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                if let Some((_, connection)) = &mut self.connection {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) if self.connection.is_none() => {
                match self.endpoint.accept(incoming, now, &mut self.buffer, None) {
                    Ok(connection) => self.connection = Some(connection),
                    Err(error) => self.broken = Some(error.cause.to_string()),
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.endpoint.ignore(incoming),
            Some(DatagramEvent::Response(_)) | None => {}
        }
    }

    /// Lets timers fire and programs work.
    pub(crate) fn advance(&mut self, now: Instant) {
        let Some((handle, connection)) = &mut self.connection else {
            return;
        };
        if connection.poll_timeout().is_some_and(|at| at <= now) {
            connection.handle_timeout(now);
        }
        loop {
            let mut quiet = true;
            while let Some(event) = connection.poll_endpoint_events() {
                quiet = false;
                if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                    connection.handle_event(answer);
                }
            }
            while let Some(event) = connection.poll() {
                quiet = false;
                match event {
                    Event::ConnectionLost { reason } => {
                        self.broken.get_or_insert(reason.to_string());
                    }
                    event => self.program.on_event(connection, &event),
                }
            }
            if quiet {
                break;
            }
        }
        self.program.work(connection);
    }

    /// The next datagrams to send, `most` at most: how they go, and their bytes.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        most: NonZeroUsize,
    ) -> Option<(Transmit, &[u8])> {
        let (_, connection) = self.connection.as_mut()?;
        self.buffer.clear();
        let most = self.batches.limit(now.into(), most);
        let transmit = connection.poll_transmit(now, most, &mut self.buffer)?;
        let bytes = &self.buffer[..transmit.size];
        let segment = transmit.segment_size.unwrap_or(transmit.size);
        self.batches.on_sent(now.into(), bytes, segment);
        Some((transmit, bytes))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.connection.as_ref()?.1.poll_timeout()
    }
}

impl Program {
    fn on_event(&mut self, connection: &mut Connection, event: &Event) {
        match self {
            Self::Terminal(client) => client.on_event(event),
            Self::Gateway(server) => server.on_event(connection, event),
        }
    }

    fn work(&mut self, connection: &mut Connection) {
        match self {
            Self::Terminal(client) => client.work(connection),
            Self::Gateway(server) => server.work(connection),
        }
    }
}

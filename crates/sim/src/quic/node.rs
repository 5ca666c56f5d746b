//! One end of a connection, and the program behind it.
//!
//! The programs are the simplest that move data: the terminal requests a number of
//! bytes on a stream of its own, the gateway answers with so many and ends the stream.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use noq_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint,
    EndpointConfig, Event, FourTuple, ReadError, ServerConfig, StreamEvent, StreamId, Transmit,
};

use crate::REQUEST;

/// One end.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    endpoint: Endpoint,
    pub(crate) connection: Option<(ConnectionHandle, Connection)>,
    buffer: Vec<u8>,
    pub(crate) program: Program,
    pub(crate) broken: Option<String>,
}

/// What the end is for.
pub(crate) enum Program {
    /// Requests and receives.
    Terminal {
        connected: bool,
        stream: Option<StreamId>,
        received: u64,
        first_byte: bool,
        done: bool,
    },
    /// Answers.
    Gateway { answers: Vec<Answer>, block: Bytes },
}

/// What is left to send on a stream.
pub(crate) struct Answer {
    stream: StreamId,
    request: Vec<u8>,
    left: Option<u64>,
}

impl Node {
    pub(crate) fn terminal(config: EndpointConfig, address: SocketAddr) -> Self {
        Self::new(
            Endpoint::new(Arc::new(config), None, false),
            address,
            Program::Terminal {
                connected: false,
                stream: None,
                received: 0,
                first_byte: false,
                done: false,
            },
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
            Program::Gateway {
                answers: Vec::new(),
                block: Bytes::from_static(&[0; 65_536]),
            },
        )
    }

    fn new(endpoint: Endpoint, address: SocketAddr, program: Program) -> Self {
        Self {
            address,
            endpoint,
            connection: None,
            buffer: Vec::new(),
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
        let Some((_, connection)) = &mut self.connection else {
            return;
        };
        let id = connection.streams().open(Dir::Bi);
        if let (
            Some(id),
            Program::Terminal {
                stream,
                received,
                first_byte,
                done,
                ..
            },
        ) = (id, &mut self.program)
        {
            let mut request = [0; REQUEST];
            request[..8].copy_from_slice(&bytes.to_be_bytes());
            let mut sender = connection.send_stream(id);
            if sender.write(&request) == Ok(REQUEST) && sender.finish().is_ok() {
                (*stream, *received, *first_byte, *done) = (Some(id), 0, false, false);
                return;
            }
        }
        self.broken
            .get_or_insert_with(|| "a request found no stream".into());
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
        let transmit = connection.poll_transmit(now, most, &mut self.buffer)?;
        let size = transmit.size;
        Some((transmit, &self.buffer[..size]))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.connection.as_ref()?.1.poll_timeout()
    }
}

impl Program {
    fn on_event(&mut self, connection: &mut Connection, event: &Event) {
        match (self, event) {
            (Self::Terminal { connected, .. }, Event::Connected) => *connected = true,
            (
                Self::Gateway { answers, .. },
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }),
            ) => {
                while let Some(stream) = connection.streams().accept(Dir::Bi) {
                    answers.push(Answer {
                        stream,
                        request: Vec::new(),
                        left: None,
                    });
                }
            }
            _ => {}
        }
    }

    fn work(&mut self, connection: &mut Connection) {
        match self {
            Self::Terminal {
                stream,
                received,
                first_byte,
                done,
                ..
            } => {
                let Some(id) = *stream else { return };
                let (bytes, ended) = drain(connection, id, |_| {});
                *received += bytes;
                *first_byte |= bytes > 0;
                if ended {
                    *done = true;
                    *stream = None;
                }
            }
            Self::Gateway { answers, block } => {
                for answer in &mut *answers {
                    if answer.left.is_none() {
                        drain(connection, answer.stream, |chunk| {
                            answer.request.extend_from_slice(chunk);
                        });
                        if answer.request.len() >= REQUEST {
                            let size = answer.request[..8].try_into().expect("eight bytes");
                            answer.left = Some(u64::from_be_bytes(size));
                        }
                    }
                    if let Some(left) = &mut answer.left {
                        send(connection, answer.stream, left, block);
                    }
                }
                answers.retain(|answer| answer.left != Some(0));
            }
        }
    }
}

/// Writes as much as the connection takes; ends the stream after the last byte.
fn send(connection: &mut Connection, stream: StreamId, left: &mut u64, block: &Bytes) {
    while *left > 0 {
        let most = usize::try_from(*left)
            .unwrap_or(usize::MAX)
            .min(block.len());
        let mut chunk = [block.slice(..most)];
        match connection
            .send_stream(stream)
            .write_chunks(&mut &mut chunk[..])
        {
            Ok(written) if written > 0 => *left -= written as u64,
            _ => return,
        }
    }
    // The peer never stops a stream; a connection that is gone has its own event.
    drop(connection.send_stream(stream).finish());
}

/// Reads all there is: how many bytes, and whether the stream has ended.
fn drain(
    connection: &mut Connection,
    stream: StreamId,
    mut take: impl FnMut(&[u8]),
) -> (u64, bool) {
    let mut receiver = connection.recv_stream(stream);
    let Ok(mut chunks) = receiver.read(true) else {
        return (0, false);
    };
    let mut bytes = 0;
    let ended = loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                bytes += chunk.bytes.len() as u64;
                take(&chunk.bytes);
            }
            Ok(None) => break true,
            Err(ReadError::Blocked) => break false,
            Err(_) => break false,
        }
    };
    let _ = chunks.finalize();
    (bytes, ended)
}

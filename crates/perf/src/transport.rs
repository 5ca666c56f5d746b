//! What a measurement needs of a transport: connections with streams, and what their senders see.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use crate::clock::Clock;
use crate::error::PerfError;
use crate::protocol::HEADER;
use crate::report::{Change, Establishment, Sender, TransportKind};

/// The sending half of a stream. The stream is broken off when it is dropped unfinished.
pub trait SendHalf: Send + 'static {
    /// Sends at most `most` bytes, whatever they are; how many they were.
    fn write(&mut self, most: u64) -> impl Future<Output = Result<u64, PerfError>> + Send;

    /// Sends a request's header.
    fn write_header(
        &mut self,
        header: [u8; HEADER],
    ) -> impl Future<Output = Result<(), PerfError>> + Send;

    /// Ends the half well.
    fn finish(&mut self) -> Result<(), PerfError>;

    /// Waits until the other end has everything, or wants no more.
    fn settled(&mut self) -> impl Future<Output = ()> + Send;
}

/// The receiving half of a stream.
pub trait ReceiveHalf: Send + 'static {
    /// Takes what has arrived: how many bytes; nothing at the end.
    fn read(&mut self) -> impl Future<Output = Result<Option<u64>, PerfError>> + Send;

    /// Takes a request's header; nothing if the stream ends before.
    fn read_header(
        &mut self,
    ) -> impl Future<Output = Result<Option<[u8; HEADER]>, PerfError>> + Send;

    /// Wants no more. Not an error at either end.
    fn stop(&mut self);
}

/// A connection to a server.
pub trait Connection: Clone + Send + Sync + 'static {
    /// What sends on its streams.
    type Send: SendHalf;
    /// What receives on them.
    type Receive: ReceiveHalf;

    /// Opens a stream.
    fn open(&self) -> impl Future<Output = Result<(Self::Send, Self::Receive), PerfError>> + Send;

    /// Sends a datagram that may be lost.
    fn send_datagram(&self, datagram: Bytes) -> Result<(), PerfError>;

    /// The next datagram that comes.
    fn read_datagram(&self) -> impl Future<Output = Result<Bytes, PerfError>> + Send;

    /// What its sender sees now.
    fn sender(&self) -> Sender;

    /// A count that grows whenever its streams carry something either way, and not while it is only kept open.
    fn moved(&self) -> u64;

    /// Changes are kept from now on, to be taken.
    fn keep_changes(&self);

    /// The changes since the last call by `clock`, and how many more there were no room for.
    fn take_changes(&self, clock: &Clock) -> (Vec<Change>, u64);

    /// How it came about, as far as that is known.
    fn establishment(&self) -> Establishment;

    /// Waits until nothing about how it came about is open any more.
    fn settled(&self, clock: &Clock) -> impl Future<Output = ()> + Send;

    /// Ends it well.
    fn close(&self);
}

/// Makes connections to one server.
pub trait Dial: Send + Sync + 'static {
    /// What a connection is.
    type Connection: Connection;

    /// Which transport.
    fn kind(&self) -> TransportKind;

    /// The server.
    fn peer(&self) -> SocketAddr;

    /// What has to be there before the first connection that is measured.
    fn prepare(&self, clock: &Clock) -> impl Future<Output = Result<(), PerfError>> + Send;

    /// Connection `number`.
    fn dial(
        &self,
        number: u32,
        clock: &Clock,
    ) -> impl Future<Output = Result<Self::Connection, PerfError>> + Send;
}

/// How a connection came about, told by those that wait for its parts.
#[derive(Debug, Clone, Default)]
pub struct SharedEstablishment(Arc<Mutex<Establishment>>);

impl SharedEstablishment {
    /// As far as it is known.
    pub fn get(&self) -> Establishment {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a part.
    pub fn note(&self, part: impl FnOnce(&mut Establishment)) {
        part(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

//! HTTP/3's view of the QUIC library.
//!
//! Two things it does beyond passing calls on: bytes that are sent carry the
//! urgency of their flow ([`crate::schedule`]), and a stream that is dropped
//! before it was finished is reset, so that nobody takes a torn flow for a
//! complete one.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use noq::{ConnectionError, ReadError, VarInt, WriteError};

use crate::schedule::{Urgency, urgency};

/// Bytes taken from a stream at a time.
const CHUNK: usize = 64 * 1024;

/// The next stream of one kind, while it is not there yet.
struct Next<T>(Option<Coming<T>>);

type Coming<T> = Pin<Box<dyn Future<Output = Result<T, ConnectionError>> + Send + Sync>>;

impl<T> Next<T> {
    /// Polls for the stream that `begin` asks the connection for.
    fn poll<F>(
        &mut self,
        context: &mut Context<'_>,
        connection: &noq::Connection,
        begin: impl FnOnce(noq::Connection) -> F,
    ) -> Poll<Result<T, ConnectionError>>
    where
        F: Future<Output = Result<T, ConnectionError>> + Send + Sync + 'static,
    {
        let next = self
            .0
            .get_or_insert_with(|| Box::pin(begin(connection.clone())));
        let stream = ready!(next.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(stream)
    }
}

/// A QUIC connection, as HTTP/3 sees it.
pub struct Connection {
    opener: Opener,
    next_bidi: Next<(noq::SendStream, noq::RecvStream)>,
    next_recv: Next<noq::RecvStream>,
}

/// Opens streams of a connection.
pub struct Opener {
    connection: noq::Connection,
    stops: Stops,
    next_bidi: Next<(noq::SendStream, noq::RecvStream)>,
    next_send: Next<noq::SendStream>,
}

impl Opener {
    fn new(connection: noq::Connection, stops: Stops) -> Self {
        Self {
            connection,
            stops,
            next_bidi: Next(None),
            next_send: Next(None),
        }
    }
}

impl Clone for Opener {
    /// Opens streams of the same connection; what is being opened stays with the original.
    fn clone(&self) -> Self {
        Self::new(self.connection.clone(), self.stops.clone())
    }
}

impl Connection {
    /// HTTP/3 on `connection`.
    pub fn new(connection: noq::Connection) -> Self {
        let opener = Opener::new(connection, Stops::default());
        Self {
            opener,
            next_bidi: Next(None),
            next_recv: Next(None),
        }
    }

    /// Where the peer's refusals to read on are learnt.
    pub fn stops(&self) -> Stops {
        self.opener.stops.clone()
    }
}

impl<B: Buf> h3::quic::Connection<B> for Connection {
    type RecvStream = RecvStream;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let accept = |connection: noq::Connection| async move { connection.accept_uni().await };
        let accepted = ready!(
            self.next_recv
                .poll(context, &self.opener.connection, accept)
        );
        Poll::Ready(accepted.map(RecvStream::new).map_err(connection_error))
    }

    fn poll_accept_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, ConnectionErrorIncoming>> {
        let accept = |connection: noq::Connection| async move { connection.accept_bi().await };
        let accepted = ready!(
            self.next_bidi
                .poll(context, &self.opener.connection, accept)
        );
        let stops = &self.opener.stops;
        Poll::Ready(
            accepted
                .map(|pair| BidiStream::new(pair, stops))
                .map_err(connection_error),
        )
    }

    fn opener(&self) -> Opener {
        self.opener.clone()
    }
}

impl<B: Buf> h3::quic::OpenStreams<B> for Connection {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(context)
    }

    fn poll_open_send(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
        self.opener.poll_open_send(context)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        h3::quic::OpenStreams::<B>::close(&mut self.opener, code, reason);
    }
}

impl<B: Buf> h3::quic::OpenStreams<B> for Opener {
    type BidiStream = BidiStream<B>;
    type SendStream = SendStream<B>;

    fn poll_open_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, StreamErrorIncoming>> {
        let open = |connection: noq::Connection| async move { connection.open_bi().await };
        let opened = ready!(self.next_bidi.poll(context, &self.connection, open));
        Poll::Ready(
            opened
                .map(|pair| BidiStream::new(pair, &self.stops))
                .map_err(lost),
        )
    }

    fn poll_open_send(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<SendStream<B>, StreamErrorIncoming>> {
        let open = |connection: noq::Connection| async move { connection.open_uni().await };
        let opened = ready!(self.next_send.poll(context, &self.connection, open));
        Poll::Ready(
            opened
                .map(|stream| SendStream::new(stream, &self.stops))
                .map_err(lost),
        )
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(varint(code.value()), reason);
    }
}

/// Learns that the peer will not read on although nothing is being sent.
///
/// HTTP/3's API tells of STOP_SENDING only when something is written. A relay that
/// waits for its origin would keep the origin open for nobody.
#[derive(Clone, Default)]
pub struct Stops(Arc<Mutex<BTreeMap<u64, noq::Stopped>>>);

impl Stops {
    fn watch(&self, stream: &noq::SendStream) {
        let stopped = stream.stopped();
        self.lock()
            .insert(VarInt::from(stream.id()).into_inner(), stopped);
    }

    /// Resolves when the peer has said that it reads no more of stream `id`, or has
    /// acknowledged all of it, or the connection is lost. Once for each stream.
    pub fn stopped(&self, id: StreamId) -> impl Future<Output = ()> + Send + use<> {
        let watched = self.lock().remove(&id.into_inner());
        async move {
            if let Some(stopped) = watched {
                let _ = stopped.await;
            }
        }
    }

    fn forget(&self, id: u64) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, noq::Stopped>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both directions of a request.
pub struct BidiStream<B: Buf> {
    send: SendStream<B>,
    recv: RecvStream,
}

impl<B: Buf> BidiStream<B> {
    fn new((send, recv): (noq::SendStream, noq::RecvStream), stops: &Stops) -> Self {
        stops.watch(&send);
        Self {
            send: SendStream::new(send, stops),
            recv: RecvStream::new(recv),
        }
    }
}

impl<B: Buf> h3::quic::BidiStream<B> for BidiStream<B> {
    type SendStream = SendStream<B>;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream<B>, RecvStream) {
        (self.send, self.recv)
    }
}

impl<B: Buf> h3::quic::SendStream<B> for BidiStream<B> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(context)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(context)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl<B: Buf> h3::quic::RecvStream for BidiStream<B> {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(context)
    }

    fn stop_sending(&mut self, code: u64) {
        self.recv.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

/// What this end sends on a stream.
pub struct SendStream<B: Buf> {
    stream: noq::SendStream,
    writing: Option<WriteBuf<B>>,
    sent: u64,
    urgency: Urgency,
    ended: bool,
    stops: Stops,
}

impl<B: Buf> SendStream<B> {
    fn new(stream: noq::SendStream, stops: &Stops) -> Self {
        let urgency = urgency(0);
        // Fails only on a stream that is closed already; writing will say so.
        let _ = stream.set_priority(urgency);
        Self {
            stream,
            writing: None,
            sent: 0,
            urgency,
            ended: false,
            stops: stops.clone(),
        }
    }

    fn count(&mut self, bytes: usize) {
        self.sent += bytes as u64;
        let urgency = urgency(self.sent);
        if urgency != self.urgency {
            self.urgency = urgency;
            let _ = self.stream.set_priority(urgency);
        }
    }
}

impl<B: Buf> h3::quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        while let Some(writing) = &mut self.writing {
            if !writing.has_remaining() {
                self.writing = None;
                break;
            }
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, writing.chunk()))
                .map_err(write_error)?;
            writing.advance(written);
            self.count(written);
        }
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            return Err(StreamErrorIncoming::ConnectionErrorIncoming {
                connection_error: ConnectionErrorIncoming::InternalError(
                    "data was given before the stream was ready".into(),
                ),
            });
        }
        self.writing = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        ready!(self.poll_ready(context))?;
        self.ended = true;
        Poll::Ready(
            self.stream
                .finish()
                .map_err(|closed| StreamErrorIncoming::Unknown(closed.into())),
        )
    }

    fn reset(&mut self, code: u64) {
        self.ended = true;
        // An error means that the stream has ended otherwise before.
        let _ = self.stream.reset(varint(code));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl<B: Buf> Drop for SendStream<B> {
    fn drop(&mut self) {
        self.stops
            .forget(VarInt::from(self.stream.id()).into_inner());
        if !self.ended {
            let _ = self
                .stream
                .reset(varint(Code::H3_REQUEST_CANCELLED.value()));
        }
    }
}

/// What the peer sends on a stream.
pub struct RecvStream(noq::RecvStream);

impl RecvStream {
    fn new(stream: noq::RecvStream) -> Self {
        Self(stream)
    }
}

impl h3::quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        // Reading a chunk may be given up and begun anew at any time.
        pin!(self.0.read_chunk(CHUNK))
            .poll(context)
            .map_err(read_error)
    }

    fn stop_sending(&mut self, code: u64) {
        // An error means that the stream has ended before.
        let _ = self.0.stop(varint(code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.0.id())
    }
}

fn varint(value: u64) -> VarInt {
    VarInt::from_u64(value).unwrap_or(VarInt::MAX)
}

fn stream_id(id: noq::StreamId) -> StreamId {
    VarInt::from(id)
        .into_inner()
        .try_into()
        .expect("a QUIC stream ID is an HTTP/3 stream ID")
}

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => ConnectionErrorIncoming::ApplicationClose {
            error_code: close.error_code.into_inner(),
        },
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        error => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn lost(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming {
        connection_error: connection_error(error),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated {
            error_code: code.into_inner(),
        },
        WriteError::ConnectionLost(error) => lost(error),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated {
            error_code: code.into_inner(),
        },
        ReadError::ConnectionLost(error) => lost(error),
        error => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

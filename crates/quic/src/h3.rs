//! HTTP/3's view of the QUIC library.
//!
//! Four things it does beyond passing calls on: requests' streams write when it is
//! their turn ([`crate::schedule`]) and as far as the peer lets them
//! ([`crate::windows`]), a stream that is dropped before it was finished is reset, so
//! that nobody takes a torn flow for a complete one, and the header sections of CONNECT are
//! as their standards have them ([`crate::connect_headers`]).

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use h3::error::Code;
use h3::quic::{ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use noq::{ConnectionError, PathId, ReadError, VarInt, WriteError};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::connect_headers::{self, Begun, Incoming};
use crate::datagrams::Datagrams;
use crate::frames::FrameBound;
use crate::schedule::{Class, Scheduler};
use crate::windows::{self, Pool, Windows};

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
    /// Streams of which too little has come to know what they are.
    unknown: Vec<Option<UniStream>>,
}

/// A unidirectional stream whose type is not known yet.
struct UniStream {
    stream: noq::RecvStream,
    start: BytesMut,
}

/// What all requests of a session share.
#[derive(Clone)]
pub struct Flows {
    connection: noq::Connection,
    /// Where the peer's refusals to read on are learnt.
    pub stops: Stops,
    /// Whose bytes are sent next.
    pub scheduler: Scheduler,
    /// How far the peer may send.
    pub windows: Windows,
    /// What is sent beside the streams.
    pub datagrams: Datagrams,
    /// What of the library's send window is in use.
    send_window: Arc<AtomicU64>,
    /// The peer speaks HTTP/3 with us.
    accepted: Arc<watch::Sender<bool>>,
}

/// Opens streams of a connection.
pub struct Opener {
    connection: noq::Connection,
    /// Whose turn it is and how far the peer may send, if that is ours to say.
    session: Option<Flows>,
    next_bidi: Next<(noq::SendStream, noq::RecvStream)>,
    next_send: Next<noq::SendStream>,
}

impl Opener {
    fn new(connection: noq::Connection, session: Option<Flows>) -> Self {
        Self {
            connection,
            session,
            next_bidi: Next(None),
            next_send: Next(None),
        }
    }
}

impl Clone for Opener {
    /// Opens streams of the same connection; what is being opened stays with the original.
    fn clone(&self) -> Self {
        Self::new(self.connection.clone(), self.session.clone())
    }
}

impl Connection {
    /// HTTP/3 on `connection` as the library has it: its windows, and no turns.
    pub fn plain(connection: noq::Connection) -> Self {
        Self::with(Opener::new(connection, None))
    }

    /// HTTP/3 on `connection`, whose flows are lent receive windows from `pool`, up to
    /// `most` bytes each. Also what all its requests share.
    pub fn new(connection: noq::Connection, pool: &Pool, most: u64) -> (Self, Flows) {
        let opens = connection.side().is_client();
        let session = Flows {
            windows: Windows::new(pool.clone(), most, opens, now()),
            datagrams: Datagrams::new(connection.clone()),
            connection,
            stops: Stops::default(),
            scheduler: Scheduler::default(),
            send_window: Arc::default(),
            accepted: Arc::new(watch::Sender::new(false)),
        };
        let telling = session.clone();
        tokio::spawn(async move {
            telling.windows.tell(&telling.connection).await;
            telling.connection.closed().await;
            telling.scheduler.close();
        });
        let opener = Opener::new(session.connection.clone(), Some(session.clone()));
        (Self::with(opener), session)
    }

    fn with(opener: Opener) -> Self {
        Self {
            opener,
            next_bidi: Next(None),
            next_recv: Next(None),
            unknown: Vec::new(),
        }
    }

    /// Looks what the streams are of which enough has come.
    fn poll_unknown(&mut self, context: &mut Context<'_>) -> Option<RecvStream> {
        for place in &mut self.unknown {
            let Some(mut uni) = place.take() else {
                continue;
            };
            loop {
                match (windows::is_ours(&uni.start), &self.opener.session) {
                    (None, _) => {}
                    (Some(Ok(length)), Some(session)) => {
                        uni.start.advance(length);
                        tokio::spawn(heed(uni, session.scheduler.clone()));
                        break;
                    }
                    (Some(_), _) => {
                        let start = uni.start.freeze();
                        return Some(RecvStream::uni(uni.stream, start));
                    }
                }
                let read = pin!(uni.stream.read_chunk(CHUNK)).poll(context);
                match read {
                    Poll::Ready(Ok(Some(data))) => uni.start.extend_from_slice(&data),
                    // HTTP/3 deals with streams that end before they say what they are.
                    Poll::Ready(_) => {
                        let start = uni.start.freeze();
                        return Some(RecvStream::uni(uni.stream, start));
                    }
                    Poll::Pending => {
                        *place = Some(uni);
                        break;
                    }
                }
            }
        }
        self.unknown.retain(Option::is_some);
        None
    }
}

/// Heeds what the peer says of its windows until its stream ends.
async fn heed(mut uni: UniStream, scheduler: Scheduler) {
    let mut reader = windows::Reader::default();
    reader.take(&uni.start, &scheduler);
    while let Ok(Some(data)) = uni.stream.read_chunk(CHUNK).await {
        reader.take(&data, &scheduler);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the runtime's clock, which is virtual in the simulator"
)]
fn now() -> Instant {
    Instant::now()
}

impl<B: Buf> h3::quic::Connection<B> for Connection {
    type RecvStream = RecvStream;
    type OpenStreams = Opener;

    fn poll_accept_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        let accept = |connection: noq::Connection| async move { connection.accept_uni().await };
        loop {
            if let Some(stream) = self.poll_unknown(context) {
                return Poll::Ready(Ok(stream));
            }
            let connection = &self.opener.connection;
            let stream = ready!(self.next_recv.poll(context, connection, accept))
                .map_err(connection_error)?;
            if let Some(session) = &self.opener.session {
                session.accepted.send_replace(true);
            }
            self.unknown.push(Some(UniStream {
                stream,
                start: BytesMut::new(),
            }));
        }
    }

    fn poll_accept_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<BidiStream<B>, ConnectionErrorIncoming>> {
        let accept = |connection: noq::Connection| async move { connection.accept_bi().await };
        let Opener {
            connection,
            session,
            ..
        } = &self.opener;
        let accepted = ready!(self.next_bidi.poll(context, connection, accept));
        Poll::Ready(
            accepted
                .map(|pair| BidiStream::new(pair, session.as_ref()))
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
                .map(|pair| BidiStream::new(pair, self.session.as_ref()))
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
                .map(|stream| SendStream::new(stream, None))
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
    fn new((send, recv): (noq::SendStream, noq::RecvStream), session: Option<&Flows>) -> Self {
        if let Some(session) = session {
            let id = VarInt::from(send.id()).into_inner();
            session.stops.watch(&send);
            session.scheduler.begin(id);
            session.windows.begin(id, now());
            session.adjust(session.windows.session_window());
        }
        Self {
            send: SendStream::new(send, session.cloned()),
            recv: RecvStream {
                stream: recv,
                start: Bytes::new(),
                frames: Some(FrameBound::default()),
                headers: session
                    .is_some_and(|session| session.connection.side().is_server())
                    .then(Box::default),
                session: session.cloned(),
            },
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

impl Flows {
    /// Waits until the peer has begun to speak HTTP/3, which it does when it takes the
    /// session; `false` if it has been closed instead.
    pub async fn accepted(&self) -> bool {
        let mut accepted = self.accepted.subscribe();
        tokio::select! {
            heard = accepted.wait_for(|accepted| *accepted) => heard.is_ok(),
            _ = self.connection.closed() => false,
        }
    }

    /// Sets the window of the whole session.
    fn adjust(&self, window: Option<VarInt>) {
        if let Some(window) = window {
            self.connection.set_receive_window(window);
        }
    }

    /// Bounds what the library holds of what was written, for a flow of `class`.
    fn bound_queue(&self, class: Class) {
        let path = self.connection.path_stats(PathId::ZERO);
        // Without a path to ask it is the memory that bounds it.
        let window = path.map_or(u64::MAX, |path| class.send_window(path.cwnd));
        let window = window.min(2 * self.windows.most());
        if self.send_window.swap(window, Ordering::Relaxed) != window {
            self.connection.set_send_window(window);
        }
    }
}

/// What is being written.
enum Writing<B> {
    /// A frame of the library's.
    Frame(WriteBuf<B>),
    /// A request's header section.
    Headers(Bytes),
}

impl<B: Buf> Writing<B> {
    fn has_remaining(&self) -> bool {
        match self {
            Self::Frame(frame) => frame.has_remaining(),
            Self::Headers(headers) => headers.has_remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Frame(frame) => frame.chunk(),
            Self::Headers(headers) => headers.chunk(),
        }
    }

    fn advance(&mut self, bytes: usize) {
        match self {
            Self::Frame(frame) => frame.advance(bytes),
            Self::Headers(headers) => headers.advance(bytes),
        }
    }
}

/// What this end sends on a stream.
pub struct SendStream<B: Buf> {
    stream: noq::SendStream,
    writing: Option<Writing<B>>,
    class: Class,
    ended: bool,
    /// A request of ours whose header section comes first.
    asks: bool,
    /// Of a request's stream, if it has turns and windows of ours.
    session: Option<Flows>,
}

impl<B: Buf> SendStream<B> {
    fn new(stream: noq::SendStream, session: Option<Flows>) -> Self {
        // Fails only on a stream that is closed already; writing will say so.
        let _ = stream.set_priority(Class::Small.priority());
        Self {
            stream,
            writing: None,
            class: Class::Small,
            ended: false,
            asks: session
                .as_ref()
                .is_some_and(|session| session.connection.side().is_client()),
            session,
        }
    }

    fn id(&self) -> u64 {
        VarInt::from(self.stream.id()).into_inner()
    }

    /// Waits for this flow's turn; how much it may write.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let id = self.id();
        let Some(session) = &self.session else {
            return Poll::Ready(usize::MAX);
        };
        let turn = ready!(session.scheduler.poll_turn(id, now(), context.waker()));
        if turn.class != self.class {
            self.class = turn.class;
            let _ = self.stream.set_priority(turn.class.priority());
        }
        session.bound_queue(turn.class);
        Poll::Ready(turn.bytes)
    }
}

impl<B: Buf> h3::quic::SendStream<B> for SendStream<B> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        loop {
            if !self.writing.as_ref().is_some_and(Writing::has_remaining) {
                if self.writing.take().is_some()
                    && let Some(session) = &self.session
                {
                    session.scheduler.pause(self.id());
                }
                return Poll::Ready(Ok(()));
            }
            let most = ready!(self.poll_turn(context));
            let (id, session) = (self.id(), self.session.clone());
            let Some(writing) = &mut self.writing else {
                continue;
            };
            let data = writing.chunk();
            let data = &data[..data.len().min(most)];
            let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, data) else {
                if let Some(session) = session {
                    session.scheduler.blocked(id);
                }
                return Poll::Pending;
            };
            let written = written.map_err(write_error)?;
            writing.advance(written);
            if let Some(session) = session {
                session.scheduler.wrote(id, written as u64);
            }
        }
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.writing.is_some() {
            return Err(StreamErrorIncoming::ConnectionErrorIncoming {
                connection_error: ConnectionErrorIncoming::InternalError(
                    "data was given before the stream was ready".into(),
                ),
            });
        }
        let mut frame = data.into();
        self.writing = Some(match std::mem::take(&mut self.asks) {
            true => {
                let headers = frame.copy_to_bytes(frame.remaining());
                Writing::Headers(connect_headers::outgoing(headers))
            }
            false => Writing::Frame(frame),
        });
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
        if let Some(session) = &self.session {
            let id = self.id();
            session.stops.forget(id);
            session.scheduler.end(id);
        }
        if !self.ended {
            let _ = self
                .stream
                .reset(varint(Code::H3_REQUEST_CANCELLED.value()));
        }
    }
}

/// What the peer sends on a stream.
pub struct RecvStream {
    stream: noq::RecvStream,
    /// What has been read before the stream was handed on.
    start: Bytes,
    /// Of a request that is answered here, until its header section is there.
    headers: Option<Box<Incoming>>,
    /// Of a request's stream.
    frames: Option<FrameBound>,
    /// Of a request's stream, if it has turns and windows of ours.
    session: Option<Flows>,
}

impl RecvStream {
    fn uni(stream: noq::RecvStream, start: Bytes) -> Self {
        Self {
            stream,
            start,
            frames: None,
            headers: None,
            session: None,
        }
    }

    fn id(&self) -> u64 {
        VarInt::from(self.stream.id()).into_inner()
    }
}

impl h3::quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if !self.start.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.start))));
        }
        loop {
            let read = ready!(self.poll_chunk(context));
            let Some(headers) = &mut self.headers else {
                return Poll::Ready(read);
            };
            let begun = match &read {
                Ok(Some(data)) => headers.take(data),
                _ => {
                    let rest = headers.rest();
                    self.headers = None;
                    if rest.is_empty() {
                        return Poll::Ready(read);
                    }
                    return Poll::Ready(Ok(Some(rest)));
                }
            };
            if let Begun::With(data) = begun {
                self.headers = None;
                return Poll::Ready(Ok(Some(data)));
            }
        }
    }

    fn stop_sending(&mut self, code: u64) {
        // An error means that the stream has ended before.
        let _ = self.stream.stop(varint(code));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl RecvStream {
    /// What comes next on the stream, counted and looked at.
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let id = self.id();
        // Reading a chunk may be given up and begun anew at any time.
        let read = pin!(self.stream.read_chunk(CHUNK)).poll(context);
        if let Poll::Ready(Ok(Some(data))) = &read
            && let Some(frames) = &mut self.frames
            && frames.look(data).is_err()
        {
            let code = Code::H3_EXCESSIVE_LOAD.value();
            let _ = self.stream.stop(varint(code));
            return Poll::Ready(Err(StreamErrorIncoming::StreamTerminated {
                error_code: code,
            }));
        }
        if let Some(session) = &self.session {
            match &read {
                Poll::Ready(Ok(Some(data))) => {
                    let bytes = data.len() as u64;
                    let window = session.windows.read(id, bytes, now(), &session.connection);
                    session.adjust(window);
                }
                Poll::Ready(_) => {}
                Poll::Pending => session.windows.waits(id),
            }
        }
        read.map_err(read_error)
    }
}

impl Drop for RecvStream {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.windows.end(self.id());
            session.adjust(session.windows.session_window());
        }
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

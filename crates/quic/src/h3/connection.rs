//! A connection: the streams that come, and those that are opened.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use h3::error::Code;
use h3::quic::{ConnectionErrorIncoming, StreamErrorIncoming};
use noq::ConnectionError;

use super::errors::{connection_error, lost, varint};
use super::flows::Flows;
use super::{BidiStream, CHUNK, RecvStream, SendStream};
use crate::clock::now;
use crate::drops::Drops;
use crate::schedule::Scheduler;
use crate::windows::{self, Pool, Windows};

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
    /// `most` bytes each, and whose dropped datagrams are counted in `drops`. Also what all its
    /// requests share.
    pub fn new(
        connection: noq::Connection,
        (pool, most): (&Pool, u64),
        drops: Drops,
    ) -> (Self, Flows) {
        let opens = connection.side().is_client();
        let windows = Windows::new(pool.clone(), most, opens, now());
        let session = Flows::new(connection, windows, drops);
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
                session.accept();
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

//! What this end sends on a stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use noq::VarInt;

use super::errors::{stream_id, varint, write_error};
use super::flows::Flows;
use crate::clock::now;
use crate::connect_headers;
use crate::schedule::Class;

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
    pub(super) fn new(stream: noq::SendStream, session: Option<Flows>) -> Self {
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

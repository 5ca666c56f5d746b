//! What the peer sends on a stream.

use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h3::error::Code;
use h3::quic::{StreamErrorIncoming, StreamId};
use noq::VarInt;

use super::CHUNK;
use super::errors::{read_error, stream_id, varint};
use super::flows::Flows;
use crate::clock::now;
use crate::connect_headers::{Begun, Incoming};
use crate::frames::FrameBound;

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
    /// What comes on a request's stream.
    pub(super) fn request(stream: noq::RecvStream, session: Option<Flows>) -> Self {
        Self {
            stream,
            start: Bytes::new(),
            frames: Some(FrameBound::default()),
            headers: session
                .as_ref()
                .is_some_and(|session| session.connection.side().is_server())
                .then(Box::default),
            session,
        }
    }

    /// What comes on a stream of which `start` has been read.
    pub(super) fn uni(stream: noq::RecvStream, start: Bytes) -> Self {
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
                    let end = headers.end(read);
                    self.headers = None;
                    return Poll::Ready(end);
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

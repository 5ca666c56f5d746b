//! Both directions of a request.

use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h3::quic::{StreamErrorIncoming, StreamId, WriteBuf};
use noq::VarInt;

use super::flows::Flows;
use super::{RecvStream, SendStream};
use crate::clock::now;

/// Both directions of a request.
pub struct BidiStream<B: Buf> {
    send: SendStream<B>,
    recv: RecvStream,
}

impl<B: Buf> BidiStream<B> {
    pub(super) fn new(
        (send, recv): (noq::SendStream, noq::RecvStream),
        session: Option<&Flows>,
    ) -> Self {
        if let Some(session) = session {
            let id = VarInt::from(send.id()).into_inner();
            session.stops.watch(&send);
            session.scheduler.begin(id);
            session.windows.begin(id, now());
            session.adjust(session.windows.session_window());
        }
        Self {
            send: SendStream::new(send, session.cloned()),
            recv: RecvStream::request(recv, session.cloned()),
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

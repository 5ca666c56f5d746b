//! The two halves of a request's stream, at either end of the tunnel.

use std::future::Future;

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use http::HeaderMap;

/// The sending half of a stream, at either end of the tunnel.
pub trait Up: Send {
    /// Sends a piece of the flow.
    fn send(&mut self, data: Bytes) -> impl Future<Output = Result<(), StreamError>> + Send;
    /// Ends this direction with `trailers`.
    fn finish_with(
        &mut self,
        trailers: HeaderMap,
    ) -> impl Future<Output = Result<(), StreamError>> + Send;
    /// Ends this direction.
    fn finish(&mut self) -> impl Future<Output = Result<(), StreamError>> + Send;
    /// Aborts this direction.
    fn abort(&mut self);
}

/// The receiving half of a stream, at either end of the tunnel.
pub trait Down: Send {
    /// The next piece of the flow; `None` at its end.
    fn receive(&mut self) -> impl Future<Output = Result<Option<Bytes>, StreamError>> + Send;
    /// What stands behind the end of the flow.
    fn trailers(&mut self) -> impl Future<Output = Result<Option<HeaderMap>, StreamError>> + Send;
    /// Aborts this direction.
    fn abort(&mut self);
}

macro_rules! halves {
    ($stream:ident) => {
        impl<S: h3::quic::SendStream<Bytes> + Send> Up for h3::$stream::RequestStream<S, Bytes> {
            async fn send(&mut self, data: Bytes) -> Result<(), StreamError> {
                self.send_data(data).await
            }
            async fn finish_with(&mut self, trailers: HeaderMap) -> Result<(), StreamError> {
                self.send_trailers(trailers).await?;
                Self::finish(self).await
            }
            async fn finish(&mut self) -> Result<(), StreamError> {
                Self::finish(self).await
            }
            fn abort(&mut self) {
                self.stop_stream(Code::H3_CONNECT_ERROR);
            }
        }

        impl<S: h3::quic::RecvStream + Send> Down for h3::$stream::RequestStream<S, Bytes>
        where
            S::Buf: Send,
        {
            async fn receive(&mut self) -> Result<Option<Bytes>, StreamError> {
                let data = self.recv_data().await?;
                Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
            }
            async fn trailers(&mut self) -> Result<Option<HeaderMap>, StreamError> {
                self.recv_trailers().await
            }
            fn abort(&mut self) {
                self.stop_sending(Code::H3_CONNECT_ERROR);
            }
        }
    };
}
halves!(client);
halves!(server);

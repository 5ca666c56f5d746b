//! The beginning of a flow that may have come in early data.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use h3::error::StreamError;
use http::HeaderMap;

use crate::flow::client_hello::Beginning;
use crate::flow::stream::Down;

/// A stream's receiving half, of which a ClientHello is all that is given until the handshake has
/// ended: what else came early might have been recorded, and be sent again.
pub struct Guarded<D> {
    down: D,
    /// Until it is known that the handshake has ended.
    early: Option<Box<Early>>,
}

struct Early {
    /// Whether the handshake has ended well, once it has ended.
    confirmed: Pin<Box<dyn Future<Output = bool> + Send>>,
    /// What came and is not given.
    came: BytesMut,
    /// No more is taken.
    enough: bool,
}

impl<D> Guarded<D> {
    /// Guards `down` until `confirmed` says whether the handshake has ended well.
    pub fn new(down: D, confirmed: impl Future<Output = bool> + Send + 'static) -> Self {
        Self {
            down,
            early: Some(Box::new(Early {
                confirmed: Box::pin(confirmed),
                came: BytesMut::new(),
                enough: false,
            })),
        }
    }
}

impl<D: Down> Down for Guarded<D> {
    async fn receive(&mut self) -> Result<Option<Bytes>, StreamError> {
        while let Some(early) = &mut self.early {
            if !early.enough {
                match Beginning::of(&early.came) {
                    Beginning::Hello(length) => {
                        early.enough = true;
                        return Ok(Some(early.came.split_to(length).freeze()));
                    }
                    Beginning::Other => early.enough = true,
                    Beginning::Unfinished => {}
                }
            }
            tokio::select! {
                biased;
                confirmed = &mut early.confirmed => {
                    let came = std::mem::take(&mut early.came).freeze();
                    self.early = None;
                    if !confirmed {
                        // Nothing of it counts; the stream tells of the connection's end.
                        while self.down.receive().await?.is_some() {}
                        return Ok(None);
                    }
                    if !came.is_empty() {
                        return Ok(Some(came));
                    }
                }
                data = self.down.receive(), if !early.enough => match data? {
                    Some(data) => early.came.extend_from_slice(&data),
                    None => early.enough = true,
                }
            }
        }
        self.down.receive().await
    }

    async fn trailers(&mut self) -> Result<Option<HeaderMap>, StreamError> {
        self.down.trailers().await
    }

    fn abort(&mut self) {
        self.down.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::sync::oneshot;

    use super::*;

    /// What has come of a stream that goes on.
    struct Came(VecDeque<&'static [u8]>);

    impl Down for Came {
        async fn receive(&mut self) -> Result<Option<Bytes>, StreamError> {
            match self.0.pop_front() {
                Some(data) => Ok(Some(Bytes::from_static(data))),
                None => std::future::pending().await,
            }
        }

        async fn trailers(&mut self) -> Result<Option<HeaderMap>, StreamError> {
            Ok(None)
        }

        fn abort(&mut self) {}
    }

    /// A ClientHello without extensions: version, random, session, one cipher suite, no compression.
    const HELLO: &[u8] = &[
        22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 19, 1, 1, 0,
    ];

    /// What is given before the handshake has ended, and after it ended well.
    async fn given(came: &[&'static [u8]]) -> [Vec<u8>; 2] {
        let (end, ended) = oneshot::channel();
        let down = Came(came.to_vec().into());
        let mut down = Guarded::new(down, async { ended.await.is_ok() });
        let mut end = Some(end);
        let mut given = [Vec::new(), Vec::new()];
        for part in &mut given {
            // All is there that ever comes.
            while let Some(data) = futures_util::FutureExt::now_or_never(down.receive()) {
                part.extend_from_slice(&data.unwrap().unwrap());
            }
            if let Some(end) = end.take() {
                end.send(()).unwrap();
            }
        }
        given
    }

    #[tokio::test]
    async fn before_the_handshake_has_ended_a_hello_is_all_that_is_given() {
        let none: &[u8] = b"";
        let (start, rest) = HELLO.split_at(20);
        for (came, early, late) in [
            (&[HELLO][..], HELLO, none),
            (&[start, rest], HELLO, none),
            (&[HELLO, b"more"], HELLO, b"more"),
            (&[b"DELETE /"], none, b"DELETE /"),
            (&[start], none, start),
        ] {
            assert_eq!(given(came).await, [early.to_vec(), late.to_vec()]);
        }
    }

    #[tokio::test]
    async fn nothing_is_given_behind_a_handshake_that_failed() {
        let down = Came([&b"DELETE /"[..]].into());
        let mut down = Guarded::new(down, std::future::ready(false));
        assert!(futures_util::FutureExt::now_or_never(down.receive()).is_none());
    }
}

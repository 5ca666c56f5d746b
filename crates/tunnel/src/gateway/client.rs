//! Who a session is with, where the handshake has not said so: a client that shows a bearer token
//! with each request.

use std::time::Duration;

use bentpipe_quic::h3::{Connection, Flows};
use bytes::Bytes;

use crate::flow::stream::Down as _;
use crate::identity::{Fingerprint, PeerRole, Registry};
use crate::session::BidiStream;
use crate::wire::bearer;

/// A client without a key has to show its token by then, and in so many requests.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_WITHOUT_TOKEN: usize = 4;

/// A request's header section has to be complete by then. What is lost of it waits, when it is sent again, behind what
/// others have just begun.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) type RequestStream = h3::server::RequestStream<BidiStream, Bytes>;

/// The requests of one session, as they arrive.
pub struct Arriving {
    pub(super) requests: h3::server::Connection<Connection, Bytes>,
    pub(super) flows: Flows,
    /// The first request that has shown a token.
    pub(super) first: Option<(http::Request<()>, RequestStream)>,
}

impl Arriving {
    pub(super) fn new(requests: h3::server::Connection<Connection, Bytes>, flows: Flows) -> Self {
        Self {
            requests,
            flows,
            first: None,
        }
    }

    /// The hash of the first token that is shown and that `registry` knows. Reads one request
    /// after the other, so that they hold nothing while nobody is known.
    pub async fn token(&mut self, registry: &dyn Registry) -> Option<Fingerprint> {
        tokio::time::timeout(TOKEN_TIMEOUT, self.search(registry))
            .await
            .ok()?
    }

    async fn search(&mut self, registry: &dyn Registry) -> Option<Fingerprint> {
        for _ in 0..MAX_WITHOUT_TOKEN {
            let resolver = self.requests.accept().await.ok()??;
            let resolved = tokio::time::timeout(HEADER_TIMEOUT, resolver.resolve_request());
            let Ok(Ok((request, stream))) = Box::pin(resolved).await else {
                continue;
            };
            match bearer::token(&request) {
                Some(hash) if registry.role(&hash) == PeerRole::Terminal => {
                    self.first = Some((request, stream));
                    return Some(hash);
                }
                _ => demand_token(stream).await,
            }
        }
        None
    }
}

/// Answers that a token is needed. An error means that nobody is there to hear it.
pub(super) async fn demand_token(stream: RequestStream) {
    answer_and_abort(stream, bearer::required()).await;
}

/// Answers a request and reads no more of it. An error means that nobody is there to hear it.
pub(super) async fn answer_and_abort(stream: RequestStream, response: http::Response<()>) {
    let (mut up, mut down) = stream.split();
    let _ = up.send_response(response).await;
    let _ = up.finish().await;
    down.abort();
}

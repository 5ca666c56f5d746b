//! Flows of UDP datagrams (RFC 9298) at the gateway.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_quic::h3::{RecvStream, SendStream};
use bytes::Bytes;
use tokio::sync::SemaphorePermit;

use super::client::RequestStream;
use super::requests::{Peer, Requests, refuse};
use super::usage::Place;
use crate::flow::FlowError;
use crate::flow::stream::{Down as _, Up as _};
use crate::flow::udp::{self, Activity, IdleLimits, Way};
use crate::sockets::Dial;
use crate::target::Target;
use crate::wire::connect_udp;
use crate::wire::contexts::{self, Agreed, Contexts};
use crate::wire::proxy_status::{ErrorKind, Refusal};

/// Longer than the terminal's own limits, so that it is the terminal that ends a flow, and
/// never less than the two minutes of RFC 9298, section 3.1.
const IDLE: IdleLimits = IdleLimits {
    answered: Duration::from_secs(600),
    unanswered: Duration::from_secs(300),
};

type UpStream = h3::server::RequestStream<SendStream<Bytes>, Bytes>;
type DownStream = h3::server::RequestStream<RecvStream, Bytes>;

impl<D: Dial> Requests<D> {
    /// Carries datagrams between `stream`, a request for the host with number `host`, and `target`.
    pub(super) async fn carry_udp(
        self: Arc<Self>,
        (target, agreed): (Target, Option<Agreed>),
        stream: RequestStream,
        peer: Arc<Peer>,
        host: u32,
    ) {
        let contexts = Contexts::of_gateway(agreed);
        // What arrives while the socket is opened is kept.
        let datagrams =
            peer.flows
                .datagrams
                .open(stream.send_id(), host.into(), contexts::mark_congested);
        let stopped = pin!(peer.flows.stops.stopped(stream.send_id()));
        let Some(mut opened) = Box::pin(self.open_udp(&target, &contexts, stream, &peer)).await
        else {
            return;
        };
        let _open = self.tally.open_udp();
        let activity = Activity::default();
        let (up, down) = &mut opened.halves;
        let result = udp::carry(
            &opened.socket,
            Way {
                datagrams: &datagrams,
                contexts: &contexts,
                port: target.port,
            },
            (&mut *up, &mut *down),
            async |_: &mut _| Ok(()),
            stopped,
            IDLE,
            &activity,
        )
        .await;
        // An error of these means that nobody is there to hear it.
        match &result {
            Ok(()) => drop(Box::pin(up.finish()).await),
            Err(FlowError::Local(error)) => {
                let refusal = Refusal {
                    kind: ErrorKind::of_dial(error),
                    detail: format!("{target}: {error}"),
                };
                drop(Box::pin(up.finish_with(refusal.trailers())).await);
            }
            Err(_) => up.abort(),
        }
        down.abort();
        let carried = activity.carried();
        opened.usage.add(carried.up + carried.down);
        self.tally.over(carried, &result);
        match result {
            Ok(()) => tracing::debug!(%target, "UDP flow ended"),
            Err(error) => tracing::debug!(%target, "UDP flow ended: {error}"),
        }
    }

    /// Opens a socket for a flow and says so, or why not.
    async fn open_udp<'a>(
        &self,
        target: &Target,
        contexts: &Contexts,
        mut stream: RequestStream,
        peer: &'a Peer,
    ) -> Option<Opened<'a, D::Datagrams>> {
        let opened = match peer.udp.try_acquire() {
            Ok(place) => {
                let dialled = async {
                    let usage = self.usages.enter(peer.account, &self.policies)?;
                    let dialled = self
                        .dialler
                        .connect_udp(target, &peer.resolving, usage.policy());
                    let socket = dialled.await?;
                    Ok::<_, Refusal>((place, usage, socket))
                };
                dialled.await
            }
            Err(_) => Err(Refusal {
                kind: ErrorKind::ConnectionLimitReached,
                detail: "as many UDP flows as one session may have are open".into(),
            }),
        };
        match opened {
            Ok((place, usage, socket)) => {
                // An error means that nobody is there to hear it.
                stream
                    .send_response(connect_udp::accepted_with(contexts))
                    .await
                    .ok()?;
                Some(Opened {
                    _place: place,
                    usage,
                    socket,
                    halves: stream.split(),
                })
            }
            Err(refusal) => {
                tracing::debug!(%target, "UDP flow refused: {refusal}");
                self.tally.failed(refusal.kind.name());
                refuse(stream, &refusal).await;
                None
            }
        }
    }
}

/// A flow that is open.
struct Opened<'a, S> {
    _place: SemaphorePermit<'a>,
    usage: Place,
    socket: S,
    halves: (UpStream, DownStream),
}

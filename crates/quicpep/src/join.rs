//! Two connections joined: what comes in on one goes out on the other, and when one ends so
//! does the other.
//!
//! Each side's acknowledgements come from the proxy, so whoever has had all its data
//! acknowledged may close although the other end has not seen it yet. Before the end of a
//! connection is passed on, what it had finished is therefore delivered, for as long as
//! [`DRAIN`].

use std::pin::pin;
use std::time::Duration;

use noq::{Connection, Dir, SendDatagramError};

use crate::memory::Memory;
use crate::transport::DATAGRAMS;
use crate::{close, streams};

/// How long the streams that a closed connection had finished may still be delivered: half a
/// minute, several seconds of a satellite link's full windows.
pub const DRAIN: Duration = Duration::from_secs(30);

/// Carries everything between `client` and `next` until both are closed. What `next`'s peer
/// sends on unidirectional streams is the server's only after `answered`.
pub async fn join(
    client: &Connection,
    next: &Connection,
    memory: &Memory,
    answered: impl Future<Output = ()>,
) {
    tokio::join!(
        forward(client, next, memory, std::future::ready(())),
        forward(next, client, memory, answered)
    );
}

/// Carries what `from`'s peer sends to `to`, and then its end.
async fn forward(
    from: &Connection,
    to: &Connection,
    memory: &Memory,
    before_uni: impl Future<Output = ()>,
) {
    let mut work = pin!(async {
        tokio::join!(
            streams::carry(from, to, Dir::Bi),
            async {
                before_uni.await;
                streams::carry(from, to, Dir::Uni).await
            },
            datagrams(from, to, memory),
        )
    });
    let too_long = async {
        from.closed().await;
        tokio::time::sleep(DRAIN).await;
    };
    let remains = tokio::select! {
        remains = &mut work => Some(remains),
        () = too_long => None,
    };
    if let Some(reason) = from.close_reason() {
        close::pass_on(&reason, to);
    }
    // Not before: a stream that is dropped looks finished to its peer.
    drop(remains);
}

/// Carries DATAGRAM frames (RFC 9221). One for which there is no room, or that is longer than
/// the next hop takes, is dropped, as on any path.
async fn datagrams(from: &Connection, to: &Connection, memory: &Memory) {
    while let Ok(datagram) = from.read_datagram().await {
        let waiting = DATAGRAMS.saturating_sub(to.datagram_send_buffer_space());
        if waiting + datagram.len() > memory.datagrams() {
            tracing::trace!("datagram dropped: no room");
            continue;
        }
        match to.send_datagram(datagram) {
            Ok(()) => {}
            Err(SendDatagramError::ConnectionLost(_)) => return,
            Err(why) => tracing::trace!("datagram dropped: {why}"),
        }
    }
}

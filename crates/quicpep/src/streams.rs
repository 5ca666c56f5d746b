//! Streams of two connections, mapped one to one.
//!
//! The library hands out the streams of a peer in the order of their IDs, also those that the
//! peer has skipped so far (RFC 9000, section 2.1: a stream opens all of its kind with lower
//! IDs), and opens streams in that order too. So the n-th stream of a kind that is accepted is
//! the n-th of that kind that is opened on the other side: the same ID, for all four kinds,
//! because a proxy is client where its client is.
//!
//! A stream is opened on the other side when that side's limit allows it (MAX_STREAMS);
//! those of its kind behind it wait, as they would without a proxy. Until it is over it
//! counts against the limit that the proxy itself has granted: no limit is exceeded, and
//! what waits is bounded.

use noq::{Connection, Dir};
use tokio::task::JoinSet;

use crate::relay::{Cut, relay};

/// What the two directions of a stream left behind, to be kept until both connections are
/// closed.
pub(crate) type Remains = [Option<Cut>; 2];

/// Carries the streams of the kind `dir` that `from`'s peer opens to `to`, until `from` is
/// closed and all of them have ended. Returns what must be kept until `to` is closed too.
pub(crate) async fn carry(from: &Connection, to: &Connection, dir: Dir) -> Vec<Remains> {
    let mut open = JoinSet::new();
    let mut remains = Vec::new();
    while next(from, to, dir, &mut open, &mut remains).await {
        // At most as many have ended since the last one as the limit of streams allows.
        while let Some(ended) = open.try_join_next() {
            keep(&mut remains, ended);
        }
    }
    while let Some(ended) = open.join_next().await {
        keep(&mut remains, ended);
    }
    remains
}

fn keep(remains: &mut Vec<Remains>, ended: Result<Remains, tokio::task::JoinError>) {
    // A relay neither panics nor is it aborted while its set is there.
    if let Ok(ended) = ended
        && ended.iter().any(Option::is_some)
    {
        remains.push(ended);
    }
}

/// Accepts the next stream and opens it on the other side; false when there will be none.
async fn next(
    from: &Connection,
    to: &Connection,
    dir: Dir,
    open: &mut JoinSet<Remains>,
    remains: &mut Vec<Remains>,
) -> bool {
    match dir {
        Dir::Bi => {
            let Ok((back, there)) = from.accept_bi().await else {
                return false;
            };
            let Ok((onwards, answer)) = to.open_bi().await else {
                remains.push([Some(Cut::unopened(there, Some(back))), None]);
                return false;
            };
            open.spawn(async move {
                let (first, second) = tokio::join!(relay(there, onwards), relay(answer, back));
                [first, second]
            });
        }
        Dir::Uni => {
            let Ok(there) = from.accept_uni().await else {
                return false;
            };
            let Ok(onwards) = to.open_uni().await else {
                remains.push([Some(Cut::unopened(there, None)), None]);
                return false;
            };
            open.spawn(async move { [relay(there, onwards).await, None] });
        }
    }
    true
}

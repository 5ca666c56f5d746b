//! The end of a measurement in which nothing moves any more.

use std::sync::Arc;

use bentpipe_units::Span;

use crate::clock::Clock;
use crate::error::PerfError;
use crate::meter::{self, Meter};
use crate::transport::Connection;

/// How often it is looked within the time that is waited: what has stalled is noticed a tenth of it late at most.
const LOOKS: u64 = 10;

/// Waits until the streams of `connections` have carried nothing, either way, for as long as `after`.
pub(crate) async fn stalled<C: Connection>(
    after: Span,
    clock: &Clock,
    connections: &[(Arc<Meter>, C)],
) -> PerfError {
    let look_every = Span::from_nanos((after.as_nanos() / LOOKS).max(1));
    let (mut moved, mut since) = (0, clock.now());
    loop {
        clock.sleep_until(clock.now() + look_every).await;
        let now = clock.now();
        let all = (connections.iter())
            .map(|(meter, connection)| meter.moved().wrapping_add(connection.moved()))
            .fold(0, u64::wrapping_add);
        if all != moved {
            (moved, since) = (all, now);
        } else if now >= since + after {
            let (received, sent) = meter::totals(connections);
            return PerfError::Stalled {
                after,
                received,
                sent,
            };
        }
    }
}

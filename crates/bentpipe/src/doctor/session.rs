//! Sessions that only look at the path.

use std::time::Duration;

use bentpipe_tunnel::terminal::Session;

/// How long the path MTU is looked for.
const MTU_ROUND_TRIPS: u32 = 20;

/// What the path is found to carry, UDP payload bytes, once that has stopped growing.
pub async fn path_mtu(session: &Session) -> u16 {
    let mtu = || {
        let path = session.connection().path_stats(noq::PathId::ZERO);
        path.map_or(0, |path| path.current_mtu)
    };
    let (mut largest, mut since) = (mtu(), 0);
    for _ in 0..MTU_ROUND_TRIPS {
        tokio::time::sleep(session.rtt().max(Duration::from_millis(20))).await;
        match mtu() {
            now if now > largest => (largest, since) = (now, 0),
            _ => since += 1,
        }
        if since > 6 {
            break;
        }
    }
    largest
}

/// Waits, not for long, until the other end has heard that sessions of `endpoint` are closed.
pub async fn closed(endpoint: &noq::Endpoint) {
    crate::daemon::patiently(endpoint.wait_idle()).await;
}

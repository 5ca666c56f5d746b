//! NAT rebinding while something is received and nothing sent: the terminal speaks when a download falls silent.
//!
//! A NAT that has given the terminal another address drops what comes to the old one, and the gateway hears of the
//! new one only by what the terminal sends. Most often that is an acknowledgement that was due; where none was, QUIC's
//! own probe comes a round trip later. From what is heard first on, two round trips pass: the QUIC library (1.3.0)
//! sends no data before the new address has been checked (RFC 9000, section 8.2).

use std::convert::Infallible;
use std::time::Duration;

use super::session::Session;

/// How often it is looked whether something came: a silence is found one to two of these after it began.
const LOOKS_PER_ROUND_TRIP: u32 = 16;
/// No more often than acknowledgements are delayed; and while nothing comes.
const LOOK: (Duration, Duration) = (Duration::from_millis(25), Duration::from_millis(500));
/// A download has come without a pause for so many round trips: in slow start there are pauses in each, and most of what ends
/// soon has ended.
const DOWNLOAD: u32 = 8;

/// Asks the gateway for a sign, once each time, when a download in `session` falls silent and flows are open.
pub(super) async fn watch(session: &Session) -> Infallible {
    let mut heard = session.packets_heard();
    let mut looks_with_packets = 0;
    loop {
        let pause = match looks_with_packets {
            0 => LOOK.1,
            _ => (session.rtt() / LOOKS_PER_ROUND_TRIP).clamp(LOOK.0, LOOK.1),
        };
        tokio::time::sleep(pause).await;
        let before = std::mem::replace(&mut heard, session.packets_heard());
        if heard != before {
            looks_with_packets += 1;
            continue;
        }
        if looks_with_packets >= DOWNLOAD * LOOKS_PER_ROUND_TRIP
            && session.has_flows()
            && let Some(path) = session.connection().path(noq::PathId::ZERO)
        {
            // The error is that of a path which is closed.
            let _ = path.ping();
        }
        looks_with_packets = 0;
    }
}

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
/// Packets within two looks that are a download: a question is small beside them.
const DOWNLOAD: u64 = 8;

/// Asks the gateway for a sign once each time that a download in `session` falls silent.
pub(super) async fn watch(session: &Session) -> Infallible {
    let mut heard = session.packets_heard();
    let mut before = [0; 2];
    loop {
        let pause = match before[1] {
            0 => LOOK.1,
            _ => (session.rtt() / LOOKS_PER_ROUND_TRIP).clamp(LOOK.0, LOOK.1),
        };
        tokio::time::sleep(pause).await;
        let now_heard = session.packets_heard();
        let came = now_heard - heard;
        heard = now_heard;
        if fell_silent(before, came)
            && let Some(path) = session.connection().path(noq::PathId::ZERO)
        {
            // The error is that of a path which is closed.
            let _ = path.ping();
        }
        before = [before[1], came];
    }
}

/// Whether what came in three looks, one after the other, is a download that has just stopped.
fn fell_silent(before: [u64; 2], now: u64) -> bool {
    now == 0 && before[1] > 0 && before.iter().sum::<u64>() >= DOWNLOAD
}

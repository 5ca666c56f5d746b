//! Liveness of a session: a gateway that has forgotten it is told from a link that is out.
//!
//! A gateway that has restarted answers what it does not know with a stateless reset (RFC
//! 9000, section 10.3), which ends the session at once. That may fail: noq-proto 1.3.0
//! does not recognise the reset after a change of the machine's addresses or routes
//! (`Connection::handle_network_change` tells the endpoint the token of the new connection
//! ID, and leaves the one that the connection compares with), and a reset can be lost.
//!
//! So a session that waits in vain for an answer asks whether the gateway can be reached at
//! all ([`super::probe`]). If not, the link is out, and the session goes on when it is
//! back. If so, the session speaks again, at once; if that is not heard either, the
//! gateway has forgotten it.

use std::net::SocketAddr;
use std::time::Duration;

use bentpipe_quic::clock::now;
use tokio::time::Instant;

use super::probe;
use super::session::Session;

/// How often it is looked whether something was heard; more often when nothing was.
const LOOK: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(200));
/// What an answer may take beside two round trips: the other end's processor, and ours.
const SLACK: Duration = Duration::from_millis(300);
/// Where answers come soon, a session speaks again and again for so long before it is given up: on a link that has just
/// come back much is lost.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// Returns when the gateway has forgotten `session`, though one of `addresses` answers.
///
/// At a round trip of 600 ms that is found within ten seconds after the gateway was last
/// heard: five until an idle session speaks, five round trips, and the time to look.
pub(super) async fn forgotten(
    session: &Session,
    endpoint: &noq::Endpoint,
    addresses: &[SocketAddr],
) {
    let mut heard = session.frames_heard();
    let mut asked = session.frames_asking();
    // When something was first sent that has to be answered.
    let mut waiting_since: Option<Instant> = None;
    let mut pause = LOOK.0;
    loop {
        tokio::time::sleep(pause).await;
        let answer = session.rtt() * 2 + SLACK;
        let (now_heard, now_asked) = (session.frames_heard(), session.frames_asking());
        if now_heard != heard {
            (heard, asked, waiting_since) = (now_heard, now_asked, None);
            pause = LOOK.0;
            session.set_silent(false);
            continue;
        }
        if now_asked != asked {
            asked = now_asked;
            waiting_since.get_or_insert_with(now);
        }
        let Some(since) = waiting_since else {
            continue;
        };
        pause = LOOK.1;
        if since.elapsed() < answer {
            continue;
        }
        if session.set_silent(true) {
            // The gateway may hear this terminal, and be allowed to say no more.
            session.speak_up();
        }
        if !reachable(endpoint, addresses, answer).await {
            continue;
        }
        let asked = now();
        while session.frames_heard() == heard {
            if asked.elapsed() >= answer.max(LEAST_PATIENCE) {
                return;
            }
            // Takes back-off away, so that the session speaks now.
            endpoint.handle_network_change(None);
            session.speak_up();
            tokio::time::sleep(answer).await;
        }
    }
}

async fn reachable(endpoint: &noq::Endpoint, addresses: &[SocketAddr], patience: Duration) -> bool {
    let ask = |address: &SocketAddr| probe::round_trip(endpoint, *address, patience);
    let answers = futures_util::future::join_all(addresses.iter().map(ask)).await;
    answers.iter().any(Option::is_some)
}

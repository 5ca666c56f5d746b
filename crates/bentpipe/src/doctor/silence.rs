//! Silent connections: whether NATs and firewalls on the way still know them afterwards, those of
//! UDP with a gateway and those of TCP with a web server.

use std::time::Duration;

use bentpipe_os::machine::Machine;
use bentpipe_tunnel::terminal::Connector;
use bentpipe_tunnel::wire::notices::Ask;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::download::Download;
use super::session::{closed, path_mtu};
use crate::failure::Failure;
use crate::terminal;

/// A handshake is answered by this at the latest, or not at all.
const TCP_PATIENCE: Duration = Duration::from_secs(5);
/// An answer that nothing brought back comes late by this, beside a round trip.
const LATE: Duration = Duration::from_secs(2);

/// Silences, and whether an answer came after each.
#[derive(Debug, Default)]
pub struct Tried(Vec<(Duration, bool)>);

impl Tried {
    /// Tries three silences at once, up to `longest`. `None`: that could not be tried.
    async fn with(longest: Duration, answered: impl AsyncFn(Duration) -> Option<bool>) -> Self {
        let after = async |silence| Some((silence, answered(silence).await?));
        let tried = tokio::join!(after(longest / 4), after(longest / 2), after(longest));
        Self([tried.0, tried.1, tried.2].into_iter().flatten().collect())
    }

    /// What was found, for people, and the shortest silence after which no answer came.
    pub fn found(&self) -> Option<(String, Option<Duration>)> {
        let of = |held: bool| self.0.iter().filter(move |(_, h)| *h == held);
        let held = of(true).map(|(after, _)| *after).max();
        let lost = of(false).map(|(after, _)| *after).min();
        let found = match (held, lost) {
            (None, None) => return None,
            (Some(held), None) => format!(
                "an answer still came after {}: mappings of NATs hold for so long at least",
                seconds(held)
            ),
            (None, Some(lost)) => format!("no answer came after {}", seconds(lost)),
            (Some(held), Some(lost)) => format!(
                "an answer still came after {}, none after {}: a NAT or firewall forgets in between",
                seconds(held),
                seconds(lost)
            ),
        };
        Some((found, lost))
    }
}

/// For people.
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Asks a gateway to answer after a silence.
pub async fn udp(
    connector: &impl Fn() -> Result<Connector<Machine>, Failure>,
    mark: Option<u32>,
    longest: Duration,
) -> Tried {
    Tried::with(longest, async |silence| {
        let mut connector = connector().ok()?;
        // A mapping is of a port.
        connector.endpoint = terminal::endpoint(&connector.identity.borrow(), mark).ok()?;
        connector.transport.keep_alive = longest * 10;
        let session = connector.open().await.ok()?;
        session.accepted().await.ok()?;
        // Until both ends have ceased to look for a larger path MTU.
        path_mtu(&session).await;
        let ask = Ask {
            after: Some(silence),
            ..Ask::default()
        };
        let patience = silence + session.rtt() + LATE;
        let answer = timeout(patience, session.notices(&ask)).await;
        session.close();
        closed(&connector.endpoint).await;
        match answer {
            Ok(Ok(_)) => Some(true),
            // Not one of ours, or it was ended.
            Ok(Err(_)) => None,
            Err(_) => Some(false),
        }
    })
    .await
}

/// Asks a web server, outside the tunnel, after a silence.
pub async fn tcp(url: &Download, longest: Duration) -> Tried {
    Tried::with(longest, async |silence| {
        let began = Instant::now();
        let connecting = TcpStream::connect((url.host.as_str(), url.port));
        let mut stream = timeout(TCP_PATIENCE, connecting).await.ok()?.ok()?;
        let handshake = began.elapsed();
        let mut byte = [0; 1];
        match timeout(silence, stream.read(&mut byte)).await {
            Err(_) => {}
            // The server has ended it, as it may.
            Ok(Ok(_)) => return None,
            Ok(Err(_)) => return Some(false),
        }
        let Download { host, path, .. } = url;
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        if stream.write_all(request.as_bytes()).await.is_err() {
            return Some(false);
        }
        match timeout(handshake * 2 + LATE, stream.read(&mut byte)).await {
            Ok(Ok(0)) => None,
            answer => Some(matches!(answer, Ok(Ok(_)))),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tried: &[(u64, bool)]) -> Option<(String, Option<Duration>)> {
        let tried = tried
            .iter()
            .map(|(s, held)| (Duration::from_secs(*s), *held));
        Tried(tried.collect()).found()
    }

    #[test]
    fn the_longest_that_held_and_the_shortest_that_did_not_are_told() {
        assert_eq!(found(&[]), None);
        let (told, lost) = found(&[(10, true), (20, true), (40, false)]).unwrap();
        assert!(told.contains("after 20.0 s, none after 40.0 s"), "{told}");
        assert_eq!(lost, Some(Duration::from_secs(40)));
        assert_eq!(found(&[(10, true)]).unwrap().1, None);
    }
}

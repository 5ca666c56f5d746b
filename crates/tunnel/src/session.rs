//! A session as both ends see it: one QUIC connection with HTTP/3 on it.

use std::net::SocketAddr;

use bytes::Bytes;
use h3::error::Code;

/// The application error code of a session that gave way to a newer one with the same key
/// ("bp" in ASCII; none of the codes of RFC 9114, section 8.1).
pub const REPLACED: u32 = 0x6270;

/// Both directions of a request's stream.
pub type BidiStream = bentpipe_quic::h3::BidiStream<Bytes>;

/// Closes a session with an HTTP/3 error code (RFC 9114, section 8.1).
pub fn close(connection: &noq::Connection, code: Code, reason: &str) {
    let code = noq::VarInt::from_u64(code.value()).unwrap_or_default();
    connection.close(code, reason.as_bytes());
}

/// Where the other end is, by the session's first path.
pub fn remote_address(connection: &noq::Connection) -> Option<SocketAddr> {
    let address = connection.path(noq::PathId::ZERO)?.remote_address().ok()?;
    Some(canonical(address))
}

/// An address as people write it: the gateway's socket has IPv4 as IPv6.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// How a session's path stands, for people who look into the log.
pub fn path_summary(connection: &noq::Connection) -> String {
    let Some(path) = connection.path_stats(noq::PathId::ZERO) else {
        return "no path".into();
    };
    format!(
        "rtt {:.0} ms, window {} kB, mtu {}, sent {} and lost {} packets in {} congestion events",
        path.rtt.as_secs_f64() * 1e3,
        path.cwnd / 1000,
        path.current_mtu,
        path.udp_tx.datagrams,
        path.lost_packets,
        path.congestion_events,
    )
}

/// The reason why a connection has ended, for people at both ends.
pub fn describe(error: &noq::ConnectionError) -> String {
    // The TLS library's name for an error of ours.
    const OURS: &str = "unexpected error: ";
    match error {
        noq::ConnectionError::ConnectionClosed(close) if !close.reason.is_empty() => {
            let reason = String::from_utf8_lossy(&close.reason);
            format!(
                "refused by the other end: {}",
                reason.trim_start_matches(OURS)
            )
        }
        noq::ConnectionError::ApplicationClosed(close) if !close.reason.is_empty() => {
            format!(
                "closed by the other end: {}",
                String::from_utf8_lossy(&close.reason)
            )
        }
        noq::ConnectionError::TransportError(error) if !error.reason.is_empty() => {
            error.reason.trim_start_matches(OURS).to_owned()
        }
        noq::ConnectionError::Reset => "the other end has restarted".into(),
        noq::ConnectionError::TimedOut => "nothing was heard for too long".into(),
        error => error.to_string(),
    }
}

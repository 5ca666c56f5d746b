//! The question whether a gateway can be reached, and how far away it is, without a session.
//!
//! A packet of a QUIC version that gateways do not speak is answered by version
//! negotiation (RFC 9000, section 6.1): one small packet, for which they keep no state. The
//! answer proves nothing of who gives it, so that it may end no session by itself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bentpipe_quic::clock::now;
use noq::ConnectionError;

use crate::identity::{Identity, tls};

/// A version that our gateways do not speak, and the library's clients know: draft 29.
const VERSION: u32 = 0xff00_001d;

/// How long the answer of `address` takes; `None` if none comes within `patience`.
pub async fn round_trip(
    endpoint: &noq::Endpoint,
    address: SocketAddr,
    patience: Duration,
) -> Option<Duration> {
    // Should it speak that version after all, it hears the key of nobody.
    let nobody = Identity::from_seed(&[0; 32]);
    let tls = tls::client(&nobody, vec![nobody.fingerprint()]);
    let mut config = noq::ClientConfig::new(Arc::new(tls));
    config.version(VERSION);
    let mut transport = noq::TransportConfig::default();
    transport.max_idle_timeout(patience.try_into().ok());
    config.transport_config(Arc::new(transport));
    let began = now();
    let connecting = endpoint.connect_with(config, address, "bentpipe.invalid");
    let connecting = connecting.ok()?;
    // Not given up when patience ends: it would say so in packets of that version, and each is answered, and that
    // answer again.
    let asked = tokio::spawn(async move { connecting.await.map(drop) });
    match tokio::time::timeout(patience, asked).await.ok()?.ok()? {
        Err(ConnectionError::LocallyClosed | ConnectionError::TimedOut) => None,
        _ => Some(began.elapsed()),
    }
}

//! QUIC endpoints on the machine's sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_quic::layer::Layer as _;
use bentpipe_quic::versions::Spoken;
use bentpipe_tunnel::gateway::mapped;
use bentpipe_tunnel::identity::Identity;
use noq::{Endpoint, EndpointConfig};
use noq_proto::HashedConnectionIdGenerator;

use crate::quic_runtime::SystemRuntime;
use crate::quic_socket::{self, Received};

/// The versions that gateways speak: QUIC version 1 (RFC 9000, section 15).
const SPOKEN: &[u32] = &[1];

/// Of an endpoint whose reset key and connection IDs follow from secrets that stay the same, each for a purpose: one
/// that has restarted tells its peers so (stateless reset, RFC 9000, section 10.3).
pub fn known_after_a_restart(secret: impl Fn(&str) -> [u8; 32]) -> EndpointConfig {
    let reset = secret("bentpipe stateless reset");
    let mut config = EndpointConfig::new(Arc::new(ring::hmac::Key::new(
        ring::hmac::HMAC_SHA256,
        &reset,
    )));
    let secret = secret("bentpipe connection IDs");
    let key = u64::from_le_bytes(secret[..8].try_into().expect("eight of 32 bytes"));
    config.cid_generator(Arc::new(move || {
        Box::new(HashedConnectionIdGenerator::from_key(key))
    }));
    config
}

/// An endpoint at `address`. With `server` it also accepts sessions.
///
/// Its reset key and connection IDs follow from `identity`, so that an end which has
/// restarted tells its peer so at once (stateless reset, RFC 9000, section 10.3)
/// instead of leaving it to wait for a timeout.
///
/// `mark` is its socket's, for routing rules.
pub fn endpoint(
    address: SocketAddr,
    identity: &Identity,
    server: Option<noq::ServerConfig>,
    mark: Option<u32>,
) -> io::Result<(Endpoint, Received)> {
    let mut config = known_after_a_restart(|purpose| identity.derived_secret(purpose));
    if server.is_some() {
        // Others are answered by version negotiation, which terminals ask for on purpose.
        config.supported_versions(SPOKEN.to_vec());
    }
    let (socket, received) = quic_socket::bind_marked(address, server.is_some(), mark)?;
    let socket = match server {
        Some(_) => mapped(Spoken(SPOKEN).over(socket)),
        None => socket,
    };
    let endpoint =
        Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(SystemRuntime))?;
    Ok((endpoint, received))
}

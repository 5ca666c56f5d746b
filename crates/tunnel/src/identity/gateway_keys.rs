//! The keys that a terminal accepts of a gateway, and the token that it shows there.

use std::fmt;
use std::io;

use bentpipe_quic::fingerprint::Fingerprint;

/// What a terminal knows of a gateway's keys: its present one, and the one that it has announced
/// to have next.
pub trait GatewayKeys: fmt::Debug + Send + Sync + 'static {
    /// Those that are accepted, the present one first.
    fn accepted(&self) -> Vec<Fingerprint>;

    /// The bearer token that the gateway wants with each request: one of somebody else's making,
    /// which does not go by this terminal's key.
    fn token(&self) -> Option<String> {
        None
    }

    /// The gateway has shown `key`, one of those: it is the present one.
    fn shown(&self, key: &Fingerprint) {
        let _ = key;
    }

    /// The gateway has announced that its next key is `next`: that one is accepted too from now
    /// on. The error says why it cannot be, and the gateway is not told that it is known.
    fn announced(&self, next: Fingerprint) -> io::Result<()> {
        let _ = next;
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// One key, for ever.
impl GatewayKeys for Fingerprint {
    fn accepted(&self) -> Vec<Fingerprint> {
        vec![*self]
    }
}

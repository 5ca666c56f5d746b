//! Identities of the two ends, and how each makes sure of the other.
//!
//! An identity is an Ed25519 key (RFC 8032) in a self-signed certificate. Names,
//! dates and authorities in it mean nothing: each end knows the other's key from
//! enrolment and accepts no other, also when a clock is years wrong. Both ends
//! authenticate in the TLS 1.3 handshake; there is no way to leave it out.
//!
//! - `key`: an end's own private key
//! - `registry`: the keys that a gateway accepts
//! - `gateway_keys`: the keys that a terminal accepts of a gateway, and its token there
//! - [`tls`]: the handshake
//! - [`enrolment_line`]: the one line that pairs a terminal with a gateway

mod key;
mod registry;
mod gateway_keys;
pub mod tls;
pub mod enrolment_line;

pub use bentpipe_quic::fingerprint::{Fingerprint, FingerprintError};
pub use gateway_keys::GatewayKeys;
pub use key::{CertificateError, Identity, IdentityError};
pub use registry::{PeerRole, Registry};

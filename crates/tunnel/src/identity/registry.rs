//! The registry of keys that a gateway accepts.

use std::fmt;

use bentpipe_quic::fingerprint::Fingerprint;

/// What a peer with a certain key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRole {
    /// An enrolled terminal: may open sessions.
    Terminal,
    /// A one-time enrolment key: may enrol a terminal, nothing else.
    Enrolment,
    /// Nothing: the key is not enrolled.
    Unknown,
}

/// Whom the gateway knows.
pub trait Registry: fmt::Debug + Send + Sync + 'static {
    /// What the peer with `key` may do.
    fn role(&self, key: &Fingerprint) -> PeerRole;

    /// Enrols `terminal` on the strength of `enrolment`, which is thereby used up:
    /// afterwards it only lets the same terminal ask again. The error says why not.
    fn enrol(&self, enrolment: &Fingerprint, terminal: Fingerprint) -> Result<(), String>;
}

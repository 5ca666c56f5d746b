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

    /// Whether there are clients without a key, which show a bearer token with each request. The
    /// hash of a token that is good has the role of a terminal.
    fn has_tokens(&self) -> bool {
        false
    }

    /// Enrols `terminal` on the strength of `enrolment`, which is thereby used up:
    /// afterwards it only lets the same terminal ask again. The error says why not.
    fn enrol(&self, enrolment: &Fingerprint, terminal: Fingerprint) -> Result<(), String>;

    /// Knows the terminal with the key `old` by `new` from now on. `old` is good as well, until
    /// it is [retired](Self::retire). The error says why not.
    fn renew(&self, old: &Fingerprint, new: Fingerprint) -> Result<(), String> {
        let _ = (old, new);
        Err("this gateway does not change keys".into())
    }

    /// The old and the new key of the terminal with `key`, while both are good.
    fn renewal(&self, key: &Fingerprint) -> Option<(Fingerprint, Fingerprint)> {
        let _ = key;
        None
    }

    /// A terminal's `old` key is good no longer.
    fn retire(&self, old: &Fingerprint) {
        let _ = old;
    }

    /// The key under which what the terminal with `key` uses is counted: its first.
    fn account(&self, key: &Fingerprint) -> Fingerprint {
        *key
    }

    /// The terminal with `key` has written down that the gateway's next key is `next`.
    fn knows(&self, key: &Fingerprint, next: Fingerprint) {
        let _ = (key, next);
    }
}

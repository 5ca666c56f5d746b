//! The fingerprint of a public key, by which the two ends know each other.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::pki_types::CertificateDer;
use schemars::JsonSchema;

/// SHA-256 of a certificate's public key (its SubjectPublicKeyInfo), by which the
/// ends know each other. Written "sha256:" and 43 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct Fingerprint([u8; 32]);

/// Why a text is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a key fingerprint; it starts with \"sha256:\" and has 43 characters after that"
)]
pub struct FingerprintError(String);

impl Fingerprint {
    /// The fingerprint of `certificate`'s key.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let parsed = rustls::server::ParsedCertificate::try_from(certificate)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &parsed.subject_public_key_info());
        Ok(Self(
            digest.as_ref().try_into().expect("SHA-256 gives 32 bytes"),
        ))
    }

    /// The hash of a bearer token, which names it without telling it. It is never that of a key.
    pub fn of_token(token: &[u8]) -> Self {
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        hash.update(b"bentpipe bearer token\0");
        hash.update(token);
        let digest = hash.finish();
        Self(digest.as_ref().try_into().expect("SHA-256 gives 32 bytes"))
    }

    /// The hash itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The fingerprint of the key that the other end of `connection` has proved to
    /// have; `None` before the handshake is over.
    pub fn of_peer(connection: &noq::Connection) -> Option<Self> {
        let chain = connection
            .peer_identity()?
            .downcast::<Vec<CertificateDer<'static>>>()
            .ok()?;
        Self::of(chain.first()?).ok()
    }
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;
    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        text.trim()
            .strip_prefix("sha256:")
            .and_then(|digits| URL_SAFE_NO_PAD.decode(digits).ok()?.try_into().ok())
            .map(Self)
            .ok_or_else(|| FingerprintError(text.to_owned()))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sha256:{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl serde::Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

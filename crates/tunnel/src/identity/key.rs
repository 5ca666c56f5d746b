//! The private key and certificate of one end.

use std::fmt;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use bentpipe_quic::fingerprint::Fingerprint;

/// Everything of a PKCS #8 Ed25519 key that comes before the seed (RFC 8410, section 7).
const PKCS8_ED25519: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// An end's own key and certificate.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    pem: String,
    fingerprint: Fingerprint,
    for_others: Option<Arc<CertifiedKey>>,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
}

/// Why a text is not an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 private key in PEM (PKCS #8): {0}")]
pub struct IdentityError(String);

/// Why a text is not a certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a certificate and its private key in PEM: {0}")]
pub struct CertificateError(String);

/// The certificates of a gateway: its own, and the one for clients that do not prefer Ed25519.
#[derive(Debug)]
pub(super) struct Certificates {
    own: Arc<CertifiedKey>,
    for_others: Option<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Terminals prefer this scheme; the libraries of others prefer others.
        let is_terminal = hello.signature_schemes().first() == Some(&SignatureScheme::ED25519);
        let for_others = self.for_others.as_ref().filter(|_| !is_terminal);
        Some(for_others.unwrap_or(&self.own).clone())
    }
}

impl Identity {
    /// The identity that belongs to 32 secret random bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let pkcs8 = [&PKCS8_ED25519[..], seed].concat();
        let key = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(
            &PrivatePkcs8KeyDer::from(pkcs8),
            &rcgen::PKCS_ED25519,
        )
        .expect("any 32 bytes are an Ed25519 seed");
        Self::new(&key).expect("a fixed self-signed certificate can be made with any key")
    }

    /// Reads an identity that [`Self::to_pem`] wrote.
    pub fn from_pem(pem: &str) -> Result<Self, IdentityError> {
        let refuse = |error: rcgen::Error| IdentityError(error.to_string());
        let key = rcgen::KeyPair::from_pem(pem).map_err(refuse)?;
        if !key.is_compatible(&rcgen::PKCS_ED25519) {
            return Err(IdentityError("it is of another kind".into()));
        }
        Self::new(&key).map_err(refuse)
    }

    fn new(key: &rcgen::KeyPair) -> Result<Self, rcgen::Error> {
        let mut params = rcgen::CertificateParams::new(vec!["bentpipe.invalid".to_owned()])?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "bentpipe");
        // With a fixed serial number the certificate depends on the key alone.
        params.serial_number = Some(rcgen::SerialNumber::from(1u64));
        let certificate = params.self_signed(key)?.der().clone();
        let fingerprint =
            Fingerprint::of(&certificate).expect("a certificate that was just made can be read");
        Ok(Self {
            certificate,
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
            pem: key.serialize_pem(),
            fingerprint,
            for_others: None,
            key_log: None,
        })
    }

    /// Reads a certificate with its chain and its key, both in PEM, which a gateway shows to
    /// clients that do not prefer Ed25519: those that go by names and authorities.
    pub fn set_for_others(&mut self, chain: &str, key: &str) -> Result<(), CertificateError> {
        let wrong = |error: &dyn fmt::Display| CertificateError(error.to_string());
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| wrong(&error))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| wrong(&error))?;
        let provider = rustls::crypto::ring::default_provider();
        let both = CertifiedKey::from_der(chain, key, &provider).map_err(|error| wrong(&error))?;
        self.for_others = Some(Arc::new(both));
        Ok(())
    }

    /// The private key as text. Whoever reads it is this end.
    pub fn to_pem(&self) -> &str {
        &self.pem
    }

    /// The same, whose sessions' secrets are written to `log`: whoever reads them reads the sessions.
    #[must_use]
    pub fn with_key_log(self, log: Option<Arc<dyn rustls::KeyLog>>) -> Self {
        Self {
            key_log: log,
            ..self
        }
    }

    /// Where the secrets of sessions go, if anywhere.
    pub(super) fn key_log(&self) -> Option<Arc<dyn rustls::KeyLog>> {
        self.key_log.clone()
    }

    /// What the other end knows this one by.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// A secret of 32 bytes that only this identity has, different for each `purpose`.
    pub fn derived_secret(&self, purpose: &str) -> [u8; 32] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, self.key.secret_pkcs8_der());
        let tag = ring::hmac::sign(&key, purpose.as_bytes());
        tag.as_ref().try_into().expect("HMAC-SHA256 gives 32 bytes")
    }

    /// The certificate that shows the public key.
    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    /// What a gateway chooses from.
    pub(super) fn certificates(&self) -> Certificates {
        let key = rustls::crypto::ring::sign::any_eddsa_type(&self.key)
            .expect("an Ed25519 key, which the provider has");
        Certificates {
            own: Arc::new(CertifiedKey::new(vec![self.certificate()], key)),
            for_others: self.for_others.clone(),
        }
    }

    /// The key behind it.
    pub(super) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

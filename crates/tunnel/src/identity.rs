//! Who an end is, and how the other end makes sure of it.
//!
//! An identity is an Ed25519 key (RFC 8032) in a self-signed certificate. Names,
//! dates and authorities in it mean nothing: each end knows the other's key from
//! enrolment and accepts no other, also when a clock is years wrong. Both ends
//! authenticate in the TLS 1.3 handshake; there is no way to leave it out.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};

/// The name that the wire speaks in TLS (RFC 9114, section 3.1).
const ALPN: &[u8] = b"h3";
/// Everything of a PKCS #8 Ed25519 key that comes before the seed (RFC 8410, section 7).
const PKCS8_ED25519: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// SHA-256 of a certificate's public key (its SubjectPublicKeyInfo), by which the
/// ends know each other. Written "sha256:" and 43 characters of base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// An end's own key and certificate.
#[derive(Debug)]
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
    pem: String,
    fingerprint: Fingerprint,
}

/// Why a text is not an identity or a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Not a private key that we can use.
    #[error("not an Ed25519 private key in PEM (PKCS #8): {0}")]
    Key(String),
    /// Not a fingerprint.
    #[error(
        "{0:?} is not a key fingerprint; it starts with \"sha256:\" and has 43 characters after that"
    )]
    Fingerprint(String),
}

/// What the gateway holds of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// An enrolled terminal: may open sessions.
    Terminal,
    /// A one-time enrolment key: may enrol a terminal, nothing else.
    Enrolment,
    /// Nobody.
    Unknown,
}

/// Whom the gateway knows.
pub trait Registry: fmt::Debug + Send + Sync + 'static {
    /// What is held of `key`.
    fn standing(&self, key: &Fingerprint) -> Standing;

    /// Enrols `terminal` on the strength of `enrolment`, which is thereby used up:
    /// afterwards it only lets the same terminal ask again. The error says why not.
    fn enrol(&self, enrolment: &Fingerprint, terminal: Fingerprint) -> Result<(), String>;
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
        let refuse = |error: rcgen::Error| IdentityError::Key(error.to_string());
        let key = rcgen::KeyPair::from_pem(pem).map_err(refuse)?;
        if !key.is_compatible(&rcgen::PKCS_ED25519) {
            return Err(IdentityError::Key("it is of another kind".into()));
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
        })
    }

    /// The private key as text. Whoever reads it is this end.
    pub fn to_pem(&self) -> &str {
        &self.pem
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

    /// TLS of a terminal that will only speak to the gateway with key `gateway`.
    pub fn tls_to(&self, gateway: Fingerprint) -> QuicClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(ExpectGateway {
            expected: gateway,
            provider: provider.clone(),
        });
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(vec![self.certificate.clone()], self.private_key())
            .expect("certificate and key belong together");
        tls.alpn_protocols = vec![ALPN.to_vec()];
        QuicClientConfig::try_from(tls).expect("the provider has QUIC's initial cipher suite")
    }

    /// TLS of a gateway that only speaks to those in `registry`.
    pub fn tls_from(&self, registry: Arc<dyn Registry>) -> QuicServerConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(ExpectEnrolled {
            own: self.fingerprint,
            registry,
            provider: provider.clone(),
        });
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("the provider has TLS 1.3")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate.clone()], self.private_key())
            .expect("certificate and key belong together");
        tls.alpn_protocols = vec![ALPN.to_vec()];
        // No resumption and no early data: every session shows its key anew.
        tls.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        tls.send_tls13_tickets = 0;
        QuicServerConfig::try_from(tls).expect("the provider has QUIC's initial cipher suite")
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

impl Fingerprint {
    /// The fingerprint of `certificate`'s key.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, rustls::Error> {
        let parsed = rustls::server::ParsedCertificate::try_from(certificate)?;
        let digest = ring::digest::digest(&ring::digest::SHA256, &parsed.subject_public_key_info());
        Ok(Self(
            digest.as_ref().try_into().expect("SHA-256 gives 32 bytes"),
        ))
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
    type Err = IdentityError;
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        text.trim()
            .strip_prefix("sha256:")
            .and_then(|digits| URL_SAFE_NO_PAD.decode(digits).ok()?.try_into().ok())
            .map(Self)
            .ok_or_else(|| IdentityError::Fingerprint(text.to_owned()))
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

/// The text of this error travels to the other end as the reason of the close.
fn refused(text: String) -> rustls::Error {
    rustls::Error::General(text)
}

/// How both verifiers check that the other end has the key that it shows.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(refused("TLS 1.2 is not spoken here".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let algorithms = &self.provider.signature_verification_algorithms;
            rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

/// Accepts the gateway with the expected key, and no other.
#[derive(Debug)]
struct ExpectGateway {
    expected: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ExpectGateway {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let presented = Fingerprint::of(certificate)?;
        if presented == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        Err(refused(format!(
            "the gateway's key is {presented}, but this terminal expects {}",
            self.expected
        )))
    }

    signatures!();
}

/// Accepts terminals and enrolment keys that the registry knows, and nobody else.
#[derive(Debug)]
struct ExpectEnrolled {
    own: Fingerprint,
    registry: Arc<dyn Registry>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for ExpectEnrolled {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let presented = Fingerprint::of(certificate)?;
        match self.registry.standing(&presented) {
            Standing::Terminal | Standing::Enrolment => Ok(ClientCertVerified::assertion()),
            Standing::Unknown => Err(refused(format!(
                "the terminal's key is {presented}, which is not enrolled at the gateway {}",
                self.own
            ))),
        }
    }

    signatures!();
}

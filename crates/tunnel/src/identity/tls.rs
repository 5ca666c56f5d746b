//! TLS 1.3 in which both ends authenticate by their keys.

use std::sync::Arc;

use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};

use super::key::Identity;
use super::registry::{PeerRole, Registry};
use bentpipe_quic::fingerprint::Fingerprint;

/// The application protocol that TLS negotiates (RFC 9114, section 3.1).
const ALPN: &[u8] = b"h3";

/// Tickets that a gateway keeps, each good for one session with early data; of more, the oldest
/// are forgotten.
const TICKETS: usize = 4096;

/// TLS of a terminal that will only speak to a gateway with one of the keys `gateway`, the
/// present one first. It keeps the gateway's tickets, in memory: whoever opens another session by
/// it can send early data, once for each.
pub fn client(identity: &Identity, gateway: Vec<Fingerprint>) -> QuicClientConfig {
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
        .with_client_auth_cert(vec![identity.certificate()], identity.private_key())
        .expect("certificate and key belong together");
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.enable_early_data = true;
    if let Some(log) = identity.key_log() {
        tls.key_log = log;
    }
    QuicClientConfig::try_from(tls).expect("the provider has QUIC's initial cipher suite")
}

/// TLS of a gateway that only speaks to those in `registry`, and, while there are bearer tokens,
/// to clients that show no key and come with a token after the handshake.
pub fn server(identity: &Identity, registry: Arc<dyn Registry>) -> QuicServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(ExpectEnrolled {
        own: identity.fingerprint(),
        registry,
        provider: provider.clone(),
    });
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(identity.certificates()));
    tls.alpn_protocols = vec![ALPN.to_vec()];
    if let Some(log) = identity.key_log() {
        tls.key_log = log;
    }
    // A ticket is taken out when it is shown (RFC 8446, section 8.1): early data that was recorded
    // and is sent again finds none, and cannot even be decrypted. A gateway that was restarted has
    // none at all, so nothing is good twice.
    tls.session_storage = rustls::server::ServerSessionMemoryCache::new(TICKETS);
    tls.send_tls13_tickets = 1;
    tls.max_early_data_size = u32::MAX;
    QuicServerConfig::try_from(tls).expect("the provider has QUIC's initial cipher suite")
}

/// The text of this error travels to the other end as the reason of the close.
fn refused(text: String) -> rustls::Error {
    rustls::Error::General(text)
}

/// How both verifiers check that the other end has the key that it shows.
macro_rules! signatures {
    ($($scheme:ident),+) => {
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
            vec![$(SignatureScheme::$scheme),+]
        }
    };
}

/// Accepts the gateway with one of the expected keys, and no other.
#[derive(Debug)]
struct ExpectGateway {
    expected: Vec<Fingerprint>,
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
        if self.expected.contains(&presented) {
            return Ok(ServerCertVerified::assertion());
        }
        let expected: Vec<_> = self.expected.iter().map(Fingerprint::to_string).collect();
        Err(refused(format!(
            "the gateway's key is {presented}, but this terminal expects {}",
            expected.join(" or ")
        )))
    }

    // Ed25519 first: by that a gateway of ours knows that it is to show its own key.
    signatures!(ED25519, ECDSA_NISTP256_SHA256);
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

    fn client_auth_mandatory(&self) -> bool {
        !self.registry.has_tokens()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let presented = Fingerprint::of(certificate)?;
        match self.registry.role(&presented) {
            PeerRole::Terminal | PeerRole::Enrolment => Ok(ClientCertVerified::assertion()),
            PeerRole::Unknown => Err(refused(format!(
                "the terminal's key is {presented}, which is not enrolled at the gateway {}",
                self.own
            ))),
        }
    }

    // Other people's programs rarely have Ed25519.
    signatures!(ED25519, ECDSA_NISTP256_SHA256);
}

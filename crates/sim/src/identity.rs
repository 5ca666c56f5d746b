//! The simulated gateway's certificate, and everything else that real endpoints draw
//! at random.
//!
//! The key is public: it protects nothing. It is Ed25519, whose signatures always
//! have the same length, so that the same plan gives packets of the same lengths.

use std::sync::Arc;

use bentpipe_quicpep::tls::Certificates;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq_proto::crypto::{CryptoError, HandshakeTokenKey, HmacKey};
use noq_proto::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

const CERTIFICATE: &[u8] = include_bytes!("identity/certificate.der");
const KEY: &[u8] = include_bytes!("identity/key.der");
/// The name in the certificate.
pub(crate) const NAME: &str = "gateway.test";

/// TLS for the terminal's end.
pub(crate) fn client_tls() -> Arc<QuicClientConfig> {
    let tls = client_config();
    Arc::new(tls.try_into().expect("ring has the initial cipher suite"))
}

/// The same as the TLS library has it.
pub(crate) fn client_config() -> rustls::ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned(provider)))
        .with_no_client_auth();
    tls.resumption = rustls::client::Resumption::disabled();
    tls
}

/// What a proxy shows its clients.
pub(crate) fn certificates() -> Certificates {
    let key = PrivatePkcs8KeyDer::from(KEY).into();
    let chain = vec![CertificateDer::from(CERTIFICATE)];
    Certificates::own(chain, key).expect("the certificate belongs to the key")
}

/// TLS for the gateway's end.
pub(crate) fn server_tls() -> Arc<QuicServerConfig> {
    let key = PrivatePkcs8KeyDer::from(KEY).into();
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("ring has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key)
        .expect("the certificate belongs to the key");
    tls.send_tls13_tickets = 0;
    Arc::new(tls.try_into().expect("ring has the initial cipher suite"))
}

/// An endpoint that draws nothing: all derives from `seed` and the endpoint's `number`.
pub(crate) fn endpoint(seed: u64, number: u64) -> EndpointConfig {
    let mut config = EndpointConfig::new(Arc::new(Keyless));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    bytes[8..16].copy_from_slice(&number.to_be_bytes());
    config.rng_seed(Some(bytes));
    config.cid_generator(Arc::new(move || Box::new(Counting { number, next: 0 })));
    config
}

/// Connection IDs that count up.
#[derive(Debug)]
struct Counting {
    number: u64,
    next: u32,
}

/// A terminal's first guess of its peer's connection ID (RFC 9000, section 7.2).
pub(crate) fn first_id(number: u64) -> ConnectionId {
    ConnectionId::new(&(u64::MAX - number).to_be_bytes())
}

impl ConnectionIdGenerator for Counting {
    fn generate_cid(&mut self) -> ConnectionId {
        self.next += 1;
        ConnectionId::new(&((self.number << 32) | u64::from(self.next)).to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        8
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// Accepts the one certificate.
#[derive(Debug)]
struct Pinned(Arc<CryptoProvider>);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if end_entity.as_ref() == CERTIFICATE {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General("not the simulator's certificate".into()))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("QUIC has TLS 1.3 only".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            cert,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// Stateless resets and address tokens without a secret: nobody attacks a simulation.
#[derive(Debug)]
pub(crate) struct Keyless;

impl HmacKey for Keyless {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        for (place, byte) in signature.iter_mut().zip(data.iter().cycle()) {
            *place = *byte;
        }
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let mut expected = vec![0; self.signature_len()];
        self.sign(data, &mut expected);
        (expected == signature).then_some(()).ok_or(CryptoError)
    }
}

impl HandshakeTokenKey for Keyless {
    fn seal(&self, _nonce: u128, data: &mut Vec<u8>) -> Result<(), CryptoError> {
        data.extend_from_slice(&[0; 16]);
        Ok(())
    }

    fn open<'a>(&self, _nonce: u128, data: &'a mut [u8]) -> Result<&'a [u8], CryptoError> {
        let end = data.len().checked_sub(16).ok_or(CryptoError)?;
        Ok(&data[..end])
    }
}

/// Tokens are stamped with the time of day; here it is always the beginning of time.
pub(crate) struct Epoch;

impl noq_proto::TimeSource for Epoch {
    fn now(&self) -> std::time::SystemTime {
        std::time::SystemTime::UNIX_EPOCH
    }
}

//! Certificates of servers, and whom a client trusts. There is no way not to look.

use std::sync::Arc;

use bentpipe_quic::fingerprint::Fingerprint;
use bentpipe_quic::version2::keys::{Client, Server};
use noq::crypto::{ClientConfig, ServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::sync::Notify;

use crate::error::PerfError;

/// A server's certificates, its own first, and the key behind them.
#[derive(Debug)]
pub struct Credentials {
    /// The chain.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key.
    pub key: PrivateKeyDer<'static>,
}

impl Credentials {
    /// A new key with a certificate for `names`, and that certificate as PEM.
    ///
    /// The key is on the curve P-256, which every stack and browser knows.
    pub fn generate(names: Vec<String>) -> Result<(Self, String), PerfError> {
        let refuse = |error: rcgen::Error| PerfError::Tls(format!("no certificate for {error}"));
        let key = rcgen::KeyPair::generate().map_err(refuse)?;
        let parameters = rcgen::CertificateParams::new(names).map_err(refuse)?;
        let certificate = parameters.self_signed(&key).map_err(refuse)?;
        let pem = certificate.pem();
        let credentials = Self {
            chain: vec![certificate.der().clone()],
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
        };
        Ok((credentials, pem))
    }

    /// By which a client may know the key.
    pub fn fingerprint(&self) -> Result<Fingerprint, PerfError> {
        let certificate = (self.chain.first())
            .ok_or_else(|| PerfError::Tls("there is no certificate in the chain".into()))?;
        Fingerprint::of(certificate)
            .map_err(|error| PerfError::Tls(format!("the certificate cannot be read: {error}")))
    }
}

/// Whom a client trusts.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Servers whose certificate is issued by one of these for the server's name.
    Roots(Arc<RootCertStore>),
    /// The one server with this key, whatever its name.
    Key(Fingerprint),
}

/// TLS of a server with `credentials` that offers `protocols`.
///
/// Sessions are resumed and early data taken: what a measurement asks for is harmless when it
/// is replayed.
pub fn server(
    credentials: Credentials,
    protocols: &[&[u8]],
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Result<Arc<dyn ServerConfig>, PerfError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(credentials.chain, credentials.key)
        .map_err(|error| PerfError::Tls(format!("certificate and key: {error}")))?;
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    // The only value that RFC 9001, section 4.6.1 allows beside zero.
    tls.max_early_data_size = u32::MAX;
    if let Some(log) = key_log {
        tls.key_log = log;
    }
    let server = Server::new(Arc::new(tls));
    Ok(Arc::new(
        server.expect("the provider has QUIC's initial cipher suite"),
    ))
}

/// TLS of a client that trusts `trust`, speaks `protocol` and keeps what servers give it for
/// the next connection in `sessions`.
pub fn client(
    trust: &Trust,
    protocol: &[u8],
    sessions: Arc<Sessions>,
    key_log: Option<Arc<dyn rustls::KeyLog>>,
) -> Arc<dyn ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3");
    let mut tls = match trust {
        Trust::Roots(roots) => builder
            .with_root_certificates(roots.clone())
            .with_no_client_auth(),
        Trust::Key(expected) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ExpectKey {
                expected: *expected,
                provider,
            }))
            .with_no_client_auth(),
    };
    tls.alpn_protocols = vec![protocol.to_vec()];
    tls.enable_early_data = true;
    tls.resumption = Resumption::store(sessions);
    if let Some(log) = key_log {
        tls.key_log = log;
    }
    let client = Client::new(Arc::new(tls));
    Arc::new(client.expect("the provider has QUIC's initial cipher suite"))
}

/// What servers gave for the next connection.
#[derive(Debug)]
pub struct Sessions {
    cache: ClientSessionMemoryCache,
    arrived: Notify,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            cache: ClientSessionMemoryCache::new(8),
            arrived: Notify::new(),
        }
    }
}

impl Sessions {
    /// Waits until a server has given a ticket since the last call.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server: ServerName<'static>, group: rustls::NamedGroup) {
        self.cache.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<rustls::NamedGroup> {
        self.cache.kx_hint(server)
    }

    fn set_tls12_session(
        &self,
        _server: ServerName<'static>,
        _value: rustls::client::Tls12ClientSessionValue,
    ) {
    }

    fn tls12_session(
        &self,
        _server: &ServerName<'_>,
    ) -> Option<rustls::client::Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _server: &ServerName<'static>) {}

    fn insert_tls13_ticket(
        &self,
        server: ServerName<'static>,
        value: rustls::client::Tls13ClientSessionValue,
    ) {
        self.cache.insert_tls13_ticket(server, value);
        self.arrived.notify_one();
    }

    fn take_tls13_ticket(
        &self,
        server: &ServerName<'static>,
    ) -> Option<rustls::client::Tls13ClientSessionValue> {
        self.cache.take_tls13_ticket(server)
    }
}

/// Accepts the server with the expected key, and no other.
#[derive(Debug)]
struct ExpectKey {
    expected: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ExpectKey {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let presented = Fingerprint::of(certificate)?;
        if presented == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        Err(rustls::Error::General(format!(
            "its key is {presented}, not {}",
            self.expected
        )))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has TLS 1.3 only".into()))
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
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

//! TLS of a proxy: the certificates that it shows its clients, and the verification of the
//! next hop.
//!
//! Clients believe a certificate of the operator's own, or one that a local authority makes
//! for each server name as it is asked for. The authority's private key can name any server
//! to those that trust it: it stays on the proxy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_quic::version2::keys::{Client, Server};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Certificates that an authority keeps; beyond, they are made anew.
const LEAVES: usize = 1024;
/// The name in a certificate for a client that asks for none.
const NO_NAME: &str = "bentpipe.invalid";

/// What is wrong with a key or a certificate.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsError {
    /// A private key.
    #[error("not a private key in PEM (PKCS #8): {0}")]
    Key(String),
    /// A certificate and its key.
    #[error("certificate and key cannot be used together: {0}")]
    Certificate(String),
}

/// The certificates that clients are shown.
#[derive(Debug)]
pub enum Certificates {
    /// One for all.
    Own(Arc<CertifiedKey>),
    /// One for each server name, by a local authority.
    Authority(Box<Authority>),
}

impl Certificates {
    /// A certificate `chain` with its private `key`.
    pub fn own(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsError> {
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|error| TlsError::Certificate(error.to_string()))?;
        Ok(Self::Own(Arc::new(certified)))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self {
            Self::Own(certified) => Some(certified.clone()),
            Self::Authority(authority) => {
                let name = hello.server_name().unwrap_or(NO_NAME);
                let leaf = authority.leaf(&name.to_ascii_lowercase());
                leaf.inspect_err(|why| tracing::warn!(name, "no certificate: {why}"))
                    .ok()
            }
        }
    }
}

/// A local certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The key of all leaves, of the proxy's own.
    key: KeyPair,
    leaves: Mutex<BTreeMap<String, Arc<CertifiedKey>>>,
    year: fn() -> i32,
}

impl Authority {
    /// The authority with the private key `pem` that [`Self::create`] has made. `year`
    /// tells the year of now: certificates are valid from the year before to the one after.
    pub fn new(pem: &str, year: fn() -> i32) -> Result<Self, TlsError> {
        let refuse = |error: rcgen::Error| TlsError::Key(error.to_string());
        let key = KeyPair::from_pem(pem).map_err(refuse)?;
        let leaf_key = KeyPair::generate().map_err(refuse)?;
        let params = Self::params(&key).map_err(refuse)?;
        Ok(Self {
            issuer: Issuer::new(params, key),
            key: leaf_key,
            leaves: Mutex::default(),
            year,
        })
    }

    /// A new authority, in the year `year`: its private key, and the certificate to be
    /// trusted, valid for ten years; both in PEM.
    pub fn create(year: i32) -> Result<(String, String), TlsError> {
        let refuse = |error: rcgen::Error| TlsError::Key(error.to_string());
        let key = KeyPair::generate().map_err(refuse)?;
        let mut params = Self::params(&key).map_err(refuse)?;
        params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
        params.not_after = rcgen::date_time_ymd(year + 10, 1, 1);
        let certificate = params.self_signed(&key).map_err(refuse)?;
        Ok((key.serialize_pem(), certificate.pem()))
    }

    /// What all certificates of one authority have in common; its name tells it from others.
    fn params(key: &KeyPair) -> Result<CertificateParams, rcgen::Error> {
        let mut params = CertificateParams::new(Vec::new())?;
        let digest = digest(key.public_key_raw());
        let number: String = digest[..4].iter().map(|b| format!("{b:02x}")).collect();
        params.distinguished_name = DistinguishedName::new();
        (params.distinguished_name).push(DnType::CommonName, format!("bentpipe quic-pep {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(params)
    }

    fn leaf(&self, name: &str) -> Result<Arc<CertifiedKey>, TlsError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = leaves.get(name) {
            return Ok(leaf.clone());
        }
        let refuse = |error: rcgen::Error| TlsError::Certificate(error.to_string());
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(refuse)?;
        params.distinguished_name = DistinguishedName::new();
        let year = (self.year)();
        params.not_before = rcgen::date_time_ymd(year - 1, 1, 1);
        params.not_after = rcgen::date_time_ymd(year + 1, 12, 31);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        // No two certificates of an issuer may have the same number (RFC 5280, 4.1.2.2).
        let mut serial = digest(format!("{year} {name}").as_bytes())[..16].to_vec();
        serial[0] &= 0x7f;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        let certificate = params.signed_by(&self.key, &self.issuer).map_err(refuse)?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der());
        let provider = rustls::crypto::ring::default_provider();
        let chain = vec![certificate.der().clone()];
        let certified = CertifiedKey::from_der(chain, key.into(), &provider)
            .map_err(|error| TlsError::Certificate(error.to_string()))?;
        if leaves.len() >= LEAVES {
            leaves.clear();
        }
        let certified = Arc::new(certified);
        leaves.insert(name.to_owned(), certified.clone());
        Ok(certified)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Authority")
    }
}

fn digest(data: &[u8]) -> Vec<u8> {
    ring::digest::digest(&ring::digest::SHA256, data)
        .as_ref()
        .to_vec()
}

/// TLS towards clients; the application protocols are those that each of them is answered with.
pub fn server(certificates: Arc<dyn ResolvesServerCert>) -> rustls::ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(certificates)
}

/// TLS towards next hops, whose certificates are verified against `roots`; nothing turns
/// that off.
pub fn client(roots: RootCertStore) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// `tls` with `protocols`, as the QUIC library wants it.
pub fn server_with(tls: &rustls::ServerConfig, protocols: Vec<Vec<u8>>) -> Arc<Server> {
    let mut tls = tls.clone();
    tls.alpn_protocols = protocols;
    let server = Server::new(Arc::new(tls));
    Arc::new(server.expect("the provider has QUIC's initial cipher suite"))
}

/// `tls` with `protocols`, as the QUIC library wants it.
pub fn client_with(tls: &rustls::ClientConfig, protocols: Vec<Vec<u8>>) -> Arc<Client> {
    let mut tls = tls.clone();
    tls.alpn_protocols = protocols;
    let client = Client::new(Arc::new(tls));
    Arc::new(client.expect("the provider has QUIC's initial cipher suite"))
}

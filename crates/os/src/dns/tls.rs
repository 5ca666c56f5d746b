//! DNS over TLS (RFC 7858), with a certificate of the operator's.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_tunnel::terminal::dns::Resolver;
use ipnet::IpNet;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::{IDLE, MAX_CONNECTIONS, place, reply};
use crate::listener::{accept, is_welcome};

/// The certificate that clients are shown; it may be replaced while they are served.
#[derive(Clone)]
pub struct Certificate(Arc<Mutex<Arc<CertifiedKey>>>);

/// A certificate or a key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The file of the certificate chain.
    #[error("not a certificate chain in PEM: {0}")]
    Chain(String),
    /// The file of the private key.
    #[error("not a private key in PEM: {0}")]
    Key(String),
    /// Both together.
    #[error("this certificate and dns.tls.key cannot be used together: {0}")]
    Pair(rustls::Error),
}

impl Certificate {
    /// The certificate chain in the file `chain`, the end's own first, and its private `key`; both in PEM.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        Ok(Self(Arc::new(Mutex::new(read(chain, key)?))))
    }

    /// Shows the certificate that is in the files now; with an error the one before stays.
    pub fn read_again(&self, chain: &Path, key: &Path) -> Result<(), CertificateError> {
        let new = read(chain, key)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }
}

fn read(chain: &Path, key: &Path) -> Result<Arc<CertifiedKey>, CertificateError> {
    let certificates: Vec<_> = CertificateDer::pem_file_iter(chain)
        .and_then(Iterator::collect)
        .map_err(|error| CertificateError::Chain(error.to_string()))?;
    if certificates.is_empty() {
        return Err(CertificateError::Chain("none is in it".into()));
    }
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| CertificateError::Key(error.to_string()))?;
    let certified = CertifiedKey::from_der(certificates, key, &default_provider())
        .map_err(CertificateError::Pair)?;
    Ok(Arc::new(certified))
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Certificate")
    }
}

/// Answers `clients` and this machine itself, for ever.
pub async fn serve(
    listener: TcpListener,
    clients: Vec<IpNet>,
    certificate: Certificate,
    resolver: Resolver,
) {
    accept_each(listener, clients, certificate, &[], move |stream, host| {
        let (reader, writer) = tokio::io::split(stream);
        reply(reader, writer, host, resolver.clone())
    })
    .await;
}

/// Has `serve` answer each connection of `clients` and of this machine itself, for ever, by one of
/// `protocols` (ALPN).
pub(super) async fn accept_each<F>(
    listener: TcpListener,
    clients: Vec<IpNet>,
    certificate: Certificate,
    protocols: &[&[u8]],
    serve: impl Fn(TlsStream<TcpStream>, IpAddr) -> F + Clone + Send + Sync + 'static,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let mut tls = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(certificate));
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    accept(listener, |stream| {
        let (serve, places, acceptor) = (serve.clone(), places.clone(), acceptor.clone());
        let welcome = is_welcome(&stream, &clients);
        async move {
            let _place = place(welcome, &places)?;
            stream.set_nodelay(true)?;
            let host = stream.peer_addr()?.ip().to_canonical();
            let stream = tokio::time::timeout(IDLE, acceptor.accept(stream)).await??;
            serve(stream, host).await
        }
    })
    .await;
}

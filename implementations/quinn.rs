//! What the wrappers of quinn and of noq, which is a fork of it, have in common. `crate::library` is the one that is
//! meant, with its newest BBR as `Bbr`.

use std::net::Ipv6Addr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::contract::{self, Request, number};
use crate::hq;
use crate::library::congestion::{CubicConfig, NewRenoConfig};
use crate::library::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use crate::library::{
    Bbr, ClientConfig, Connection, ConnectionError, Endpoint, ServerConfig, TransportConfig, VarInt,
};

/// Bytes of a packet of the initial window.
const PACKET: u64 = 1200;

/// The knobs; `bbr` is what BBR is called.
pub fn transport(bbr: &str) -> Result<Arc<TransportConfig>> {
    let mut config = TransportConfig::default();
    let window = number("IW")?.map(|packets: u64| packets * PACKET);
    macro_rules! controller {
        ($kind:ty) => {{
            let mut made = <$kind>::default();
            if let Some(bytes) = window {
                made.initial_window(bytes);
            }
            config.congestion_controller_factory(Arc::new(made));
        }};
    }
    match contract::variable("CC").as_str() {
        "" | "cubic" => controller!(CubicConfig),
        "reno" => controller!(NewRenoConfig),
        name if name == bbr => controller!(Bbr),
        other => bail!("CC={other}: this stack has cubic, reno and {bbr}"),
    }
    if let Some(bytes) = number::<u64>("MAX_DATA")? {
        config.receive_window(VarInt::from_u64(bytes)?);
    }
    if let Some(bytes) = number::<u64>("MAX_STREAM_DATA")? {
        config.stream_receive_window(VarInt::from_u64(bytes)?);
    }
    if let Some(bytes) = number("SEND_BUFFER")? {
        config.send_window(bytes);
    }
    Ok(Arc::new(config))
}

/// Listens until SIGTERM, and has each connection served by `serve`.
pub async fn listen<S, F>(alpn: &[u8], transport: Arc<TransportConfig>, serve: S) -> Result<()>
where
    S: Fn(Connection) -> F + Copy + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let certificates: Vec<_> = rustls_pemfile::certs(&mut &*std::fs::read("/certs/cert.pem")?)
        .collect::<Result<_, _>>()?;
    let key = rustls_pemfile::private_key(&mut &*std::fs::read("/certs/priv.key")?)?
        .context("/certs/priv.key has no key")?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport);
    let endpoint = Endpoint::server(config, (Ipv6Addr::UNSPECIFIED, 443).into())?;
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming.context("the endpoint has ended")?,
            _ = ended.recv() => return Ok(()),
        };
        tokio::spawn(async move {
            let done = match incoming.await {
                Ok(connection) => serve(connection).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = done {
                eprintln!("{error:#}");
            }
        });
    }
}

/// Serves a connection by HTTP/0.9.
pub async fn serve_hq(connection: Connection) -> Result<()> {
    loop {
        let (send, receive) = match connection.accept_bi().await {
            Ok(streams) => streams,
            Err(ConnectionError::ApplicationClosed(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        hq::answer(receive, send).await?;
    }
}

/// Connects to where the first request leads; the endpoint has to be kept until it is idle.
pub async fn connect(
    alpn: &[u8],
    transport: Arc<TransportConfig>,
    first: &Request,
) -> Result<(Endpoint, Connection)> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut &*std::fs::read("/certs/ca.pem")?) {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport);
    #[allow(unused_mut, reason = "quinn's setter takes it mutable, noq's does not")]
    let mut endpoint = Endpoint::client("0.0.0.0:0".parse()?)?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(first.address()?, &first.host)?.await?;
    Ok((endpoint, connection))
}

/// Fetches by HTTP/0.9.
pub async fn fetch_hq(connection: &Connection, requests: &[Request]) -> Result<()> {
    for request in requests {
        let (send, receive) = connection.open_bi().await?;
        hq::fetch(request, receive, send).await?;
    }
    Ok(())
}

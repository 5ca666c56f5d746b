//! An endpoint of noq by the contract of docs/matrix.md: HTTP/0.9 over QUIC (hq-interop).

use std::net::{Ipv6Addr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use noq::congestion::{Bbr3Config, CubicConfig, NewRenoConfig};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{Connection, Endpoint, TransportConfig, VarInt};
use tokio::io::AsyncWriteExt;

const ALPN: &[u8] = b"hq-interop";

#[tokio::main]
async fn main() -> Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let transport = Arc::new(transport()?);
    if variable("ROLE") == "server" {
        serve(transport).await
    } else {
        fetch_all(transport, &variable("REQUESTS")).await
    }
}

/// A knob in bytes or packets; None leaves the library's default.
fn number(name: &str) -> Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map(Some)
            .with_context(|| format!("{name}={text}: give a whole number")),
        _ => Ok(None),
    }
}

fn transport() -> Result<TransportConfig> {
    let mut config = TransportConfig::default();
    let window = number("IW")?.map(|packets| packets * 1200);
    macro_rules! controller {
        ($kind:ty) => {{
            let mut made = <$kind>::default();
            if let Some(bytes) = window {
                made.initial_window(bytes);
            }
            config.congestion_controller_factory(Arc::new(made));
        }};
    }
    match std::env::var("CC").unwrap_or_default().as_str() {
        "" | "cubic" => controller!(CubicConfig),
        "reno" => controller!(NewRenoConfig),
        "bbr3" => controller!(Bbr3Config),
        other => bail!("CC={other}: noq has cubic, reno and bbr3"),
    }
    if let Some(bytes) = number("MAX_DATA")? {
        config.receive_window(VarInt::from_u64(bytes)?);
    }
    if let Some(bytes) = number("MAX_STREAM_DATA")? {
        config.stream_receive_window(VarInt::from_u64(bytes)?);
    }
    if let Some(bytes) = number("SEND_BUFFER")? {
        config.send_window(bytes);
    }
    Ok(config)
}

async fn serve(transport: Arc<TransportConfig>) -> Result<()> {
    let certificates: Vec<_> = rustls_pemfile::certs(&mut &*std::fs::read("/certs/cert.pem")?)
        .collect::<Result<_, _>>()?;
    let key = rustls_pemfile::private_key(&mut &*std::fs::read("/certs/priv.key")?)?
        .context("/certs/priv.key has no key")?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    let mut config = noq::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
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
                Ok(connection) => serve_hq(connection).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = done {
                eprintln!("{error:#}");
            }
        });
    }
}

/// The file of a request's path, which may not leave /www.
fn file(path: &str) -> Result<PathBuf> {
    let name = Path::new(path.trim())
        .file_name()
        .context("the request names no file")?;
    Ok(Path::new("/www").join(name))
}

async fn serve_hq(connection: Connection) -> Result<()> {
    loop {
        let (mut send, mut receive) = match connection.accept_bi().await {
            Ok(streams) => streams,
            Err(noq::ConnectionError::ApplicationClosed(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let request = String::from_utf8(receive.read_to_end(4096).await?)?;
        let mut source = tokio::fs::File::open(file(request.trim_start_matches("GET "))?).await?;
        tokio::io::copy(&mut source, &mut send).await?;
        send.finish()?;
    }
}

async fn fetch_all(transport: Arc<TransportConfig>, requests: &str) -> Result<()> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut &*std::fs::read("/certs/ca.pem")?) {
        roots.add(certificate?)?;
    }
    let mut tls = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    tls.key_log = Arc::new(rustls::KeyLogFile::new());
    let mut config = noq::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport);
    let endpoint = Endpoint::client("0.0.0.0:0".parse()?)?;
    endpoint.set_default_client_config(config);

    let targets: Vec<http::Uri> = requests
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let first = targets.first().context("REQUESTS names nothing")?;
    let host = first.host().context("a request without a host")?;
    let port = first.port_u16().unwrap_or(443);
    let address = (host, port)
        .to_socket_addrs()?
        .find(|each| each.is_ipv4())
        .context("the server has no address")?;
    let connection = endpoint.connect(address, host)?.await?;
    fetch_hq(&connection, &targets).await?;
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(())
}

fn target(uri: &http::Uri) -> Result<PathBuf> {
    Ok(Path::new("/downloads").join(
        Path::new(uri.path())
            .file_name()
            .context("a request names no file")?,
    ))
}

async fn fetch_hq(connection: &Connection, targets: &[http::Uri]) -> Result<()> {
    for uri in targets {
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(format!("GET {}\r\n", uri.path()).as_bytes())
            .await?;
        send.finish()?;
        let mut sink = tokio::fs::File::create(target(uri)?).await?;
        tokio::io::copy(&mut receive, &mut sink).await?;
        sink.flush().await?;
    }
    Ok(())
}

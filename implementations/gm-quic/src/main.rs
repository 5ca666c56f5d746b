//! An endpoint of gm-quic by the contract of docs/matrix.md: HTTP/0.9 over QUIC (hq-interop).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use gm_quic::prelude::handy::{ToCertificate, client_parameters, server_parameters};
use gm_quic::prelude::{Connection, QuicClient, QuicListeners, StreamReader, StreamWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ALPN: &[u8] = b"hq-interop";
const BACKLOG: usize = 16;

#[tokio::main]
async fn main() -> Result<()> {
    if std::env::var("ROLE").unwrap_or_default() == "server" {
        serve().await
    } else {
        fetch_all(&std::env::var("REQUESTS").unwrap_or_default()).await
    }
}

/// The file of a path below a directory.
fn below(directory: &str, path: &str) -> Result<PathBuf> {
    let name = Path::new(path.trim())
        .file_name()
        .context("a path that names no file")?;
    Ok(Path::new(directory).join(name))
}

async fn serve() -> Result<()> {
    let listeners = QuicListeners::builder()?
        .without_client_cert_verifier()
        .with_parameters(server_parameters())
        .with_alpns([ALPN])
        .listen(BACKLOG);
    let here: std::net::SocketAddr = "0.0.0.0:443".parse()?;
    listeners.add_server(
        "server",
        Path::new("/certs/cert.pem"),
        Path::new("/certs/priv.key"),
        [here],
        None,
    )?;
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        let (connection, ..) = tokio::select! {
            accepted = listeners.accept() => accepted?,
            _ = ended.recv() => return Ok(()),
        };
        tokio::spawn(async move {
            if let Err(error) = answer_all(connection).await {
                eprintln!("{error:#}");
            }
        });
    }
}

async fn answer_all(connection: Connection) -> Result<()> {
    loop {
        let (_, (reader, writer)) = connection.accept_bi_stream().await?;
        tokio::spawn(async move {
            if let Err(error) = answer(reader, writer).await {
                eprintln!("{error:#}");
            }
        });
    }
}

async fn answer(reader: StreamReader, mut writer: StreamWriter) -> Result<()> {
    let mut request = String::new();
    reader.take(4096).read_to_string(&mut request).await?;
    let path = below("/www", request.trim().trim_start_matches("GET "))?;
    let mut source = tokio::fs::File::open(path).await?;
    tokio::io::copy(&mut source, &mut writer).await?;
    writer.shutdown().await?;
    Ok(())
}

async fn fetch_all(requests: &str) -> Result<()> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(Path::new("/certs/ca.pem").to_certificate());
    let client = QuicClient::builder()
        .with_root_certificates(roots)
        .without_cert()
        .with_parameters(client_parameters())
        .with_alpns([ALPN])
        .enable_sslkeylog()
        .build();
    for request in requests.split_whitespace() {
        let rest = request
            .strip_prefix("https://")
            .context("a request that is no https address")?;
        let (authority, path) = rest.split_once('/').context("a request without a path")?;
        let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
        let addresses: Vec<_> = tokio::net::lookup_host((host, port.parse()?))
            .await?
            .filter(|each| each.is_ipv4())
            .collect();
        let connection = client.connected_to(host, addresses)?;
        let (_, (mut response, mut asking)) = connection
            .open_bi_stream()
            .await?
            .ok_or_else(|| anyhow!("no stream is to be had"))?;
        asking
            .write_all(format!("GET /{path}\r\n").as_bytes())
            .await?;
        asking.shutdown().await?;
        let mut sink = tokio::fs::File::create(below("/downloads", path)?).await?;
        tokio::io::copy(&mut response, &mut sink).await?;
        sink.flush().await?;
        connection.close("", 0).ok();
    }
    Ok(())
}

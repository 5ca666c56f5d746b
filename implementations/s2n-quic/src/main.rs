//! An endpoint of s2n-quic by the contract of docs/matrix.md: HTTP/0.9 over QUIC (hq-interop).

use std::net::ToSocketAddrs;
use std::path::Path;

use anyhow::{Context, Error, Result, bail};
use s2n_quic::client::Connect;
use s2n_quic::provider::{congestion_controller, limits::Limits, tls};
use s2n_quic::{Client, Connection, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const ALPN: [&str; 1] = ["hq-interop"];

#[tokio::main]
async fn main() -> Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("ROLE") == "server" {
        serve().await
    } else {
        fetch_all(&variable("REQUESTS")).await
    }
}

/// A knob in bytes; None leaves the library's default.
fn number(name: &str) -> Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map(Some)
            .with_context(|| format!("{name}={text}: give a whole number")),
        _ => Ok(None),
    }
}

fn limits() -> Result<Limits> {
    let mut limits = Limits::new();
    if let Some(bytes) = number("MAX_DATA")? {
        limits = limits.with_data_window(bytes)?;
    }
    if let Some(bytes) = number("MAX_STREAM_DATA")? {
        limits = limits
            .with_bidirectional_local_data_window(bytes)?
            .with_bidirectional_remote_data_window(bytes)?;
    }
    if let Some(bytes) = number("SEND_BUFFER")? {
        limits = limits.with_max_send_buffer_size(bytes.try_into()?)?;
    }
    Ok(limits)
}

macro_rules! controlled {
    ($builder:expr) => {
        match std::env::var("CC").unwrap_or_default().as_str() {
            "" | "cubic" => $builder
                .with_congestion_controller(congestion_controller::Cubic::default())?
                .start()?,
            "bbr" => $builder
                .with_congestion_controller(congestion_controller::Bbr::default())?
                .start()?,
            other => bail!("CC={other}: s2n-quic has cubic and bbr"),
        }
    };
}

async fn serve() -> Result<()> {
    let tls = tls::rustls::Server::builder()
        .with_application_protocols(ALPN.iter())
        .and_then(|made| {
            made.with_certificate(Path::new("/certs/cert.pem"), Path::new("/certs/priv.key"))
        })
        .and_then(|made| made.with_key_logging())
        .and_then(|made| made.build())
        .map_err(Error::from_boxed)?;
    let builder = Server::builder()
        .with_tls(tls)?
        .with_io("0.0.0.0:443")?
        .with_limits(limits()?)?;
    let mut server = controlled!(builder);
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        let connection = tokio::select! {
            connection = server.accept() => connection.context("the endpoint has ended")?,
            _ = ended.recv() => return Ok(()),
        };
        tokio::spawn(async move {
            if let Err(error) = answer_all(connection).await {
                eprintln!("{error:#}");
            }
        });
    }
}

async fn answer_all(mut connection: Connection) -> Result<()> {
    while let Ok(Some(mut stream)) = connection.accept_bidirectional_stream().await {
        tokio::spawn(async move {
            let mut request = String::new();
            (&mut stream)
                .take(4096)
                .read_to_string(&mut request)
                .await?;
            let path = request.trim().trim_start_matches("GET ");
            let name = Path::new(path)
                .file_name()
                .context("the request names no file")?;
            let mut source = tokio::fs::File::open(Path::new("/www").join(name)).await?;
            tokio::io::copy(&mut source, &mut stream).await?;
            stream.shutdown().await?;
            anyhow::Ok(())
        });
    }
    Ok(())
}

async fn fetch_all(requests: &str) -> Result<()> {
    let tls = tls::rustls::Client::builder()
        .with_application_protocols(ALPN.iter())?
        .with_certificate(Path::new("/certs/ca.pem"))
        .and_then(|made| made.with_key_logging())
        .and_then(|made| made.build())
        .map_err(Error::from_boxed)?;
    let builder = Client::builder()
        .with_tls(tls)?
        .with_io("0.0.0.0:0")?
        .with_limits(limits()?)?;
    let mut client = controlled!(builder);
    let mut connection: Option<Connection> = None;
    for request in requests.split_whitespace() {
        let rest = request
            .strip_prefix("https://")
            .context("a request that is no https address")?;
        let (authority, path) = rest.split_once('/').context("a request without a path")?;
        let (host, port) = authority.split_once(':').unwrap_or((authority, "443"));
        let connection = match &mut connection {
            Some(open) => open,
            none => {
                let address = (host, port.parse()?)
                    .to_socket_addrs()?
                    .find(|each| each.is_ipv4());
                let address = address.context("the server has no address")?;
                none.insert(
                    client
                        .connect(Connect::new(address).with_server_name(host))
                        .await?,
                )
            }
        };
        let mut stream = connection.open_bidirectional_stream().await?;
        stream
            .write_all(format!("GET /{path}\r\n").as_bytes())
            .await?;
        stream.close().await.ok();
        let name = Path::new(path)
            .file_name()
            .context("a request names no file")?;
        let mut sink = tokio::fs::File::create(Path::new("/downloads").join(name)).await?;
        tokio::io::copy(&mut stream, &mut sink).await?;
        sink.flush().await?;
    }
    if let Some(connection) = &connection {
        connection.close(0u32.into());
    }
    client.wait_idle().await.ok();
    Ok(())
}

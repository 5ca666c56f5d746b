//! An endpoint of MsQuic by the contract of docs/matrix.md: HTTP/3 (crate h3) and HTTP/0.9 over QUIC (hq-interop).

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes};
use msquic_async::msquic::{
    BufferRef, CertificateFile, Configuration, Credential, CredentialConfig, Registration,
    RegistrationConfig, Settings,
};
use msquic_async::{Connection, Listener, StreamType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const IDLE_MS: u64 = 30_000;
const PIECE: usize = 64 << 10;

#[tokio::main]
async fn main() -> Result<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let h3 = variable("TESTCASE") == "http3";
    let alpn = [BufferRef::from(if h3 { "h3" } else { "hq-interop" })];
    let registration = Registration::new(&RegistrationConfig::default())?;
    let configuration = Configuration::open(&registration, &alpn, Some(&settings()?))?;
    if variable("ROLE") == "server" {
        serve(&registration, configuration, &alpn, h3).await
    } else {
        fetch_all(&registration, &configuration, h3, &variable("REQUESTS")).await
    }
}

/// A knob in bytes or packets; None leaves the library's default.
fn number(name: &str) -> Result<Option<u32>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map(Some)
            .with_context(|| format!("{name}={text}: give a whole number below 2^32")),
        _ => Ok(None),
    }
}

fn settings() -> Result<Settings> {
    let mut settings = Settings::new()
        .set_IdleTimeoutMs(IDLE_MS)
        .set_PeerBidiStreamCount(100)
        .set_PeerUnidiStreamCount(100)
        .set_StreamMultiReceiveEnabled();
    if let Some(bytes) = number("MAX_DATA")? {
        settings = settings.set_ConnFlowControlWindow(bytes);
    }
    if let Some(bytes) = number("MAX_STREAM_DATA")? {
        settings = settings.set_StreamRecvWindowDefault(bytes);
    }
    if let Some(packets) = number("IW")? {
        settings = settings.set_InitialWindowPackets(packets);
    }
    Ok(match std::env::var("CC").unwrap_or_default().as_str() {
        "" => settings,
        "cubic" => settings.set_CongestionControlAlgorithm(0),
        "bbr" => settings.set_CongestionControlAlgorithm(1),
        other => bail!("CC={other}: MsQuic has cubic and bbr"),
    })
}

fn key_log() -> Result<Option<std::fs::File>> {
    Ok(match std::env::var("SSLKEYLOGFILE") {
        Ok(path) => Some(OpenOptions::new().create(true).append(true).open(path)?),
        Err(_) => None,
    })
}

async fn serve(
    registration: &Registration,
    configuration: Configuration,
    alpn: &[BufferRef],
    h3: bool,
) -> Result<()> {
    let files = CertificateFile::new("/certs/priv.key".into(), "/certs/cert.pem".into());
    let credential = CredentialConfig::new().set_credential(Credential::CertificateFile(files));
    configuration.load_credential(&credential)?;
    let listener = Listener::new(registration, configuration)?;
    if let Some(file) = key_log()? {
        listener.set_sslkeylog_file(file)?;
    }
    listener.start_on_port(&alpn, Some(443))?;
    let mut ended = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    loop {
        let connection = tokio::select! {
            connection = listener.accept() => connection?,
            _ = ended.recv() => std::process::exit(0),
        };
        tokio::spawn(async move {
            let done = if h3 {
                serve_h3(connection).await
            } else {
                serve_hq(connection).await
            };
            if let Err(error) = done {
                eprintln!("{error:#}");
            }
        });
    }
}

/// The file of a path below a directory.
fn below(directory: &str, path: &str) -> Result<PathBuf> {
    let name = Path::new(path.trim())
        .file_name()
        .context("a path that names no file")?;
    Ok(Path::new(directory).join(name))
}

async fn serve_hq(connection: Connection) -> Result<()> {
    while let Ok(mut stream) = connection.accept_inbound_stream().await {
        let mut request = Vec::new();
        while let Some(chunk) = stream.read_chunk().await? {
            request.extend_from_slice(&whole(chunk));
            anyhow::ensure!(request.len() <= 4096, "a request of more than 4096 bytes");
            if request.ends_with(b"\n") {
                break;
            }
        }
        let text = String::from_utf8(request)?;
        let mut source = tokio::fs::File::open(below("/www", text.trim_start_matches("GET "))?).await?;
        tokio::io::copy(&mut source, &mut stream).await?;
        stream.shutdown().await?;
    }
    Ok(())
}

async fn serve_h3(connection: Connection) -> Result<()> {
    let transport = h3_msquic_async::Connection::new(connection);
    let mut connection = h3::server::Connection::<_, Bytes>::new(transport).await?;
    while let Some(resolver) = connection.accept().await? {
        let (request, mut stream) = resolver.resolve_request().await?;
        tokio::spawn(async move {
            let mut source = tokio::fs::File::open(below("/www", request.uri().path())?).await?;
            stream.send_response(http::Response::new(())).await?;
            let mut piece = vec![0; PIECE];
            loop {
                let length = source.read(&mut piece).await?;
                if length == 0 {
                    break;
                }
                stream
                    .send_data(Bytes::copy_from_slice(&piece[..length]))
                    .await?;
            }
            stream.finish().await?;
            anyhow::Ok(())
        });
    }
    Ok(())
}

async fn fetch_all(
    registration: &Registration,
    configuration: &Configuration,
    h3: bool,
    requests: &str,
) -> Result<()> {
    let credential = CredentialConfig::new_client().set_ca_certificate_file("/certs/ca.pem".into());
    configuration.load_credential(&credential)?;
    let targets: Vec<http::Uri> = requests
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let first = targets.first().context("REQUESTS names nothing")?;
    let host = first.host().context("a request without a host")?;
    let connection = Connection::new(registration)?;
    if let Some(file) = key_log()? {
        connection.set_sslkeylog_file(file)?;
    }
    connection
        .start(configuration, host, first.port_u16().unwrap_or(443))
        .await?;
    if h3 {
        fetch_h3(connection, &targets).await?;
    } else {
        fetch_hq(&connection, &targets).await?;
        connection.shutdown(0)?;
        std::future::poll_fn(|context| connection.poll_shutdown(context, 0)).await?;
    }
    Ok(())
}

/// The bytes of a buffer, which may lie in several pieces.
fn whole(mut buffer: impl Buf) -> Bytes {
    buffer.copy_to_bytes(buffer.remaining())
}

async fn fetch_hq(connection: &Connection, targets: &[http::Uri]) -> Result<()> {
    for uri in targets {
        let mut stream = connection
            .open_outbound_stream(StreamType::Bidirectional, false)
            .await?;
        stream
            .write_all(format!("GET {}\r\n", uri.path()).as_bytes())
            .await?;
        stream.shutdown().await?;
        let mut sink = tokio::fs::File::create(below("/downloads", uri.path())?).await?;
        while let Some(chunk) = stream.read_chunk().await? {
            sink.write_all(&whole(chunk)).await?;
        }
        sink.flush().await?;
    }
    Ok(())
}

async fn fetch_h3(connection: Connection, targets: &[http::Uri]) -> Result<()> {
    let transport = h3_msquic_async::Connection::new(connection);
    let (mut driver, mut sender) = h3::client::new(transport).await?;
    let driving =
        tokio::spawn(async move { std::future::poll_fn(|context| driver.poll_close(context)).await });
    for uri in targets {
        let mut stream = sender
            .send_request(http::Request::get(uri.clone()).body(())?)
            .await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        if !response.status().is_success() {
            bail!("{uri}: {}", response.status());
        }
        let mut sink = tokio::fs::File::create(below("/downloads", uri.path())?).await?;
        while let Some(mut piece) = stream.recv_data().await? {
            sink.write_all_buf(&mut piece).await?;
        }
        sink.flush().await?;
    }
    // The last sender of requests ends the connection.
    drop(sender);
    driving.await.ok();
    Ok(())
}

//! A plain loop over the QUIC library: bytes on one stream from a server to a client, and nothing
//! else. `make bench` holds `bentpipe perf` and `bentpipe quic-pep` against it.
//!
//! `plain_loop server ADDRESS CERTIFICATE` writes its certificate there (PEM) and says `ready`;
//! `plain_loop client ADDRESS CERTIFICATE BYTES` downloads so many. The controller is the library's
//! own; sockets, packet size, windows and acknowledgements are those of `bentpipe perf`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use bentpipe_os::quic_socket;
use bentpipe_perf::tls::{self, Credentials, Sessions, Trust};
use noq::{AckFrequencyConfig, ClientConfig, Connection, Endpoint, EndpointConfig, ServerConfig};
use noq::{TokioRuntime, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

const NAME: &str = "plain.test";
const PROTOCOL: &[u8] = b"plain";
/// UDP payload that fills a packet of 1500 bytes over IPv6.
const PACKET: u16 = 1452;
const WINDOW: u32 = 32 << 20;
const PACKETS_PER_ACK: u32 = 10;
/// What is written at once.
static PIECE: [u8; 64 << 10] = [0; 64 << 10];

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", address, certificate] => serve(address.parse()?, Path::new(certificate)).await,
        ["client", address, certificate, bytes] => {
            fetch(address.parse()?, Path::new(certificate), bytes.parse()?).await
        }
        _ => bail!("give server ADDRESS CERTIFICATE, or client ADDRESS CERTIFICATE BYTES"),
    }
}

fn transport() -> Arc<TransportConfig> {
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(PACKETS_PER_ACK - 1));
    let mut config = TransportConfig::default();
    config
        .ack_frequency_config(Some(acks))
        .initial_mtu(PACKET)
        .mtu_discovery_config(None)
        .stream_receive_window(VarInt::from_u32(WINDOW))
        .receive_window(VarInt::from_u32(WINDOW))
        .send_window(WINDOW.into());
    Arc::new(config)
}

fn endpoint(address: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let (socket, _) = quic_socket::bind(address, server.is_some())?;
    let config = EndpointConfig::default();
    let runtime = Arc::new(TokioRuntime);
    Ok(Endpoint::new_with_abstract_socket(
        config, server, socket, runtime,
    )?)
}

async fn serve(address: SocketAddr, certificate: &Path) -> Result<()> {
    let (credentials, pem) = Credentials::generate(vec![NAME.to_owned()])?;
    std::fs::write(certificate, pem).with_context(|| certificate.display().to_string())?;
    let mut config = ServerConfig::with_crypto(tls::server(credentials, &[PROTOCOL], None)?);
    config.transport_config(transport());
    let endpoint = endpoint(address, Some(config))?;
    println!("ready");
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let done = match incoming.await {
                Ok(connection) => answer(&connection).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = done {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

/// Sends as many bytes as the first eight of the stream say.
async fn answer(connection: &Connection) -> Result<()> {
    let (mut send, mut receive) = connection.accept_bi().await?;
    let mut asked = [0; 8];
    receive.read_exact(&mut asked).await?;
    let mut left = u64::from_be_bytes(asked);
    while left > 0 {
        let piece = PIECE.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        left -= send.write(&PIECE[..piece]).await? as u64;
    }
    send.finish()?;
    connection.closed().await;
    Ok(())
}

async fn fetch(address: SocketAddr, certificate: &Path, bytes: u64) -> Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let trust = Trust::Roots(Arc::new(roots));
    let sessions = Arc::new(Sessions::default());
    let mut config = ClientConfig::new(tls::client(&trust, PROTOCOL, sessions, None));
    config.transport_config(transport());
    let here = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let endpoint = endpoint(here.parse()?, None)?;
    let connection = endpoint.connect_with(config, address, NAME)?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&bytes.to_be_bytes()).await?;
    send.finish()?;
    let mut got = 0;
    while let Some(chunk) = receive.read_chunk(usize::MAX).await? {
        got += chunk.len() as u64;
    }
    ensure!(got == bytes, "{got} bytes came, {bytes} were asked for");
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(())
}

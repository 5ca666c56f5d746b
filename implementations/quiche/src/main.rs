//! An endpoint of quiche by the contract of docs/matrix.md: HTTP/3 and HTTP/0.9 over QUIC (hq-interop).

mod client;
mod server;

use std::fs::OpenOptions;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Windows of quiche's own programs: the library has none of its own.
const CONNECTION_WINDOW: u64 = 10_000_000;
const STREAM_WINDOW: u64 = 1_000_000;
const MOST_CONNECTION_WINDOW: u64 = 24 << 20;
const MOST_STREAM_WINDOW: u64 = 16 << 20;
const IDLE_MS: u64 = 30_000;
const DATAGRAM: usize = 1350;
/// The longest that a signal waits to be seen.
const LOOK: Duration = Duration::from_millis(100);

fn main() -> Result<()> {
    let h3 = std::env::var("TESTCASE").unwrap_or_default() == "http3";
    let config = config(h3)?;
    if std::env::var("ROLE").unwrap_or_default() == "server" {
        server::run(config, h3)
    } else {
        client::run(config, h3, &std::env::var("REQUESTS").unwrap_or_default())
    }
}

/// A knob in bytes or packets; None leaves the default.
fn number(name: &str) -> Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text
            .parse()
            .map(Some)
            .with_context(|| format!("{name}={text}: give a whole number")),
        _ => Ok(None),
    }
}

fn config(h3: bool) -> Result<quiche::Config> {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(if h3 {
        quiche::h3::APPLICATION_PROTOCOL
    } else {
        &[b"hq-interop"]
    })?;
    config.log_keys();
    config.grease(false);
    config.set_max_idle_timeout(IDLE_MS);
    config.set_max_recv_udp_payload_size(DATAGRAM);
    config.set_max_send_udp_payload_size(DATAGRAM);
    let connection = number("MAX_DATA")?.unwrap_or(CONNECTION_WINDOW);
    let stream = number("MAX_STREAM_DATA")?.unwrap_or(STREAM_WINDOW);
    config.set_initial_max_data(connection);
    config.set_max_connection_window(connection.max(MOST_CONNECTION_WINDOW));
    config.set_initial_max_stream_data_bidi_local(stream);
    config.set_initial_max_stream_data_bidi_remote(stream);
    config.set_initial_max_stream_data_uni(stream);
    config.set_max_stream_window(stream.max(MOST_STREAM_WINDOW));
    config.set_initial_max_streams_bidi(100);
    config.set_initial_max_streams_uni(100);
    config.set_disable_active_migration(true);
    if let Some(packets) = number("IW")? {
        config.set_initial_congestion_window_packets(packets.try_into()?);
    }
    match std::env::var("CC").unwrap_or_default().as_str() {
        "" => {}
        name => {
            if config.set_cc_algorithm_name(name).is_err() {
                bail!("CC={name}: quiche has cubic, reno and bbr2_gcongestion");
            }
        }
    }
    Ok(config)
}

/// Where a connection writes its secrets.
fn log_keys(connection: &mut quiche::Connection) -> Result<()> {
    if let Ok(path) = std::env::var("SSLKEYLOGFILE") {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        connection.set_keylog(Box::new(file));
    }
    Ok(())
}

/// A connection identifier of its own.
fn identifier() -> Result<quiche::ConnectionId<'static>> {
    let mut bytes = vec![0; quiche::MAX_CONN_ID_LEN];
    getrandom::fill(&mut bytes)
        .ok()
        .context("the system has no randomness")?;
    Ok(quiche::ConnectionId::from_vec(bytes))
}

/// The file of a path below a directory.
fn below(directory: &str, path: &str) -> Result<PathBuf> {
    let name = Path::new(path.trim())
        .file_name()
        .context("a path that names no file")?;
    Ok(Path::new(directory).join(name))
}

/// A UDP socket and the packets that are paced to leave it later.
struct Wire {
    socket: UdpSocket,
    later: std::collections::VecDeque<(Instant, Vec<u8>, SocketAddr)>,
}

impl Wire {
    fn new(socket: UdpSocket) -> Self {
        Self {
            socket,
            later: std::collections::VecDeque::new(),
        }
    }

    /// Takes what a connection has to send; nothing while older packets still wait for their time.
    fn take(&mut self, connection: &mut quiche::Connection) -> Result<()> {
        self.flush()?;
        while self.later.is_empty() {
            let mut packet = vec![0; DATAGRAM];
            match connection.send(&mut packet) {
                Ok((length, info)) => {
                    packet.truncate(length);
                    self.later.push_back((info.at, packet, info.to));
                    self.flush()?;
                }
                Err(quiche::Error::Done) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends what is due.
    fn flush(&mut self) -> Result<()> {
        while self
            .later
            .front()
            .is_some_and(|(at, ..)| *at <= Instant::now())
        {
            let (_, packet, to) = self.later.pop_front().expect("there is one");
            self.socket.send_to(&packet, to)?;
        }
        Ok(())
    }

    /// Waits for a packet, at most until a timer of a connection or the next packet's time.
    fn receive(
        &self,
        buffer: &mut [u8],
        timer: Option<Duration>,
    ) -> Result<Option<(usize, SocketAddr)>> {
        let mut wait = timer.unwrap_or(LOOK).min(LOOK);
        if let Some((at, ..)) = self.later.front() {
            wait = wait.min(at.saturating_duration_since(Instant::now()));
        }
        self.socket
            .set_read_timeout(Some(wait.max(Duration::from_micros(10))))?;
        match self.socket.recv_from(buffer) {
            Ok(received) => Ok(Some(received)),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock
                        | std::io::ErrorKind::TimedOut
                        | std::io::ErrorKind::Interrupted
                        | std::io::ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

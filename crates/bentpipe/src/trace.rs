//! `bentpipe trace`: captures and qlogs to columns and summaries.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use bentpipe_trace::capture::CaptureError;
use bentpipe_trace::keylog::KeyLog;
use bentpipe_trace::parquet::Tables;
use bentpipe_trace::qlog;
use bentpipe_trace::read::{self, ReadError, Trace};
use bentpipe_trace::rows::Sink;
use bentpipe_trace::summary::ConnectionSummary;
use serde::Serialize;

use crate::failure::{self, Failure};

/// Read packet captures: QUIC decrypted, TCP by sequence number; and qlogs
///
/// Reads pcap, pcapng and qlog, also compressed with gzip or Zstandard. For each FILE a
/// directory is written with packets.parquet (a row a packet), streams.parquet (a row a
/// stream frame), http3.parquet (a row an HTTP/3 frame) and summary.json.
#[derive(Debug, clap::Args)]
pub struct Command {
    /// The captures or qlogs
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// TLS secrets (SSLKEYLOGFILE); without it, those in the capture itself
    #[arg(long)]
    keys: Vec<PathBuf>,
    /// Where to write; a directory for each capture, by its name
    #[arg(long, default_value = "out/trace")]
    out: PathBuf,
    /// Summaries only: no tables
    #[arg(long)]
    no_tables: bool,
    /// Print the summaries as JSON, a line a capture
    #[arg(long)]
    json: bool,
}

/// What is read.
const WANTED: &str = "trace takes captures (pcap, pcapng) and qlogs";

/// `summary.json`.
#[derive(Debug, Serialize)]
struct Summary<'a> {
    capture: String,
    packets: u64,
    bytes: u64,
    /// UDP datagrams of no QUIC connection.
    other_datagrams: u64,
    /// Neither UDP nor TCP.
    other_packets: u64,
    /// Why reading ended early.
    damage: Option<String>,
    connections: &'a [ConnectionSummary],
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let mut given = KeyLog::default();
    for path in &command.keys {
        let mut text = Vec::new();
        (failure::open(path, "")?.read_to_end(&mut text))
            .map_err(|error| Failure::file(path, error))?;
        given.add(&text);
        if given.is_empty() {
            return Err(Failure::file(
                path,
                "no secrets in it; a key log has lines like CLIENT_TRAFFIC_SECRET_0 <random> <secret>",
            ));
        }
    }
    let mut damaged = 0;
    for path in &command.files {
        let trace = one(command, path, &given)?;
        damaged += usize::from(trace.damage.is_some());
    }
    if damaged > 0 {
        let of = command.files.len();
        return Err(anyhow::anyhow!("{damaged} of {of} captures are damaged or truncated; what comes before the damage is in the tables").into());
    }
    Ok(())
}

/// Whether there is something to read; a pipe is not looked into.
fn check(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(file) if file.is_file() && file.len() == 0 => {
            Err(Failure::file(path, format!("the file is empty; {WANTED}")))
        }
        Ok(file) if !file.is_file() && !file.is_dir() => Ok(()),
        _ => failure::open(path, WANTED).map(drop),
    }
}

fn one(command: &Command, path: &Path, given: &KeyLog) -> Result<Trace, Failure> {
    check(path)?;
    let source = Source::of(path, given).map_err(|error| Failure::file(path, error))?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    let directory = command.out.join(name);
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("making {}", directory.display()))?;
    let refused = |error: ReadError<_>| match error {
        ReadError::Capture(error) => Failure::file(path, error),
        ReadError::Sink(error) => {
            Failure::Runtime(anyhow::Error::new(error).context(directory.display().to_string()))
        }
    };
    let trace = if command.no_tables {
        let mut nothing = bentpipe_trace::rows::Nothing;
        (source.read(path, &mut nothing)).map_err(|error| match error {
            ReadError::Capture(error) => Failure::file(path, error),
            ReadError::Sink(never) => match never {},
        })?
    } else {
        let made = |error| Failure::Runtime(anyhow::Error::new(error));
        let mut tables = Tables::create(&directory).map_err(made)?;
        let trace = source.read(path, &mut tables).map_err(refused)?;
        tables.close().map_err(made)?;
        trace
    };
    let summary = Summary {
        capture: path.display().to_string(),
        packets: trace.packets,
        bytes: trace.bytes,
        other_datagrams: trace.strangers,
        other_packets: trace.others,
        damage: trace.damage.as_ref().map(ToString::to_string),
        connections: &trace.connections,
    };
    let json = serde_json::to_string(&summary).context("a summary is plain data")?;
    let file = directory.join("summary.json");
    std::fs::write(&file, &json).with_context(|| format!("writing {}", file.display()))?;
    if command.json {
        println!("{json}");
    } else {
        print!("{}", text(&summary));
        println!("{}", directory.display());
    }
    Ok(trace)
}

/// What a file is.
enum Source {
    /// A capture, with the secrets for it.
    Capture(KeyLog),
    Qlog,
}

impl Source {
    fn of(path: &Path, given: &KeyLog) -> Result<Self, CaptureError> {
        Ok(if qlog::begins_like_one(path)? {
            Self::Qlog
        } else if given.is_empty() {
            Self::Capture(read::secrets_of(path)?)
        } else {
            Self::Capture(given.clone())
        })
    }

    fn read<S: Sink>(self, path: &Path, sink: &mut S) -> Result<Trace, ReadError<S::Error>>
    where
        S::Error: std::error::Error,
    {
        match self {
            Self::Capture(log) => read::read(path, log, sink),
            Self::Qlog => qlog::read(path, sink),
        }
    }
}

/// The summary for people.
fn text(summary: &Summary<'_>) -> String {
    use std::fmt::Write;
    let mut text = format!("{}: {} packets\n", summary.capture, summary.packets);
    let ms = |s: Option<f64>| s.map_or("-".into(), |s| format!("{:.1}", s * 1e3));
    for connection in summary.connections {
        let server = &connection.server_sent;
        let mbit = connection
            .goodput
            .request_bit_s
            .map_or("-".into(), |rate| format!("{:.3}", rate / 1e6));
        let _ = writeln!(
            text,
            "  {} {} {} -> {}: handshake {} ms, first byte {} ms, last byte {} ms",
            connection.protocol,
            connection.connection,
            connection.client,
            connection.server,
            ms(connection.handshake_s),
            ms(connection.first_byte_s),
            ms(connection.last_byte_s),
        );
        let _ = writeln!(
            text,
            "    from the server {} B of streams in {} packets, {mbit} Mbit/s; {} B repeated ({} B needlessly), {} B late, {} CE",
            server.stream_bytes,
            server.packets,
            server.repeated_bytes,
            server.spurious_bytes,
            server.late_bytes,
            server.ce_marked,
        );
        for pattern in &server.patterns {
            let _ = writeln!(text, "    {}: {}", pattern.name, pattern.evidence);
        }
        for (why, count) in &connection.undecrypted {
            let _ = writeln!(text, "    {count} packets are not decrypted: {why}");
        }
        if let Some(close) = &connection.close {
            let kind = if close.application {
                "application"
            } else {
                "transport"
            };
            let _ = writeln!(
                text,
                "    closed by the {} ({kind} code {:#x}) {}",
                close.by, close.code, close.reason
            );
        }
    }
    if let Some(damage) = &summary.damage {
        let _ = writeln!(text, "  {damage}");
    }
    text
}

//! `bentpipe trace`: captures and qlogs to columns and summaries.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use bentpipe_trace::capture::{CaptureError, Reader};
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
    /// Of these, those below a link type that is not read, by its number (LINKTYPE_ of tcpdump.org).
    unknown_link_types: &'a BTreeMap<u32, u64>,
    /// Why reading ended early.
    damage: Option<String>,
    connections: &'a [ConnectionSummary],
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let given = secrets(&command.keys)?;
    let (mut damaged, mut unread) = (0, 0);
    let directories = directories(&command.out, &command.files);
    let of = command.files.len();
    for (path, directory) in command.files.iter().zip(&directories) {
        match one(command, path, directory, &given) {
            Ok(trace) => damaged += usize::from(trace.damage.is_some()),
            // The others may be read.
            Err(failure @ Failure::Configuration(_)) if of > 1 => {
                unread += 1;
                failure.report();
            }
            Err(failure) => return Err(failure),
        }
    }
    let mut why = Vec::new();
    if unread > 0 {
        why.push(format!("{unread} of {of} files cannot be read"));
    }
    if damaged > 0 {
        why.push(format!("{damaged} of {of} captures are damaged or truncated; what comes before the damage is in the tables"));
    }
    match why.is_empty() {
        true => Ok(()),
        false => Err(anyhow::anyhow!(why.join("; ")).into()),
    }
}

/// The secrets of all key logs.
fn secrets(files: &[PathBuf]) -> Result<KeyLog, Failure> {
    let mut log = KeyLog::default();
    for path in files {
        (log.read(BufReader::new(failure::open(path, "")?)))
            .map_err(|error| Failure::file(path, error))?;
        if log.is_empty() {
            return Err(Failure::file(
                path,
                "no secrets in it; a key log has lines like CLIENT_TRAFFIC_SECRET_0 <random> <secret>",
            ));
        }
    }
    Ok(log)
}

/// Where the tables of each file go: below `out`, by its name, or by its path from the directory that they share
/// where two have one name.
fn directories(out: &Path, files: &[PathBuf]) -> Vec<PathBuf> {
    let name = |file: &PathBuf| PathBuf::from(file.file_name().unwrap_or(file.as_os_str()));
    let whole: Vec<_> = (files.iter())
        .map(|file| file.canonicalize().unwrap_or_else(|_| name(file)))
        .collect();
    let different: HashSet<_> = whole.iter().collect();
    let names: HashSet<_> = different.iter().map(|file| name(file)).collect();
    if names.len() == different.len() {
        return files.iter().map(|file| out.join(name(file))).collect();
    }
    let shared = (whole[0].ancestors()).find(|above| {
        whole
            .iter()
            .all(|file| file != above && file.starts_with(above))
    });
    let below = |file: &PathBuf| {
        file.strip_prefix(shared.unwrap_or(Path::new("/")))
            .map(Path::to_owned)
    };
    (whole.iter())
        .map(|file| out.join(below(file).unwrap_or_else(|_| name(file))))
        .collect()
}

/// Whether there is something to read, more than once.
fn check(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(file) if file.is_file() && file.len() == 0 => {
            Err(Failure::file(path, format!("the file is empty; {WANTED}")))
        }
        Ok(file) if !file.is_file() && !file.is_dir() => Err(Failure::file(
            path,
            "no regular file; trace reads a capture more than once, so write it to one first",
        )),
        _ => failure::open(path, WANTED).map(drop),
    }
}

fn one(command: &Command, path: &Path, directory: &Path, given: &KeyLog) -> Result<Trace, Failure> {
    check(path)?;
    let source = Source::of(path, given).map_err(|error| Failure::file(path, error))?;
    std::fs::create_dir_all(directory)
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
        let mut tables = Tables::create(directory).map_err(made)?;
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
        unknown_link_types: &trace.unknown_links,
        damage: trace.damage.as_ref().map(ToString::to_string),
        connections: &trace.connections,
    };
    let file = directory.join("summary.json");
    File::create(&file)
        .and_then(|to| write_json(to, &summary))
        .with_context(|| format!("writing {}", file.display()))?;
    if command.json {
        write_json(io::stdout(), &summary).context("writing to standard output")?;
    } else {
        print!("{}", text(&summary));
        println!("{}", directory.display());
    }
    Ok(trace)
}

/// Writes a line, without all of it in memory: a connection has some kilobytes.
fn write_json(to: impl Write, summary: &Summary<'_>) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    serde_json::to_writer(&mut to, summary)?;
    writeln!(to)?;
    to.flush()
}

/// What a file is.
enum Source<'g> {
    /// A capture, with the secrets for it.
    Capture(Cow<'g, KeyLog>),
    Qlog,
}

impl<'g> Source<'g> {
    fn of(path: &Path, given: &'g KeyLog) -> Result<Self, CaptureError> {
        Ok(if qlog::begins_like_one(path)? {
            Self::Qlog
        } else if given.is_empty() {
            Self::Capture(Cow::Owned(read::secrets_of(path)?))
        } else {
            Reader::open(path)?;
            Self::Capture(Cow::Borrowed(given))
        })
    }

    fn read<S: Sink>(self, path: &Path, sink: &mut S) -> Result<Trace, ReadError<S::Error>>
    where
        S::Error: std::error::Error,
    {
        match self {
            Self::Capture(log) => read::read(path, &log, sink),
            Self::Qlog => qlog::read(path, sink),
        }
    }
}

/// The summary for people.
fn text(summary: &Summary<'_>) -> String {
    use std::fmt::Write;
    let mut text = format!("{}: {} packets\n", summary.capture, summary.packets);
    for (count, what) in [
        (
            summary.other_datagrams,
            "UDP datagrams are of no QUIC connection",
        ),
        (
            summary.other_packets,
            "packets are neither UDP nor TCP, or parts of packets",
        ),
    ] {
        if count > 0 {
            let _ = writeln!(text, "  {count} {what}");
        }
    }
    for (link, count) in summary.unknown_link_types {
        let _ = writeln!(
            text,
            "  {count} of them have link type {link}, which is not read"
        );
    }
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

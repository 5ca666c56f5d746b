//! `bentpipe perf client`: the end that asks.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use bentpipe_cc::PathMemory;
use bentpipe_perf::client;
use bentpipe_perf::clock::Clock;
use bentpipe_perf::protocol::PORT;
use bentpipe_perf::quic::{QuicDialler, Target};
use bentpipe_perf::report::Record;
use bentpipe_perf::tls::Trust;
use bentpipe_perf::workload::{Amount, RequestAmount, Requests, Workload};
use bentpipe_quic::fingerprint::Fingerprint;
use bentpipe_units::{Bytes, Span};
use clap::Args;
use noq::TokioRuntime;

use super::options::Transport;
use super::output::{Output, is_stdout};
use super::{endpoint, table};
use crate::daemon;
use crate::failure::Failure;

/// Measure towards HOST, where `bentpipe perf server` or another perf server runs
///
/// Without anything else: a download of ten seconds. AMOUNT is a number of bytes, like
/// "10 MiB", or a time, like "10 s".
#[derive(Debug, Args)]
pub struct Command {
    /// The server: a name or an address, with its port if that is not 4433
    host: String,
    /// From the server
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    download: Option<Amount>,
    /// To the server; beside --download both at once
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    upload: Option<Amount>,
    /// Small requests, one after the other: so many, or for so long ("10 s"); beside a
    /// transfer they measure latency under load
    #[arg(long, value_name = "COUNT|TIME", value_parser = request_amount)]
    requests: Option<RequestAmount>,
    /// Bytes of a request
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "100 B",
        requires = "requests"
    )]
    request_size: Bytes,
    /// Bytes of its answer
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "1000 B",
        requires = "requests"
    )]
    response_size: Bytes,
    /// Time from one request to the next; without it the next follows the answer
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0 s",
        requires = "requests"
    )]
    request_every: Span,
    /// Streams of each transfer
    #[arg(long, default_value_t = 1)]
    streams: u32,
    /// Connections, begun at once, each with all of the above
    #[arg(long, default_value_t = 1)]
    connections: u32,
    /// Make a connection first that is not measured, and resume from it with 0-RTT
    #[arg(long)]
    resume: bool,
    /// Length of an interval
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    interval: Span,
    /// How long the server may take to answer the first packet
    #[arg(long, value_name = "TIME", default_value = "10 s")]
    timeout: Span,

    /// Certificate authority of the server, or its own certificate (PEM); without, those that
    /// this machine trusts
    #[arg(long, value_name = "FILE", conflicts_with = "fingerprint")]
    ca: Option<PathBuf>,
    /// Fingerprint of the server's key, as `bentpipe perf server` prints it
    #[arg(long)]
    fingerprint: Option<Fingerprint>,
    /// The name that the server's certificate is for, if it is not HOST
    #[arg(long)]
    name: Option<String>,

    /// Write the report as JSON (`bentpipe schema perf`); `-` is the standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a line of JSON for each interval and request (`bentpipe schema perf-records`)
    #[arg(long, value_name = "FILE")]
    records: Option<PathBuf>,
    /// And one for each change of this end's window, pacing or losses
    #[arg(long, requires = "records")]
    changes: bool,

    #[command(flatten)]
    transport: Transport,
}

fn amount(text: &str) -> Result<Amount, String> {
    let bytes = Bytes::from_str(text).map(Amount::Bytes);
    bytes
        .or_else(|_| Span::from_str(text).map(Amount::Time))
        .map_err(|_| {
            format!(
                "{text:?} is neither a number of bytes, like \"10 MiB\", nor a time, like \"10 s\""
            )
        })
}

fn request_amount(text: &str) -> Result<RequestAmount, String> {
    let count = text.parse().map(RequestAmount::Count);
    count
        .or_else(|_| Span::from_str(text).map(RequestAmount::Time))
        .map_err(|_| {
            format!("{text:?} is neither a number of requests, like 100, nor a time, like \"10 s\"")
        })
}

impl Command {
    fn workload(&self) -> Result<Workload, Failure> {
        if self.resume && self.connections > 1 {
            return Err(Failure::Configuration(
                "--resume with --connections: one connection resumes from another; leave one of them out".into(),
            ));
        }
        let default = Workload::default();
        let nothing = self.download.is_none() && self.upload.is_none() && self.requests.is_none();
        let workload = Workload {
            connections: self.connections,
            streams: self.streams,
            download: if nothing {
                default.download
            } else {
                self.download
            },
            upload: self.upload,
            requests: self.requests.map(|amount| Requests {
                amount,
                request: self.request_size,
                response: self.response_size,
                every: self.request_every,
            }),
            interval: self.interval,
            changes: self.changes,
        };
        workload
            .check()
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        Ok(workload)
    }

    fn trust(&self) -> Result<Trust, Failure> {
        Ok(match self.fingerprint {
            Some(key) => Trust::Key(key),
            None => Trust::Roots(Arc::new(endpoint::roots(self.ca.as_deref())?)),
        })
    }
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let workload = command.workload()?;
    let parameters = command.transport.parameters()?;
    let trust = command.trust()?;
    let mut json = command.json.as_deref().map(Output::open).transpose()?;
    let mut records = command.records.as_deref().map(Output::open).transpose()?;
    // Whoever reads JSON from the standard output wants nothing else there.
    let quiet = [&command.json, &command.records]
        .into_iter()
        .flatten()
        .any(|path| is_stdout(path));
    daemon::block_on(async {
        let (address, name) = endpoint::resolve(&command.host, PORT).await?;
        let local: SocketAddr = match address {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let quic = endpoint::open(local, &parameters, None).map_err(anyhow::Error::from)?;
        let dialler = QuicDialler::new(
            quic.clone(),
            Target {
                address,
                name: command.name.clone().unwrap_or(name),
                trust,
                resume: command.resume,
                patience: command.timeout,
            },
            &parameters,
            PathMemory::default(),
            endpoint::key_log(),
        );
        if !quiet {
            say(&format!(
                "{} to {address}: {workload}",
                parameters.settings.controller
            ));
            say(table::HEAD);
        }
        let mut failed = None;
        let mut record = |record: &Record| {
            if let (Record::Interval(interval), false) = (record, quiet) {
                say(&table::row(interval));
            }
            if let Some(records) = &mut records {
                let line = serde_json::to_string(record).expect("records are plain data");
                failed = failed.take().or(records.line(&line).err());
            }
        };
        let clock = Clock::new(Arc::new(TokioRuntime));
        let own = (&parameters).into();
        let report = client::run(&dialler, &clock, &workload, own, &mut record)
            .await
            .map_err(anyhow::Error::from);
        // The server is told why, also when its certificate was refused.
        daemon::patiently(quic.wait_idle()).await;
        let report = report?;
        if !quiet {
            for line in table::summary(&report) {
                say(&line);
            }
        }
        if let Some(json) = &mut json {
            json.line(&report.to_json())?;
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        match report.error {
            Some(error) => Err(anyhow::anyhow!(error).into()),
            None => Ok(()),
        }
    })
}

/// A line for people; nobody may be reading any more.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

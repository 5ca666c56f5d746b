//! `bentpipe perf client`: the end that asks.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use bentpipe_os::tcp_measured::TcpDialler;
use bentpipe_perf::clock::Clock;
use bentpipe_perf::datagrams::Datagrams;
use bentpipe_perf::parameters::Parameters;
use bentpipe_perf::protocol::PORT;
use bentpipe_perf::quic::{QuicDialler, Target};
use bentpipe_perf::report::{ParametersReport, Record, Report};
use bentpipe_perf::tls::Trust;
use bentpipe_perf::transport::Dial;
use bentpipe_perf::workload::{Amount, RequestAmount, Requests, Workload};
use bentpipe_perf::{client, iperf3};
use bentpipe_quic::fingerprint::Fingerprint;
use bentpipe_units::{Bytes, Rate, Span};
use clap::Args;
use noq::TokioRuntime;

use super::options::{Over, Transport, reported};
use super::output::{Output, is_stdout};
use super::path::PathFile;
use super::{endpoint, table};
use crate::daemon::{self, StopSignals};
use crate::failure::Failure;

/// Tells the mark of the routes with a client's initial window over TCP, beside the process.
const MARK: u32 = 0x6274_0000;

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
    /// Datagrams (RFC 9221) at this rate, which `bentpipe perf server` answers: loss, jitter and
    /// reordering each way
    #[arg(long, value_name = "RATE")]
    datagrams: Option<Rate>,
    /// Bytes of a datagram
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "1000 B",
        requires = "datagrams"
    )]
    datagram_size: Bytes,
    /// For how long they are sent
    #[arg(
        long,
        value_name = "TIME",
        default_value = "10 s",
        requires = "datagrams"
    )]
    datagram_time: Span,
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
    /// Write it as iperf3 would; `-` is the standard output
    #[arg(long, value_name = "FILE")]
    iperf3_json: Option<PathBuf>,
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
        if self.datagrams.is_some() && self.connections > 1 {
            return Err(Failure::Configuration(
                "--datagrams with --connections: the rate is of one connection; leave one of them out".into(),
            ));
        }
        if self.resume && self.connections > 1 {
            return Err(Failure::Configuration(
                "--resume with --connections: one connection resumes from another; leave one of them out".into(),
            ));
        }
        let default = Workload::default();
        let nothing = self.download.is_none()
            && self.upload.is_none()
            && self.requests.is_none()
            && self.datagrams.is_none();
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
            datagrams: self.datagrams.map(|rate| Datagrams {
                rate,
                size: self.datagram_size.as_u64(),
                time: self.datagram_time,
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
    let outputs = Outputs::open(command)?;
    match command.transport.over {
        Over::Quic => {
            let parameters = command.transport.quic()?;
            let trust = command.trust()?;
            let path = command.transport.path()?;
            let ends = (&parameters, trust);
            daemon::block_on(over_quic(command, &workload, ends, &path, outputs))
        }
        Over::Tcp => {
            let trusts =
                command.ca.is_some() || command.fingerprint.is_some() || command.name.is_some();
            if trusts || command.resume || command.changes || command.datagrams.is_some() {
                return Err(Failure::Configuration(
                    "--ca, --fingerprint, --name, --resume, --datagrams and --changes have no meaning over TCP, which is unencrypted and has none of these; leave them out".into(),
                ));
            }
            let options = (command.transport).tcp(MARK + (std::process::id() & 0xffff))?;
            daemon::block_on(async {
                let mut stop = StopSignals::new();
                let (address, _) = endpoint::resolve(&command.host, PORT).await?;
                let own = reported(&options);
                let dialler = TcpDialler {
                    address,
                    options,
                    patience: command.timeout,
                };
                tokio::select! {
                    measured = measure(&dialler, &workload, own, outputs) => measured?.finish(),
                    // In order, so that the routes of an initial window go as well.
                    _ = stop.stop() => Err(anyhow::anyhow!("stopped by a signal").into()),
                }
            })
        }
    }
}

async fn over_quic(
    command: &Command,
    workload: &Workload,
    (parameters, trust): (&Parameters, Trust),
    path: &PathFile,
    outputs: Outputs,
) -> Result<(), Failure> {
    let (address, name) = endpoint::resolve(&command.host, PORT).await?;
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let quic = endpoint::open(local, parameters, None).map_err(anyhow::Error::from)?;
    let dialler = QuicDialler::new(
        quic.clone(),
        Target {
            address,
            name: command.name.clone().unwrap_or(name),
            trust,
            resume: command.resume,
            patience: command.timeout,
        },
        parameters,
        path.memory(),
        endpoint::key_log(),
    );
    let measured = measure(&dialler, workload, parameters.into(), outputs).await;
    // The server is told why, also when its certificate was refused.
    daemon::patiently(quic.wait_idle()).await;
    path.write()?;
    measured?.finish()
}

/// Where results go.
struct Outputs {
    json: Option<Output>,
    records: Option<Output>,
    iperf3: Option<Output>,
    /// Whoever reads JSON from the standard output wants nothing else there.
    quiet: bool,
}

impl Outputs {
    fn open(command: &Command) -> Result<Self, Failure> {
        Ok(Self {
            json: command.json.as_deref().map(Output::open).transpose()?,
            records: command.records.as_deref().map(Output::open).transpose()?,
            iperf3: command
                .iperf3_json
                .as_deref()
                .map(Output::open)
                .transpose()?,
            quiet: [&command.json, &command.records, &command.iperf3_json]
                .into_iter()
                .flatten()
                .any(|path| is_stdout(path)),
        })
    }

    /// A line for people; nobody may be reading any more.
    fn say(&self, line: &str) {
        if !self.quiet {
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
}

/// A measurement that is over.
struct Measured {
    report: Report,
    outputs: Outputs,
}

/// Measures, with a table of it for people while it goes on.
async fn measure<D: Dial>(
    dialler: &D,
    workload: &Workload,
    own: ParametersReport,
    mut outputs: Outputs,
) -> Result<Measured, Failure> {
    let controller = own
        .controller
        .clone()
        .unwrap_or_else(|| "the kernel".into());
    outputs.say(&format!(
        "{} ({controller}) to {}: {workload}",
        dialler.kind().name(),
        dialler.peer()
    ));
    outputs.say(table::HEAD);
    let mut failed = None;
    let mut record = |record: &Record| {
        if let Record::Interval(interval) = record {
            outputs.say(&table::row(interval));
        }
        if let Some(records) = &mut outputs.records {
            let line = serde_json::to_string(record).expect("records are plain data");
            failed = failed.take().or(records.line(&line).err());
        }
    };
    let clock = Clock::new(Arc::new(TokioRuntime));
    let report = client::run(dialler, &clock, workload, own, &mut record).await;
    match failed {
        Some(failed) => Err(failed),
        None => Ok(Measured {
            report: report.map_err(anyhow::Error::from)?,
            outputs,
        }),
    }
}

impl Measured {
    /// Tells the result.
    fn finish(mut self) -> Result<(), Failure> {
        for line in table::summary(&self.report) {
            self.outputs.say(&line);
        }
        if let Some(json) = &mut self.outputs.json {
            json.line(&self.report.to_json())?;
        }
        if let Some(iperf3) = &mut self.outputs.iperf3 {
            iperf3.line(&iperf3::document(&self.report).to_string())?;
        }
        match self.report.error {
            Some(error) => Err(anyhow::anyhow!(error).into()),
            None => Ok(()),
        }
    }
}

//! `bentpipe perf client`: the end that asks.

use std::str::FromStr;
use std::sync::Arc;

use bentpipe_os::quic_runtime::SystemRuntime;
use bentpipe_os::tcp_measured::TcpDialler;
use bentpipe_os::tcp_options::TcpOptions;
use bentpipe_perf::client;
use bentpipe_perf::clock::Clock;
use bentpipe_perf::datagrams::Datagrams;
use bentpipe_perf::parameters::Parameters;
use bentpipe_perf::protocol::Application;
use bentpipe_perf::report::{ParametersReport, Report};
use bentpipe_perf::transport::Dial;
use bentpipe_perf::workload::{Amount, RequestAmount, Requests, Workload};
use bentpipe_units::{Bytes, Rate, Span};
use clap::Args;

use super::options::{Over, Transport, reported};
use super::path::PathFile;
use super::peer::{Peer, Tried, first_that_answers};
use super::results::{Outputs, Results};
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

    #[command(flatten)]
    peer: Peer,

    #[command(flatten)]
    results: Results,

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
        if self.peer.resume && self.connections > 1 {
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
            interval: self.results.interval,
            stall: self.peer.stall,
            changes: self.results.changes,
        };
        workload
            .check()
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        Ok(workload)
    }
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let workload = command.workload()?;
    let outputs = Outputs::open(&command.results)?;
    match command.transport.over {
        Over::Quic => {
            let parameters = command.transport.quic()?;
            let path = command.transport.path()?;
            daemon::block_on(over_quic(command, &workload, &parameters, &path, outputs))
        }
        Over::Tcp => {
            if command.peer.needs_tls() || workload.changes || command.datagrams.is_some() {
                return Err(Failure::Configuration(
                    "--ca, --fingerprint, --name, --resume, --datagrams and --changes have no meaning over TCP, which is unencrypted and has none of these; leave them out".into(),
                ));
            }
            let options = (command.transport).tcp(MARK + (std::process::id() & 0xffff))?;
            daemon::block_on(over_tcp(command, &workload, options, outputs))
        }
    }
}

async fn over_tcp(
    command: &Command,
    workload: &Workload,
    options: TcpOptions,
    outputs: Outputs,
) -> Result<(), Failure> {
    let (addresses, _) = command.peer.resolve(&command.host).await?;
    let mut outputs = outputs;
    let measured = first_that_answers(&addresses, async |address| {
        let dialler = TcpDialler {
            address,
            options: options.clone(),
            patience: command.peer.timeout,
        };
        Ok(measure(&dialler, workload, reported(&options), &mut outputs).await)
    });
    let report = measured.await?;
    outputs.end(report).finish()
}

async fn over_quic(
    command: &Command,
    workload: &Workload,
    parameters: &Parameters,
    path: &PathFile,
    outputs: Outputs,
) -> Result<(), Failure> {
    let (addresses, name) = command.peer.resolve(&command.host).await?;
    let mut outputs = outputs;
    let measured = first_that_answers(&addresses, async |address| {
        let server = (address, name.as_str());
        let dialled = command
            .peer
            .dialler(server, Application::Perf, parameters, path);
        let (dialler, quic) = dialled?;
        let tried = measure(&dialler, workload, parameters.into(), &mut outputs).await;
        // The server is told why, also when its certificate was refused.
        daemon::patiently(quic.wait_idle()).await;
        Ok(tried)
    });
    let report = measured.await?;
    let kept = path.write();
    outputs.end(report).finish()?;
    kept
}

/// Measures towards one address, with a table of it for people while it goes on. A signal ends it, and what there is is reported.
async fn measure<D: Dial>(
    dialler: &D,
    workload: &Workload,
    own: ParametersReport,
    outputs: &mut Outputs,
) -> Tried {
    let controller = own
        .controller
        .clone()
        .unwrap_or_else(|| "the kernel".into());
    let kind = dialler.kind().name();
    outputs.begin(&format!(
        "{kind} ({controller}) to {}: {workload}",
        dialler.peer()
    ));
    let clock = Clock::new(Arc::new(SystemRuntime));
    let mut signals = StopSignals::new();
    let stop = async {
        signals.stop().await;
    };
    let mut record = |record: &_| outputs.record(record);
    let asked = own.clone();
    let report = client::run(dialler, &clock, workload, own, stop, &mut record).await;
    let unanswered = matches!(&report, Err(error) if error.is_of_the_address());
    let failed = |error| {
        let what = workload.to_string();
        Report::failed(dialler.kind(), dialler.peer(), asked, what, &error)
    };
    Tried {
        report: report.unwrap_or_else(failed),
        unanswered,
    }
}

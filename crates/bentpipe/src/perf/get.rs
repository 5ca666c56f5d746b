//! `bentpipe perf get`: files by HTTP/3 or HTTP/0.9 over QUIC, measured.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bentpipe_os::quic_runtime::SystemRuntime;
use bentpipe_perf::clock::Clock;
use bentpipe_perf::files::{self, Fetch, Store};
use bentpipe_perf::parameters::Parameters;
use bentpipe_perf::protocol::Application;
use bentpipe_perf::report::Report;
use bentpipe_perf::transport::Dial as _;
use bentpipe_perf::workload;
use clap::{Args, ValueEnum};
use http::Uri;

use super::files::{Directory, Nowhere};
use super::options::{Over, Transport};
use super::path::PathFile;
use super::peer::{Peer, Tried, first_that_answers};
use super::results::{Outputs, Results};
use crate::daemon::{self, StopSignals};
use crate::failure::Failure;

/// Files that may be asked for at the same time.
const MOST_AT_ONCE: usize = 256;

/// Fetch files over one QUIC connection, and measure it
///
/// From any server of HTTP/3 or of HTTP/0.9 over QUIC, such as `bentpipe perf server --www`.
#[derive(Debug, Args)]
pub struct Command {
    /// The files, like https://server.example:4433/file; all of one server
    #[arg(required = true, value_name = "URL")]
    urls: Vec<Uri>,
    /// The application protocol
    #[arg(long, value_enum, default_value_t = Alpn::H3)]
    alpn: Alpn,
    /// Keep the files in this directory, each by the last part of its path
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Files that are asked for at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    at_once: usize,

    #[command(flatten)]
    peer: Peer,

    #[command(flatten)]
    results: Results,

    #[command(flatten)]
    transport: Transport,
}

/// How files are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Alpn {
    /// HTTP/3
    H3,
    /// HTTP/0.9 over QUIC, as the QUIC Interop Runner has it
    HqInterop,
}

impl Command {
    /// The server that all URLs are of.
    fn host(&self) -> Result<String, Failure> {
        let wrong = |url: &Uri, why: &str| Failure::Configuration(format!("{url}: {why}"));
        let first = &self.urls[0];
        for url in &self.urls {
            if url.scheme_str() != Some("https") {
                return Err(wrong(
                    url,
                    "give a URL like https://server.example:4433/file",
                ));
            }
            if url.authority() != first.authority() {
                return Err(wrong(
                    url,
                    "it is another server's than the first; all files come over one connection",
                ));
            }
        }
        let authority = first.authority();
        let authority = authority.ok_or_else(|| wrong(first, "it names no server"))?;
        let port = authority.port_u16().unwrap_or(443);
        Ok(format!("{}:{port}", authority.host()))
    }

    /// No file is kept under the name of another.
    fn check_names(&self) -> Result<(), Failure> {
        let mut names = BTreeSet::new();
        let kept = |url: &Uri| Path::new(url.path()).file_name().map(ToOwned::to_owned);
        match self.urls.iter().find(|url| !names.insert(kept(url))) {
            None => Ok(()),
            Some(again) => Err(Failure::Configuration(format!(
                "{again}: another file would be kept under the same name in --save"
            ))),
        }
    }

    fn fetch(&self) -> Result<Fetch, Failure> {
        if !(1..=MOST_AT_ONCE).contains(&self.at_once) {
            return Err(Failure::Configuration(format!(
                "--at-once {}: give 1 to {MOST_AT_ONCE}",
                self.at_once
            )));
        }
        let store: Arc<dyn Store> = match &self.save {
            None => Arc::new(Nowhere),
            Some(path) => {
                self.check_names()?;
                Arc::new(Directory::open(path).map_err(|error| Failure::file(path, error))?)
            }
        };
        self.results.check()?;
        workload::check_stall(self.peer.stall)
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        Ok(Fetch {
            files: self.urls.clone(),
            at_once: self.at_once,
            store,
            interval: self.results.interval,
            stall: self.peer.stall,
            changes: self.results.changes,
        })
    }
}

pub fn run(command: &Command) -> Result<(), Failure> {
    if command.transport.over == Over::Tcp {
        return Err(Failure::Configuration(
            "--over tcp: files are fetched over QUIC only; `bentpipe perf client --over tcp` measures TCP".into(),
        ));
    }
    let (host, fetch) = (command.host()?, command.fetch()?);
    let parameters = command.transport.quic()?;
    let path = command.transport.path()?;
    let outputs = Outputs::open(&command.results)?;
    daemon::block_on(over_quic(
        command,
        &host,
        &fetch,
        (&parameters, &path),
        outputs,
    ))
}

async fn over_quic(
    command: &Command,
    host: &str,
    fetch: &Fetch,
    (parameters, path): (&Parameters, &PathFile),
    mut outputs: Outputs,
) -> Result<(), Failure> {
    let application = match command.alpn {
        Alpn::H3 => Application::Http3,
        Alpn::HqInterop => Application::Http09,
    };
    let (addresses, name) = command.peer.resolve(host).await?;
    let measured = first_that_answers(&addresses, async |address| {
        let server = (address, name.as_str());
        let (dialler, quic) = command
            .peer
            .dialler(server, application, parameters, path)?;
        outputs.begin(&format!("{} files from {address}", fetch.files.len()));
        let clock = Clock::new(Arc::new(SystemRuntime));
        let mut signals = StopSignals::new();
        let stop = async {
            signals.stop().await;
        };
        let mut record = |record: &_| outputs.record(record);
        let own = || parameters.into();
        let report = files::run(&dialler, &clock, fetch, own(), stop, &mut record).await;
        let unanswered = matches!(&report, Err(error) if error.is_of_the_address());
        let failed = |error| {
            let what = fetch.what(application);
            Report::failed(dialler.kind(), address, own(), what, &error)
        };
        let report = report.unwrap_or_else(failed);
        // The server is told why, also when its certificate was refused.
        daemon::patiently(quic.wait_idle()).await;
        Ok(Tried { report, unanswered })
    });
    let report = measured.await?;
    let kept = path.write();
    outputs.end(report).finish()?;
    kept
}

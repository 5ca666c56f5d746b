//! `bentpipe perf server`: the end that answers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_os::quic_runtime::SystemRuntime;
use bentpipe_os::tcp_measured;
use bentpipe_perf::clock::Clock;
use bentpipe_perf::files::Files;
use bentpipe_perf::protocol::{Application, NO_ERROR};
use bentpipe_perf::report::{ParametersReport, Report};
use bentpipe_perf::server::Service;
use bentpipe_perf::tls::{self, Credentials};
use bentpipe_units::Span;
use clap::Args;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::files::Directory;
use super::options::{Over, Transport, reported};
use super::output::Output;
use super::path::PathFile;
use super::{endpoint, table};
use crate::daemon::{self, StopSignals};
use crate::failure::{self, Failure};

/// Tells the mark of the routes with this server's initial window over TCP, beside the port.
const MARK: u32 = 0x6273_0000;

/// Answer measurements
///
/// Whoever reaches the port can make this machine send: let only those through who may.
#[derive(Debug, Args)]
pub struct Command {
    /// Address and port
    #[arg(long, value_name = "ADDRESS", default_value = "[::]:4433")]
    listen: SocketAddr,
    /// The server's certificate and those that lead to its authority (PEM); without, one is made
    /// for a new key, which clients know by the fingerprint that is printed
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Names for the certificate that is made [default: localhost]
    #[arg(long, value_name = "NAME", conflicts_with = "certificate")]
    name: Vec<String>,
    /// Write the certificate that is made to FILE, for the clients' --ca
    #[arg(long, value_name = "FILE", conflicts_with = "certificate")]
    certificate_out: Option<PathBuf>,
    /// Serve the files of this directory to whoever asks by HTTP/3 or by HTTP/0.9 over QUIC
    #[arg(long, value_name = "DIR")]
    www: Option<PathBuf>,
    /// Connections at the same time; more are refused. Each may hold --window and --send-window
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    max_connections: usize,
    /// Length of an interval
    #[arg(long, value_name = "TIME", default_value = "1 s")]
    interval: Span,
    /// Write a report of each connection, a line of JSON (`bentpipe schema perf`); `-` is the
    /// standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    transport: Transport,
}

impl Command {
    fn credentials(&self) -> Result<Credentials, Failure> {
        let (Some(certificate), Some(key)) = (&self.certificate, &self.key) else {
            let names = match &self.name[..] {
                [] => vec!["localhost".to_owned()],
                names => names.to_vec(),
            };
            let (credentials, pem) = Credentials::generate(names)
                .map_err(|error| Failure::Configuration(format!("--name: {error}")))?;
            if let Some(path) = &self.certificate_out {
                std::fs::write(path, pem).map_err(|error| Failure::file(path, error))?;
            }
            return Ok(credentials);
        };
        let text = failure::read(key)?;
        let private = PrivateKeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| Failure::file(key, format!("not a private key in PEM: {error}")))?;
        Ok(Credentials {
            chain: endpoint::certificates(certificate)?,
            key: private,
        })
    }

    /// An option that is given and says nothing over TCP.
    fn without_effect_over_tcp(&self) -> Option<&'static str> {
        [
            ("--certificate", self.certificate.is_some()),
            ("--name", !self.name.is_empty()),
            ("--certificate-out", self.certificate_out.is_some()),
            ("--www", self.www.is_some()),
        ]
        .into_iter()
        .find_map(|(name, given)| given.then_some(name))
    }

    fn files(&self) -> Result<Option<Arc<dyn Files>>, Failure> {
        let Some(path) = &self.www else {
            return Ok(None);
        };
        let directory = Directory::open(path).map_err(|error| Failure::file(path, error))?;
        Ok(Some(Arc::new(directory)))
    }
}

pub fn run(command: &Command) -> Result<(), Failure> {
    if command.interval < Span::from_millis(1) || command.max_connections == 0 {
        return Err(Failure::Configuration(
            "give an --interval of at least 1 ms and at least one of --max-connections".into(),
        ));
    }
    let json = command.json.as_deref().map(Output::open).transpose()?;
    let path = command.transport.path()?;
    let files = command.files()?;
    let service = |parameters| Service {
        files: files.clone(),
        clock: Clock::new(Arc::new(SystemRuntime)),
        parameters,
        interval: command.interval,
        connections: command.max_connections,
        tell: tell(json, path.clone()),
    };
    match command.transport.over {
        Over::Quic => over_quic(command, &path, service),
        Over::Tcp => {
            if let Some(name) = command.without_effect_over_tcp() {
                return Err(Failure::Configuration(format!(
                    "{name} has no effect over TCP, which is unencrypted and serves no files; leave it out"
                )));
            }
            let options = command
                .transport
                .tcp(MARK + u32::from(command.listen.port()))?;
            daemon::block_on(async {
                let mut stop = StopSignals::new();
                let listener = options.listen(command.listen).map_err(|error| {
                    daemon::cannot_listen("--listen", "TCP", command.listen, &error)
                })?;
                let local = listener.local_addr().map_err(anyhow::Error::from)?;
                daemon::ready(format_args!("perf server on {local}, TCP, unencrypted"));
                let service = service(reported(&options));
                tokio::spawn(tcp_measured::serve(service, listener, options));
                stop.stop().await;
                Ok(())
            })
        }
    }
}

fn over_quic(
    command: &Command,
    path: &PathFile,
    service: impl FnOnce(ParametersReport) -> Service,
) -> Result<(), Failure> {
    let parameters = command.transport.quic()?;
    let credentials = command.credentials()?;
    let fingerprint = credentials
        .fingerprint()
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    let protocols: &[Application] = match &command.www {
        Some(_) => &Application::ALL,
        None => &[Application::Perf],
    };
    let protocols: Vec<_> = protocols.iter().map(|each| each.alpn()).collect();
    let tls = tls::server(credentials, &protocols, crate::key_log::of_environment())
        .map_err(|error| Failure::Configuration(error.to_string()))?;
    let versions = command.transport.versions();
    daemon::block_on(async {
        let mut stop = StopSignals::new();
        let mut config = noq::ServerConfig::with_crypto(tls);
        config.transport_config(Arc::new(parameters.transport(path.memory())));
        let quic = endpoint::open(command.listen, &parameters, &versions, Some(config))
            .map_err(|error| daemon::cannot_listen("--listen", "UDP", command.listen, &error))?;
        let local = quic.local_addr().map_err(anyhow::Error::from)?;
        daemon::ready(format_args!("perf server on {local}, key {fingerprint}"));
        tokio::spawn(service((&parameters).into()).quic(quic.clone()));
        stop.stop().await;
        quic.close(NO_ERROR, b"the server is stopped");
        daemon::patiently(quic.wait_idle()).await;
        Ok(())
    })
}

/// Prints each report for people, or as JSON where that is wanted.
fn tell(json: Option<Output>, path: PathFile) -> Arc<dyn Fn(Report) + Send + Sync> {
    let json = Mutex::new(json);
    Arc::new(move |report| {
        if let Err(error) = path.write() {
            tracing::error!("{error}");
        }
        let mut json = json.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *json {
            Some(json) => {
                if let Err(error) = json.line(&report.to_json()) {
                    tracing::error!("{error}");
                }
            }
            None => {
                let outcome = report.error.as_deref().unwrap_or("ok");
                daemon::say(format_args!("{}: {outcome}", report.peer));
                for line in table::summary(&report) {
                    daemon::say(format_args!("  {line}"));
                }
            }
        }
    })
}

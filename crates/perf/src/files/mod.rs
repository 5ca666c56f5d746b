//! Files by HTTP/3 and by HTTP/0.9 over QUIC: what other stacks' clients and servers exchange.
//!
//! A file's connection is measured like any other. How long each file took stands in the report
//! as a request.

pub(crate) mod http09;
pub(crate) mod http3;

use std::io;
use std::sync::Arc;

use bentpipe_units::Span;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::Uri;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use crate::client::Measurement;
use crate::clock::Clock;
use crate::error::PerfError;
use crate::latency::Latencies;
use crate::meter::Meter;
use crate::protocol::Application;
use crate::quic::{QuicConnection, QuicDialler};
use crate::report::{ParametersReport, Record, Report};

/// Bytes of a file that are handled at once.
const PIECE: usize = 64 << 10;

/// A file that is read.
pub type Source = Box<dyn AsyncRead + Send + Unpin>;
/// A file that is written.
pub type Sink = Box<dyn AsyncWrite + Send + Unpin>;

/// Where a server's files come from.
pub trait Files: Send + Sync + 'static {
    /// The file at an absolute path, and how long it is.
    fn open<'a>(&'a self, path: &'a str) -> BoxFuture<'a, io::Result<(Source, u64)>>;
}

/// Where a client's files go.
pub trait Store: Send + Sync + 'static {
    /// Where the file of that path goes.
    fn create<'a>(&'a self, path: &'a str) -> BoxFuture<'a, io::Result<Sink>>;
}

/// What a client asks for.
#[derive(Clone)]
pub struct Fetch {
    /// The files, in the order in which they are asked for.
    pub files: Vec<Uri>,
    /// How many are asked for at the same time.
    pub at_once: usize,
    /// Where they go.
    pub store: Arc<dyn Store>,
    /// How long an interval of the report is.
    pub interval: Span,
    /// How long nothing may move.
    pub stall: Span,
    /// Whether each change of the sender's state is recorded.
    pub changes: bool,
}

/// Fetches files over one connection of `dialler`, in its application protocol, until it has them or `stop`
/// resolves.
///
/// # Errors
/// What keeps the measurement from being begun. What goes wrong later stands in the report.
pub async fn run(
    dialler: &QuicDialler,
    clock: &Clock,
    fetch: &Fetch,
    parameters: ParametersReport,
    stop: impl Future<Output = ()>,
    record: &mut dyn FnMut(&Record),
) -> Result<Report, PerfError> {
    let application = dialler.application();
    let latencies = Latencies::new();
    let measurement = Measurement {
        what: fetch.what(application),
        connections: 1,
        interval: fetch.interval,
        stall: fetch.stall,
        changes: fetch.changes,
        latencies: latencies.clone(),
    };
    let begin = measurement.run(
        dialler,
        clock,
        parameters,
        stop,
        record,
        |tasks, connection, meter| {
            let (fetch, connection) = (fetch.clone(), connection.clone());
            let (meter, latencies) = (meter.clone(), latencies.clone());
            tasks.push(
                async move {
                    fetch
                        .over(application, &connection, &meter, &latencies)
                        .await
                }
                .boxed(),
            );
        },
    );
    begin.await
}

impl Fetch {
    /// What is done, in words.
    pub fn what(&self, application: Application) -> String {
        format!(
            "{} files by {}, {} at once",
            self.files.len(),
            String::from_utf8_lossy(application.alpn()),
            self.at_once
        )
    }

    async fn over(
        &self,
        application: Application,
        connection: &QuicConnection,
        meter: &Meter,
        latencies: &Latencies,
    ) -> Result<(), PerfError> {
        let fetch = || self.begin(application, connection, meter, latencies);
        match fetch().await {
            // No answer can have come before that.
            Err(_) if connection.early_data_refused().await => fetch().await,
            done => done,
        }
    }

    async fn begin(
        &self,
        application: Application,
        connection: &QuicConnection,
        meter: &Meter,
        latencies: &Latencies,
    ) -> Result<(), PerfError> {
        let http3 = match application {
            Application::Http3 => Some(http3::Client::new(connection).await?),
            _ => None,
        };
        let http3 = http3.as_ref();
        let fetched = stream::iter(self.files.clone()).map(|file| async move {
            let asked = meter.clock().now();
            let path = file.path();
            let mut sink = self.store.create(path).await.map_err(of_file(path))?;
            match http3 {
                Some(client) => client.fetch(&file, &mut sink, meter).await?,
                None => http09::fetch(connection.inner(), &file, &mut sink, meter).await?,
            }
            sink.shutdown().await.map_err(of_file(path))?;
            latencies.add(asked, meter.clock().now());
            Ok(())
        });
        fetched
            .buffer_unordered(self.at_once.max(1))
            .try_collect()
            .await
    }
}

/// What an error means for the file at `path`.
fn of_file<E: std::fmt::Display>(path: &str) -> impl FnOnce(E) -> PerfError {
    let path = path.to_owned();
    move |error| PerfError::File {
        path,
        why: error.to_string(),
    }
}

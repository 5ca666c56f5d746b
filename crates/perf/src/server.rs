//! The server: answers what it is asked for, and reports on each connection when it has ended.

use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bentpipe_units::Span;
use noq::{ConnectionError, Endpoint, Incoming};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::datagrams::Answers;
use crate::error::PerfError;
use crate::files::{self, Files};
use crate::meter::{Intervals, Meter};
use crate::parameters::STREAMS;
use crate::protocol::{Application, NO_ERROR};
use crate::quic::{self, QuicConnection, note_confirmed};
use crate::report::{ParametersReport, Record, Report, Role, SCHEMA, TransportKind, nanos};
use crate::stall;
use crate::streams;
use crate::transport::{Connection, ReceiveHalf, SendHalf, SharedEstablishment};
use crate::workload::STALL;

/// Streams of a connection that are being answered: those that a client may have open, and those behind whose end an
/// answer waits until the client lets this end open a stream for it. No more are taken until some have ended.
const MOST_TASKS: usize = 4 * STREAMS as usize;

/// Is handed each report.
pub type Tell = Arc<dyn Fn(Report) + Send + Sync>;

/// How a server serves.
#[derive(Clone)]
pub struct Service {
    /// The clock by which reports are made.
    pub clock: Clock,
    /// How this end is set up, for its reports.
    pub parameters: ParametersReport,
    /// How long an interval of a report is.
    pub interval: Span,
    /// Connections at the same time; more are refused.
    pub connections: usize,
    /// Is handed the report of each connection.
    pub tell: Tell,
    /// What clients may ask for by HTTP/3 and HTTP/0.9.
    pub files: Option<Arc<dyn Files>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Service")
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Serves the connections that come to `endpoint`, until it is closed.
    pub async fn quic(self, endpoint: Endpoint) {
        let open = Arc::new(AtomicUsize::new(0));
        while let Some(incoming) = endpoint.accept().await {
            if open.load(Ordering::Relaxed) >= self.connections {
                incoming.refuse();
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let (service, open) = (self.clone(), open.clone());
            tokio::spawn(async move {
                service.connection(incoming).await;
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    async fn connection(&self, incoming: Incoming) {
        let peer = incoming.remote_address();
        let clock = self.clock.again();
        // Early data are there before the handshake is over.
        let Ok(mut connecting) = incoming.accept() else {
            return;
        };
        // The first flight says which protocol it is in; that it fails is told below.
        let _ = connecting.handshake_data().await;
        let Ok((connection, done)) = connecting.into_0rtt() else {
            return;
        };
        let establishment = SharedEstablishment::default();
        let (told, on) = (establishment.clone(), clock.clone());
        tokio::spawn(async move {
            done.await;
            told.note(|all| all.done_ns = Some(nanos(on.now())));
        });
        note_confirmed(&connection, &establishment, &clock);
        self.serve(&clock, peer, connection, establishment).await;
    }

    /// Serves one connection with `peer` to its end, by `clock`.
    pub async fn serve(
        &self,
        clock: &Clock,
        peer: SocketAddr,
        connection: noq::Connection,
        establishment: SharedEstablishment,
    ) {
        let measured = QuicConnection::new(0, connection.clone(), establishment);
        let mut watch = Watch::new(self, clock, peer, measured, TransportKind::Quic);
        let meter = watch.meter();
        let application = Application::of(&connection).unwrap_or_default();
        let work = async {
            match (application, &self.files) {
                (Application::Http3, Some(files)) => {
                    files::http3::serve(&connection, files, &meter).await
                }
                (Application::Http09, Some(files)) => {
                    files::http09::serve(&connection, files, &meter).await
                }
                _ => serve_perf(&connection, clock, &meter).await,
            }
            connection.closed().await
        };
        let ended = watch.during(work).await;
        let error = match ended {
            ConnectionError::ApplicationClosed(close)
                // Some stacks say so in another protocol's words.
                if [NO_ERROR, application.no_error()].contains(&close.error_code) =>
            {
                None
            }
            // The HTTP/3 library closes connections by itself.
            ConnectionError::LocallyClosed if application == Application::Http3 => None,
            ConnectionError::LocallyClosed => Some(PerfError::Stopped.to_string()),
            error => Some(PerfError::connection(&error, peer, application.alpn()).to_string()),
        };
        watch.end(error);
    }

    /// Serves a connection with `peer` that is one stream, of whatever transport. One that stalls is given up, so that a
    /// client that has gone without a word keeps its place from nobody.
    pub async fn stream<C: Connection>(
        &self,
        clock: &Clock,
        peer: SocketAddr,
        connection: C,
        kind: TransportKind,
        (send, receive): (C::Send, C::Receive),
    ) {
        let mut watch = Watch::new(self, clock, peer, connection.clone(), kind);
        let meter = watch.meter();
        let watched = [(meter.clone(), connection)];
        // The stream's figures are complete when it is closed.
        let work = async {
            tokio::select! {
                biased;
                done = serve_stream(send, receive, &meter) => done,
                stalled = stall::stalled(STALL, clock, &watched) => Err(stalled),
            }
        };
        let ended = watch.during(work).await;
        watch.end(ended.err().map(|error| error.to_string()));
    }
}

/// A connection's report while it is made.
struct Watch<'a, C> {
    service: &'a Service,
    clock: Clock,
    peer: SocketAddr,
    kind: TransportKind,
    intervals: Intervals,
    connections: [(Arc<Meter>, C); 1],
}

impl<'a, C: Connection> Watch<'a, C> {
    fn new(
        service: &'a Service,
        clock: &Clock,
        peer: SocketAddr,
        connection: C,
        kind: TransportKind,
    ) -> Self {
        Self {
            service,
            clock: clock.clone(),
            peer,
            kind,
            intervals: Intervals::new(service.interval, Span::ZERO),
            connections: [(Meter::new(clock.clone()), connection)],
        }
    }

    /// Counts the bytes of its streams.
    fn meter(&self) -> Arc<Meter> {
        self.connections[0].0.clone()
    }

    /// Ends intervals and begins the next ones, until `work` has ended.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = self.clock.sleep_until(self.intervals.next()) => {
                    self.intervals
                        .end(&self.clock, &self.connections, &mut |_: &Record| {});
                }
            }
        }
    }

    /// Hands over the report; `error` is why the connection ended, if not well.
    fn end(mut self, error: Option<String>) {
        self.intervals
            .end(&self.clock, &self.connections, &mut |_: &Record| {});
        let [(meter, connection)] = &self.connections;
        let report = meter.report(0, connection);
        (self.service.tell)(Report {
            schema: SCHEMA.into(),
            role: Role::Server,
            transport: self.kind,
            peer: self.peer.to_string(),
            parameters: self.service.parameters.clone(),
            workload: None,
            ok: error.is_none(),
            error,
            duration_ns: nanos(self.clock.now()),
            received_bytes: report.received_bytes,
            sent_bytes: report.sent_bytes,
            connections: vec![report],
            intervals: self.intervals.all,
            intervals_omitted: self.intervals.omitted,
            requests: None,
            datagrams: None,
        });
    }
}

/// Answers what is asked for in the perf protocol, until the connection ends.
async fn serve_perf(connection: &noq::Connection, clock: &Clock, meter: &Arc<Meter>) {
    let mut tasks = JoinSet::new();
    let mut answers = Answers::default();
    loop {
        tokio::select! {
            biased;
            stream = connection.accept_bi(), if tasks.len() < MOST_TASKS => match stream {
                Ok((send, receive)) => {
                    let (send, receive) = (quic::Send(send), quic::Receive(receive));
                    let meter = meter.clone();
                    tasks.spawn(async move { serve_stream(send, receive, &meter).await });
                }
                Err(_) => return,
            },
            stream = connection.accept_uni(), if tasks.len() < MOST_TASKS => match stream {
                Ok(receive) => {
                    let (connection, meter) = (connection.clone(), meter.clone());
                    tasks.spawn(async move {
                        serve_one_way(connection, quic::Receive(receive), &meter).await
                    });
                }
                Err(_) => return,
            },
            Some(stream) = tasks.join_next() => {
                if let Ok(Err(error)) = stream {
                    tracing::debug!("a stream: {error}");
                }
            }
            datagram = connection.read_datagram() => match datagram {
                Ok(datagram) => {
                    let answer = answers.to(datagram, clock.now());
                    // An answer that cannot be sent is one that is lost.
                    let _ = answer.map(|answer| connection.send_datagram(answer));
                }
                Err(_) => return,
            },
        }
    }
}

/// Reads a request and answers on the same stream.
async fn serve_stream(
    mut send: impl SendHalf,
    mut receive: impl ReceiveHalf,
    meter: &Meter,
) -> Result<(), PerfError> {
    let bytes = streams::requested(&mut receive, meter).await?;
    streams::answer(&mut send, bytes.unwrap_or(0), meter).await
}

/// Reads a request from a unidirectional stream and answers on another one.
async fn serve_one_way(
    connection: noq::Connection,
    mut receive: quic::Receive,
    meter: &Meter,
) -> Result<(), PerfError> {
    match streams::requested(&mut receive, meter).await? {
        None | Some(0) => Ok(()),
        Some(bytes) => {
            let opened = connection.open_uni().await;
            let mut send = quic::Send(opened.map_err(|error| PerfError::Lost(error.to_string()))?);
            streams::answer(&mut send, bytes, meter).await
        }
    }
}

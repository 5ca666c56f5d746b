//! The client: connects, does its workload, and reports.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use bentpipe_units::Span;
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use futures_util::stream::FuturesUnordered;

use crate::clock::Clock;
use crate::datagrams;
use crate::error::PerfError;
use crate::latency::Latencies;
use crate::meter::{Intervals, Meter};
use crate::report::{DatagramReport, ParametersReport, Record, Report, Role, SCHEMA, nanos};
use crate::stall;
use crate::streams::{self, Until};
use crate::transport::{Connection, Dial};
use crate::workload::{Amount, RequestAmount, Requests, Workload};

/// After its work a client waits at most so long to see a connection confirmed.
const SETTLING: Span = Span::from_millis(1_000);

/// Does `workload` over connections of `dialler`, which is set up as `parameters` say, until it is done or
/// `stop` resolves. Each record is handed over when it is known.
///
/// # Errors
/// What keeps the measurement from being begun: the workload itself, or a server that cannot be
/// reached. What goes wrong later stands in the report.
pub async fn run<D: Dial>(
    dialler: &D,
    clock: &Clock,
    workload: &Workload,
    parameters: ParametersReport,
    stop: impl Future<Output = ()>,
    record: &mut dyn FnMut(&Record),
) -> Result<Report, PerfError> {
    workload.check()?;
    let latencies = Latencies::new();
    let datagrams = Arc::<Mutex<Option<DatagramReport>>>::default();
    let measurement = Measurement {
        what: workload.to_string(),
        connections: workload.connections,
        interval: workload.interval,
        stall: workload.stall + workload.longest_pause(),
        changes: workload.changes,
        latencies: latencies.clone(),
    };
    let report = measurement.run(
        dialler,
        clock,
        parameters,
        stop,
        record,
        |tasks, connection, meter| {
            begin(tasks, workload, connection, meter, &latencies);
            if let Some(what) = workload.datagrams {
                let (connection, clock) = (connection.clone(), meter.clock().clone());
                let told = datagrams.clone();
                tasks.push(
                    async move {
                        let report =
                            datagrams::exchange(&connection, what, &clock, SETTLING).await?;
                        told.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .replace(report);
                        Ok(())
                    }
                    .boxed(),
                );
            }
        },
    );
    let mut report = report.await?;
    if let Some(Amount::Time(time)) = workload.download
        && report.ok
        && report.received_bytes == 0
    {
        (report.ok, report.error) = (false, Some(PerfError::Nothing(time).to_string()));
    }
    Ok(Report {
        datagrams: datagrams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(),
        ..report
    })
}

/// What goes on at the same time.
pub(crate) type Tasks = FuturesUnordered<BoxFuture<'static, Result<(), PerfError>>>;

/// A measurement, whatever is done on its connections.
pub(crate) struct Measurement {
    /// In words.
    pub(crate) what: String,
    pub(crate) connections: u32,
    pub(crate) interval: Span,
    /// How long nothing may move.
    pub(crate) stall: Span,
    pub(crate) changes: bool,
    /// How long answers take.
    pub(crate) latencies: Latencies,
}

impl Measurement {
    /// Makes the connections, has `begin` begin what is done on each, and reports when all of that
    /// has ended, or with what there is when `stop` resolves.
    pub(crate) async fn run<D: Dial>(
        self,
        dialler: &D,
        clock: &Clock,
        parameters: ParametersReport,
        stop: impl Future<Output = ()>,
        record: &mut dyn FnMut(&Record),
        begin: impl Fn(&mut Tasks, &D::Connection, &Arc<Meter>),
    ) -> Result<Report, PerfError> {
        let mut stop = pin!(stop);
        let (clock, connections) = tokio::select! {
            biased;
            connected = self.connect(dialler, clock) => connected?,
            () = &mut stop => return Err(PerfError::Stopped),
        };
        let clock = &clock;
        // In one task, so that what is asked for leaves in the first packet where that is possible.
        let mut tasks = FuturesUnordered::new();
        for (meter, connection) in &connections {
            if self.changes {
                connection.keep_changes();
            }
            begin(&mut tasks, connection, meter);
        }
        let mut intervals = Intervals::new(self.interval, Span::ZERO);
        let mut stalled = pin!(stall::stalled(self.stall, clock, &connections));
        let mut error = None;
        loop {
            tokio::select! {
                biased;
                ended = tasks.next() => match ended {
                    None => break,
                    Some(Ok(())) => {}
                    Some(Err(failed)) => {
                        error = Some(failed.to_string());
                        break;
                    }
                },
                () = &mut stop => {
                    error = Some(PerfError::Stopped.to_string());
                    break;
                }
                stalled = &mut stalled => {
                    error = Some(stalled.to_string());
                    break;
                }
                () = clock.sleep_until(intervals.next()) => {
                    tell(&self.latencies, record);
                    intervals.end(clock, &connections, record);
                }
            }
        }
        tell(&self.latencies, record);
        intervals.end(clock, &connections, record);
        let duration_ns = nanos(clock.now());
        if error.is_none() {
            let settled = join_all(connections.iter().map(|(_, one)| one.settled(clock)));
            tokio::select! {
                biased;
                _ = settled => {}
                () = clock.sleep_until(clock.now() + SETTLING) => {}
            }
        }
        let reports: Vec<_> = (0..)
            .zip(&connections)
            .map(|(number, (meter, connection))| meter.report(number, connection))
            .collect();
        for (_, connection) in &connections {
            connection.close();
        }
        Ok(Report {
            schema: SCHEMA.into(),
            role: Role::Client,
            transport: dialler.kind(),
            peer: dialler.peer().to_string(),
            parameters,
            workload: Some(self.what),
            ok: error.is_none(),
            error,
            duration_ns,
            received_bytes: reports.iter().map(|one| one.received_bytes).sum(),
            sent_bytes: reports.iter().map(|one| one.sent_bytes).sum(),
            connections: reports,
            intervals: intervals.all,
            intervals_omitted: intervals.omitted,
            requests: self.latencies.summary(),
            datagrams: None,
        })
    }

    /// Its connections, and the clock that begins with them.
    async fn connect<D: Dial>(
        &self,
        dialler: &D,
        clock: &Clock,
    ) -> Result<(Clock, Vec<(Arc<Meter>, D::Connection)>), PerfError> {
        dialler.prepare(clock).await?;
        let clock = clock.again();
        let dials = (0..self.connections).map(|number| dialler.dial(number, &clock));
        let dialled = join_all(dials).await;
        let connections = (dialled.into_iter())
            .map(|dialled| Ok((Meter::new(clock.clone()), dialled?)))
            .collect::<Result<_, PerfError>>()?;
        Ok((clock, connections))
    }
}

/// Records the answers since the last time.
fn tell(latencies: &Latencies, record: &mut dyn FnMut(&Record)) {
    for (at_ns, took_ns) in latencies.take() {
        record(&Record::Request { at_ns, took_ns });
    }
}

/// Begins everything that is to be done on `connection`.
fn begin<C: Connection>(
    tasks: &mut Tasks,
    workload: &Workload,
    connection: &C,
    meter: &Arc<Meter>,
    latencies: &Latencies,
) {
    let begun = meter.clock().now();
    for amount in shares(workload.download, workload.streams, begun) {
        let (connection, meter) = (connection.clone(), meter.clone());
        tasks.push(
            async move { early_or_not(|| streams::download(&connection, amount, &meter)).await }
                .boxed(),
        );
    }
    for amount in shares(workload.upload, workload.streams, begun) {
        let (connection, meter) = (connection.clone(), meter.clone());
        tasks.push(
            async move { early_or_not(|| streams::upload(&connection, amount, &meter)).await }
                .boxed(),
        );
    }
    if let Some(requests) = workload.requests {
        let (connection, meter) = (connection.clone(), meter.clone());
        let latencies = latencies.clone();
        tasks.push(async move { ask(&connection, requests, &meter, &latencies).await }.boxed());
    }
}

/// What each stream of a transfer of `amount` carries.
fn shares(amount: Option<Amount>, streams: u32, begun: Span) -> impl Iterator<Item = Until> {
    let streams = u64::from(streams);
    amount.into_iter().flat_map(move |amount| {
        (0..streams).map(move |index| match amount {
            Amount::Time(time) => Until::Time(begun + time),
            Amount::Bytes(bytes) => {
                let rest = u64::from(index < bytes.as_u64() % streams);
                Until::Bytes(bytes.as_u64() / streams + rest)
            }
        })
    })
}

/// Does `work` once more if a server has refused the early data that it was begun with.
async fn early_or_not<F: Future<Output = Result<(), PerfError>>>(
    work: impl Fn() -> F,
) -> Result<(), PerfError> {
    match work().await {
        Err(PerfError::EarlyDataRefused) => {
            // The library (1.3.0) forgets who waits for a stream when a refused one of the same
            // number is dropped: all of these go first, which were woken in the same moment.
            tokio::task::yield_now().await;
            work().await
        }
        done => done,
    }
}

/// Sends requests, one after the other.
async fn ask(
    connection: &impl Connection,
    requests: Requests,
    meter: &Meter,
    latencies: &Latencies,
) -> Result<(), PerfError> {
    let (request, response) = (requests.request.as_u64(), requests.response.as_u64());
    let begun = meter.clock().now();
    let mut asked = 0;
    loop {
        let now = meter.clock().now();
        let enough = match requests.amount {
            RequestAmount::Count(count) => asked >= count,
            RequestAmount::Time(time) => now >= begun + time,
        };
        if enough {
            return Ok(());
        }
        early_or_not(|| streams::request(connection, request, response, meter)).await?;
        let done = meter.clock().now();
        latencies.add(now, done);
        asked += 1;
        let next = now + requests.every;
        if next > done {
            meter.clock().sleep_until(next).await;
        }
    }
}

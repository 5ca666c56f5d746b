//! Connections of the QUIC library as a measurement's transport.

use std::net::SocketAddr;
use std::sync::Arc;

use bentpipe_cc::PathMemory;
use bentpipe_quic::monitor::{Monitor, SenderState};
use bentpipe_quic::transport::FULL_PACKET;
use bentpipe_units::Span;
use bytes::Bytes;
use futures_util::future::{FutureExt as _, Shared};
use noq::{ClientConfig, Endpoint, ReadExactError, RecvStream, SendStream, ZeroRttAccepted};
use noq_proto::{FrameStats, PathId};

use crate::clock::Clock;
use crate::error::PerfError;
use crate::parameters::Parameters;
use crate::protocol::{Application, HEADER, NO_ERROR};
use crate::report::{Change, Establishment, Sender, TransportKind, nanos};
use crate::tls::{self, Sessions, Trust};
use crate::transport::{Connection, Dial, ReceiveHalf, SendHalf, SharedEstablishment};

/// What is sent: a piece of it at a time.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
/// Pieces that are taken from a stream at once.
const PIECES: usize = 32;

/// Sends zeros on a stream of the library's.
#[derive(Debug)]
pub struct Send(pub SendStream);

/// Receives on a stream of the library's.
#[derive(Debug)]
pub struct Receive(pub RecvStream);

impl SendHalf for Send {
    async fn write(&mut self, most: u64) -> Result<u64, PerfError> {
        let most = usize::try_from(most).map_or(ZEROS.len(), |most| most.min(ZEROS.len()));
        let mut piece = [Bytes::from_static(&ZEROS[..most])];
        let written = self.0.write_many_chunks(&mut &mut piece[..]).await?;
        Ok(written as u64)
    }

    async fn write_header(&mut self, header: [u8; HEADER]) -> Result<(), PerfError> {
        Ok(self.0.write_all(&header).await?)
    }

    fn finish(&mut self) -> Result<(), PerfError> {
        // A stream that the peer has stopped already needs no end.
        let _ = self.0.finish();
        Ok(())
    }

    async fn settled(&mut self) {
        let _ = self.0.stopped().await;
    }
}

impl ReceiveHalf for Receive {
    async fn read(&mut self) -> Result<Option<u64>, PerfError> {
        let mut pieces = [const { Bytes::new() }; PIECES];
        let count = self.0.read_many_chunks(&mut pieces).await?;
        Ok(count.map(|count| pieces[..count].iter().map(|piece| piece.len() as u64).sum()))
    }

    async fn read_header(&mut self) -> Result<Option<[u8; HEADER]>, PerfError> {
        let mut header = [0; HEADER];
        match self.0.read_exact(&mut header).await {
            Ok(()) => Ok(Some(header)),
            Err(ReadExactError::FinishedEarly(_)) => Ok(None),
            Err(ReadExactError::ReadError(error)) => Err(error.into()),
        }
    }

    fn stop(&mut self) {
        let _ = self.0.stop(NO_ERROR);
    }
}

/// A connection of the library's that is measured.
#[derive(Debug, Clone)]
pub struct QuicConnection {
    number: u32,
    connection: noq::Connection,
    monitor: Option<Monitor>,
    establishment: SharedEstablishment,
    /// Whether the early data that it began with are taken.
    early: Option<Shared<ZeroRttAccepted>>,
}

impl QuicConnection {
    /// Connection `number`, with what is known of how it came about.
    pub fn new(
        number: u32,
        connection: noq::Connection,
        establishment: SharedEstablishment,
    ) -> Self {
        let controller = connection.congestion_state(PathId::ZERO);
        Self {
            number,
            monitor: controller.and_then(Monitor::of),
            connection,
            establishment,
            early: None,
        }
    }

    /// Waits until it is known whether early data that it began with were refused; all its streams of before are
    /// void then.
    pub(crate) async fn early_data_refused(&self) -> bool {
        match self.early.clone() {
            Some(taken) => !taken.await,
            None => false,
        }
    }

    /// The library's connection.
    pub fn inner(&self) -> &noq::Connection {
        &self.connection
    }

    fn of_state(&self, state: &SenderState) -> Sender {
        let span =
            |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Sender {
            connection: self.number,
            window_bytes: Some(state.window),
            threshold_bytes: state.threshold,
            in_flight_bytes: Some(state.in_flight),
            smoothed_rtt_ns: state.smoothed_rtt.map(span),
            least_rtt_ns: state.least_rtt.map(span),
            pacing_bit_s: state.pacing.map(|rate| rate.saturating_mul(8)),
            acknowledged_bytes: Some(state.acknowledged),
            lost_packets: Some(state.lost_packets),
            retransmitted_bytes: Some(state.lost_bytes),
            congestion_events: Some(state.congestion_events),
            congestion_marks: Some(state.marks),
            ..Sender::default()
        }
    }
}

impl Connection for QuicConnection {
    type Send = Send;
    type Receive = Receive;

    async fn open(&self) -> Result<(Send, Receive), PerfError> {
        let opened = self.connection.open_bi().await;
        let (send, receive) = opened.map_err(|error| {
            let alpn = Application::of(&self.connection).unwrap_or_default().alpn();
            PerfError::connection(&error, self.peer(), alpn)
        })?;
        Ok((Send(send), Receive(receive)))
    }

    fn send_datagram(&self, datagram: Bytes) -> Result<(), PerfError> {
        use noq::SendDatagramError as Error;
        match self.connection.send_datagram(datagram) {
            Ok(()) => Ok(()),
            Err(Error::UnsupportedByPeer | Error::Disabled) => Err(PerfError::NoDatagrams),
            Err(Error::TooLarge) => Err(PerfError::Workload(format!(
                "a datagram is longer than the {} bytes that the path carries",
                self.connection.max_datagram_size().unwrap_or(0)
            ))),
            Err(Error::ConnectionLost(error)) => Err(PerfError::Lost(error.to_string())),
        }
    }

    async fn read_datagram(&self) -> Result<Bytes, PerfError> {
        let read = self.connection.read_datagram().await;
        read.map_err(|error| PerfError::Lost(error.to_string()))
    }

    fn sender(&self) -> Sender {
        let state = self.monitor.as_ref().map(Monitor::state);
        let path = self.connection.path_stats(PathId::ZERO);
        Sender {
            connection: self.number,
            sent_packets: path.map(|path| path.udp_tx.datagrams),
            sent_bytes: path.map(|path| path.udp_tx.bytes),
            packet_bytes: path.map(|path| u64::from(path.current_mtu)),
            ..state.map_or_else(Sender::default, |state| self.of_state(&state))
        }
    }

    fn moved(&self) -> u64 {
        let stats = self.connection.stats();
        let carried = |frames: &FrameStats| frames.stream + frames.datagram;
        // After a loss a long queue is acknowledged for many round trips before anything leaves again. What only keeps
        // the connection open is acknowledged too: in ten minutes it is less than a packet.
        let acknowledged =
            (self.monitor.as_ref()).map_or(0, |monitor| monitor.state().acknowledged);
        let packets = acknowledged / u64::from(FULL_PACKET);
        carried(&stats.frame_tx) + carried(&stats.frame_rx) + packets
    }

    fn keep_changes(&self) {
        if let Some(monitor) = &self.monitor {
            monitor.keep_changes();
        }
    }

    fn take_changes(&self, clock: &Clock) -> (Vec<Change>, u64) {
        let Some(monitor) = &self.monitor else {
            return (Vec::new(), 0);
        };
        let (states, omitted) = monitor.take_changes();
        let changes = states.iter().map(|state| Change {
            at_ns: nanos(clock.at(state.at)),
            sender: self.of_state(state),
        });
        (changes.collect(), omitted)
    }

    fn establishment(&self) -> Establishment {
        self.establishment.get()
    }

    async fn settled(&self, clock: &Clock) {
        if self.connection.handshake_confirmed().await.is_ok() {
            confirmed(&self.establishment, clock);
        }
    }

    fn close(&self) {
        let application = Application::of(&self.connection).unwrap_or_default();
        self.connection.close(application.no_error(), b"");
    }
}

impl QuicConnection {
    fn peer(&self) -> SocketAddr {
        let path = self.connection.path(PathId::ZERO);
        path.and_then(|path| path.remote_address().ok())
            .unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }
}

/// Makes connections of the QUIC library.
#[derive(Debug)]
pub struct QuicDialler {
    endpoint: Endpoint,
    config: ClientConfig,
    sessions: Arc<Sessions>,
    address: SocketAddr,
    name: String,
    application: Application,
    /// A connection that is not measured comes before, and the others resume from it.
    resume: bool,
    /// How long an answer is waited for.
    patience: Span,
}

/// Where a client connects to, and how.
#[derive(Debug, Clone)]
pub struct Target {
    /// The address.
    pub address: SocketAddr,
    /// The name that the certificate has to be for, and that the server is told.
    pub name: String,
    /// Whom to trust.
    pub trust: Trust,
    /// The application protocol.
    pub application: Application,
    /// Whether each connection resumes, with early data, from one that came before.
    pub resume: bool,
    /// How long an answer is waited for.
    pub patience: Span,
}

impl QuicDialler {
    /// Connects from `endpoint` to `target`, set up as `parameters` say; what is learnt of the
    /// path is kept in `memory`.
    pub fn new(
        endpoint: Endpoint,
        target: Target,
        parameters: &Parameters,
        memory: PathMemory,
        key_log: Option<Arc<dyn rustls::KeyLog>>,
    ) -> Self {
        let sessions = Arc::new(Sessions::default());
        let tls = tls::client(
            &target.trust,
            target.application.alpn(),
            sessions.clone(),
            key_log,
        );
        let mut config = ClientConfig::new(tls);
        config
            .version(parameters.version.number())
            .transport_config(Arc::new(parameters.transport(memory)));
        Self {
            endpoint,
            config,
            sessions,
            address: target.address,
            name: target.name,
            application: target.application,
            resume: target.resume,
            patience: target.patience,
        }
    }

    /// The application protocol of its connections.
    pub fn application(&self) -> Application {
        self.application
    }

    fn connect(&self) -> Result<noq::Connecting, PerfError> {
        (self.endpoint)
            .connect_with(self.config.clone(), self.address, &self.name)
            .map_err(|error| PerfError::connect(&error, self.address))
    }

    async fn in_time<T>(
        &self,
        clock: &Clock,
        answer: impl Future<Output = Result<T, noq::ConnectionError>>,
    ) -> Result<T, PerfError> {
        let until = clock.now() + self.patience;
        tokio::select! {
            biased;
            answer = answer => {
                let alpn = self.application.alpn();
                answer.map_err(|error| PerfError::connection(&error, self.address, alpn))
            }
            () = clock.sleep_until(until) => Err(PerfError::Unanswered {
                address: self.address,
                after: self.patience,
                protocol: "UDP",
            }),
        }
    }
}

impl Dial for QuicDialler {
    type Connection = QuicConnection;

    fn kind(&self) -> TransportKind {
        TransportKind::Quic
    }

    fn peer(&self) -> SocketAddr {
        self.address
    }

    async fn prepare(&self, clock: &Clock) -> Result<(), PerfError> {
        if !self.resume {
            return Ok(());
        }
        let connection = self.in_time(clock, self.connect()?).await?;
        let ticket = async {
            tokio::select! {
                biased;
                () = self.sessions.arrived() => Ok(()),
                error = connection.closed() => Err(error),
            }
        };
        self.in_time(clock, ticket)
            .await
            .map_err(|error| match error {
                PerfError::Unanswered { address, after, .. } => PerfError::Connect {
                    address,
                    why: format!("it gave nothing to resume from within {after}"),
                },
                error => error,
            })?;
        connection.close(NO_ERROR, b"");
        Ok(())
    }

    async fn dial(&self, number: u32, clock: &Clock) -> Result<QuicConnection, PerfError> {
        let establishment = SharedEstablishment::default();
        establishment.note(|all| all.begun_ns = nanos(clock.now()));
        let connecting = self.connect()?;
        let (connection, early) = if self.resume {
            let early = connecting.into_0rtt();
            let (connection, accepted) = early.map_err(|_| PerfError::Connect {
                address: self.address,
                why: "there is no session to resume with early data".into(),
            })?;
            let accepted = accepted.shared();
            let (told, clock, taken) = (establishment.clone(), clock.clone(), accepted.clone());
            tokio::spawn(async move {
                let taken = taken.await;
                told.note(|all| {
                    all.early_data = Some(taken);
                    all.done_ns = Some(nanos(clock.now()));
                });
            });
            (connection, Some(accepted))
        } else {
            let connection = self.in_time(clock, connecting).await?;
            establishment.note(|all| all.done_ns = Some(nanos(clock.now())));
            (connection, None)
        };
        note_confirmed(&connection, &establishment, clock);
        Ok(QuicConnection {
            early,
            ..QuicConnection::new(number, connection, establishment)
        })
    }
}

/// Notes in `establishment` when `connection`'s handshake is confirmed.
pub(crate) fn note_confirmed(
    connection: &noq::Connection,
    establishment: &SharedEstablishment,
    clock: &Clock,
) {
    let (told, clock, connection) = (establishment.clone(), clock.clone(), connection.clone());
    tokio::spawn(async move {
        if connection.handshake_confirmed().await.is_ok() {
            confirmed(&told, &clock);
        }
    });
}

/// The handshake is confirmed, if nobody has noted it before.
fn confirmed(establishment: &SharedEstablishment, clock: &Clock) {
    establishment.note(|all| {
        all.confirmed_ns.get_or_insert(nanos(clock.now()));
    });
}

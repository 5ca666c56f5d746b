//! The kernel's TCP as a measurement's transport: a connection for each stream, unencrypted.

use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bentpipe_perf::clock::Clock;
use bentpipe_perf::error::PerfError;
use bentpipe_perf::protocol::{HEADER, IDLE};
use bentpipe_perf::report::{Change, Establishment, Sender, TransportKind};
use bentpipe_perf::server::Service;
use bentpipe_perf::transport::{Connection, Dial, ReceiveHalf, SendHalf, SharedEstablishment};
use bentpipe_units::Span;
use bytes::Bytes;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::tcp_info::TcpInfo;
use crate::tcp_options::TcpOptions;

/// What is sent: a piece of it at a time.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
/// Bytes that are taken at once.
const PIECE: usize = 256 << 10;
/// How often it is looked whether everything is acknowledged.
const LOOK: Duration = Duration::from_millis(5);

/// A socket whose figures are read a last time when it is closed.
#[derive(Debug)]
struct Stream {
    socket: TcpStream,
    last: Arc<Mutex<TcpInfo>>,
}

impl Stream {
    fn look(&self) {
        // Only a socket that is no connection any more has none.
        if let Ok(info) = TcpInfo::of(&self.socket) {
            *locked(&self.last) = info;
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.look();
    }
}

/// The sending half of a connection.
#[derive(Debug)]
pub struct TcpSend(Arc<Stream>);

/// The receiving half.
pub struct TcpReceive {
    stream: Arc<Stream>,
    buffer: Box<[u8]>,
}

impl fmt::Debug for TcpReceive {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("TcpReceive").field(&self.stream).finish()
    }
}

fn lost(error: &io::Error) -> PerfError {
    PerfError::Lost(error.to_string())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does `work` when `stream` is ready for it.
async fn when<T, R: Future<Output = io::Result<()>>>(
    ready: impl Fn() -> R,
    mut work: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        ready().await?;
        match work() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
    }
}

impl TcpSend {
    async fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let socket = &self.0.socket;
        when(|| socket.writable(), || socket.try_write(bytes)).await
    }
}

impl TcpReceive {
    async fn read_some(&mut self, most: usize) -> io::Result<usize> {
        let (socket, buffer) = (&self.stream.socket, &mut self.buffer[..most]);
        when(|| socket.readable(), || socket.try_read(buffer)).await
    }
}

impl SendHalf for TcpSend {
    async fn write(&mut self, most: u64) -> Result<u64, PerfError> {
        let most = usize::try_from(most).map_or(ZEROS.len(), |most| most.min(ZEROS.len()));
        match self.write_some(&ZEROS[..most]).await {
            Ok(written) => Ok(written as u64),
            // Whoever has enough closes, which TCP can only tell by a reset.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ) =>
            {
                Err(PerfError::Broken(0))
            }
            Err(error) => Err(lost(&error)),
        }
    }

    async fn write_header(&mut self, header: [u8; HEADER]) -> Result<(), PerfError> {
        let mut left = &header[..];
        while !left.is_empty() {
            let written = self.write_some(left).await.map_err(|error| lost(&error))?;
            left = &left[written..];
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PerfError> {
        match SockRef::from(&self.0.socket).shutdown(Shutdown::Write) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(lost(&error)),
            _ => Ok(()),
        }
    }

    async fn settled(&mut self) {
        // The kernel does not say when everything is acknowledged.
        let acknowledged = async {
            while let Ok(info) = TcpInfo::of(&self.0.socket) {
                if info.in_flight == 0 && info.unsent.unwrap_or(0) == 0 {
                    return;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        // A peer that has gone is the kernel's to give up.
        let _ = tokio::time::timeout(IDLE, acknowledged).await;
    }
}

impl ReceiveHalf for TcpReceive {
    async fn read(&mut self) -> Result<Option<u64>, PerfError> {
        match self.read_some(PIECE).await {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(count as u64)),
            Err(error) => Err(lost(&error)),
        }
    }

    async fn read_header(&mut self) -> Result<Option<[u8; HEADER]>, PerfError> {
        let mut header = [0; HEADER];
        let mut have = 0;
        while have < HEADER {
            let read = self.read_some(HEADER - have).await;
            match read.map_err(|error| lost(&error))? {
                0 => return Ok(None),
                count => {
                    header[have..have + count].copy_from_slice(&self.buffer[..count]);
                    have += count;
                }
            }
        }
        Ok(Some(header))
    }

    fn stop(&mut self) {
        // Closed with data unread, as it then is, the socket is reset.
    }
}

/// A connection of a measurement: sockets to one server, one for each stream.
#[derive(Debug, Clone)]
pub struct TcpConnection {
    number: u32,
    address: SocketAddr,
    options: Arc<TcpOptions>,
    sockets: Arc<Mutex<Sockets>>,
    establishment: SharedEstablishment,
}

#[derive(Debug, Default)]
struct Sockets {
    /// The one by which the establishment was measured, until a stream takes it.
    first: Option<Arc<Stream>>,
    open: Vec<Weak<Stream>>,
    /// What was seen of each, the open ones too.
    seen: Vec<Arc<Mutex<TcpInfo>>>,
    /// Sums of those that are closed.
    closed: Sender,
}

/// Sums of what senders count.
fn add(all: &mut Sender, info: &TcpInfo) {
    let sum = |all: &mut Option<u64>, one: Option<u64>| {
        if let Some(one) = one {
            *all = Some(all.unwrap_or(0) + one);
        }
    };
    sum(&mut all.acknowledged_bytes, info.acknowledged);
    sum(&mut all.sent_packets, info.segments_sent);
    sum(&mut all.sent_bytes, info.bytes_sent);
    sum(&mut all.lost_packets, Some(info.retransmitted));
    sum(&mut all.retransmitted_bytes, info.bytes_retransmitted);
    sum(&mut all.congestion_marks, info.marked);
    let least = info.least_rtt_us.map(|rtt| rtt * 1_000);
    all.least_rtt_ns = [all.least_rtt_ns, least].into_iter().flatten().min();
    all.packet_bytes = Some(info.segment);
    all.smoothed_rtt_ns = Some(info.smoothed_rtt_us * 1_000);
}

impl Sockets {
    /// What the senders of all sockets see together.
    fn sender(&mut self, number: u32) -> Sender {
        let open = std::mem::take(&mut self.open);
        let seen = std::mem::take(&mut self.seen);
        let mut windows = Vec::new();
        for (socket, last) in open.into_iter().zip(seen) {
            if let Some(stream) = socket.upgrade() {
                stream.look();
                windows.push(*locked(&last));
                self.open.push(socket);
                self.seen.push(last);
            } else {
                add(&mut self.closed, &locked(&last));
            }
        }
        let mut all = Sender {
            connection: number,
            ..self.closed.clone()
        };
        for info in &windows {
            add(&mut all, info);
            let sum = |all: Option<u64>, one: u64| Some(all.unwrap_or(0) + one * info.segment);
            all.window_bytes = sum(all.window_bytes, info.window);
            all.in_flight_bytes = sum(all.in_flight_bytes, info.in_flight);
            if let Some(threshold) = info.threshold {
                all.threshold_bytes = sum(all.threshold_bytes, threshold);
            }
            if let Some(pacing) = info.pacing {
                let bits = pacing.saturating_mul(8);
                all.pacing_bit_s = Some(all.pacing_bit_s.unwrap_or(0).saturating_add(bits));
            }
        }
        all
    }

    fn watch(&mut self, socket: TcpStream) -> Arc<Stream> {
        let last = Arc::<Mutex<TcpInfo>>::default();
        let stream = Arc::new(Stream {
            socket,
            last: last.clone(),
        });
        self.open.push(Arc::downgrade(&stream));
        self.seen.push(last);
        stream
    }
}

impl TcpConnection {
    fn halves(stream: Arc<Stream>) -> (TcpSend, TcpReceive) {
        let receive = TcpReceive {
            stream: stream.clone(),
            buffer: vec![0; PIECE].into(),
        };
        (TcpSend(stream), receive)
    }
}

impl Connection for TcpConnection {
    type Send = TcpSend;
    type Receive = TcpReceive;

    async fn open(&self) -> Result<(TcpSend, TcpReceive), PerfError> {
        let first = locked(&self.sockets).first.take();
        let stream = match first {
            Some(stream) => stream,
            None => {
                let connected = self.options.connect(self.address).await;
                let socket = connected.map_err(|error| refused(&error, self.address))?;
                locked(&self.sockets).watch(socket)
            }
        };
        Ok(Self::halves(stream))
    }

    fn send_datagram(&self, _datagram: Bytes) -> Result<(), PerfError> {
        Err(PerfError::NoDatagrams)
    }

    async fn read_datagram(&self) -> Result<Bytes, PerfError> {
        Err(PerfError::NoDatagrams)
    }

    fn sender(&self) -> Sender {
        locked(&self.sockets).sender(self.number)
    }

    fn moved(&self) -> u64 {
        // What has arrived is counted where it is read.
        self.sender().acknowledged_bytes.unwrap_or(0)
    }

    fn keep_changes(&self) {
        // The kernel tells its state when it is asked, not when it changes.
    }

    fn take_changes(&self, _clock: &Clock) -> (Vec<Change>, u64) {
        (Vec::new(), 0)
    }

    fn establishment(&self) -> Establishment {
        self.establishment.get()
    }

    async fn settled(&self, _clock: &Clock) {}

    fn close(&self) {
        locked(&self.sockets).first = None;
    }
}

fn refused(error: &io::Error, address: SocketAddr) -> PerfError {
    PerfError::Unreached {
        address,
        why: match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "refused; is `bentpipe perf server --over tcp` running there?".into()
            }
            _ => error.to_string(),
        },
    }
}

/// Makes TCP connections.
#[derive(Debug)]
pub struct TcpDialler {
    /// The server.
    pub address: SocketAddr,
    /// How the connections are set up.
    pub options: TcpOptions,
    /// How long an answer is waited for.
    pub patience: Span,
}

impl Dial for TcpDialler {
    type Connection = TcpConnection;

    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn peer(&self) -> SocketAddr {
        self.address
    }

    async fn prepare(&self, _clock: &Clock) -> Result<(), PerfError> {
        Ok(())
    }

    async fn dial(&self, number: u32, clock: &Clock) -> Result<TcpConnection, PerfError> {
        let establishment = SharedEstablishment::default();
        establishment.note(|all| all.begun_ns = clock.now().as_nanos());
        let until = clock.now() + self.patience;
        let socket = tokio::select! {
            biased;
            connected = self.options.connect(self.address) => {
                connected.map_err(|error| refused(&error, self.address))?
            }
            () = clock.sleep_until(until) => return Err(PerfError::Unanswered {
                address: self.address,
                after: self.patience,
                protocol: "TCP",
            }),
        };
        establishment.note(|all| all.done_ns = Some(clock.now().as_nanos()));
        let connection = TcpConnection {
            number,
            address: self.address,
            options: Arc::new(self.options.clone()),
            sockets: Arc::default(),
            establishment,
        };
        let mut sockets = locked(&connection.sockets);
        let first = sockets.watch(socket);
        sockets.first = Some(first);
        drop(sockets);
        Ok(connection)
    }
}

/// Serves the connections that come to `listener`, each of which is one stream.
pub async fn serve(service: Service, listener: TcpListener, options: TcpOptions) {
    let options = Arc::new(options);
    let open = Arc::new(Semaphore::new(service.connections));
    loop {
        // What waits to be accepted is the kernel's to bound.
        let Ok(place) = open.clone().acquire_owned().await else {
            return;
        };
        let Ok((socket, peer)) = listener.accept().await else {
            // Out of descriptors or memory: those that are open may end meanwhile.
            let clock = service.clock.again();
            clock.sleep_until(Span::from_millis(100)).await;
            continue;
        };
        let (service, options) = (service.clone(), options.clone());
        tokio::spawn(async move {
            let _ = socket.set_nodelay(true);
            let clock = service.clock.again();
            let establishment = SharedEstablishment::default();
            establishment.note(|all| all.done_ns = Some(0));
            let connection = TcpConnection {
                number: 0,
                address: peer,
                options,
                sockets: Arc::default(),
                establishment,
            };
            let stream = locked(&connection.sockets).watch(socket);
            let (send, receive) = TcpConnection::halves(stream);
            let kind = TransportKind::Tcp;
            (service.stream(&clock, peer, connection, kind, (send, receive))).await;
            drop(place);
        });
    }
}

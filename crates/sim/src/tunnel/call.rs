//! A call: datagrams at a steady rate from an application behind a terminal, which a server sends
//! back.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bentpipe_tunnel::marking::Marking;
use bentpipe_tunnel::sockets::DatagramSocket;
use bentpipe_units::{Span, Time};
use bentpipe_vnet::clock::{Clock, Timer};
use tokio::io::ReadBuf;

use super::plan::Call;
use super::progress::{Shared, lock};

/// The last datagram's echo is waited for so long: three times a round trip over GEO.
pub(super) const LAST_ECHO: Span = Span::from_millis(2000);

/// The terminal's side of the application: it sends, and notes when each echo comes.
#[derive(Debug)]
pub(super) struct Caller {
    clock: Clock,
    timer: Timer,
    progress: Shared,
    call: Call,
    start: Time,
}

impl Caller {
    /// Begins now.
    pub(super) fn new(clock: &Clock, progress: &Shared, call: Call) -> Self {
        Self {
            clock: clock.clone(),
            timer: clock.timer(),
            progress: progress.clone(),
            call,
            start: clock.now(),
        }
    }

    /// When datagram `number` is sent.
    fn due(&self, number: u64) -> Time {
        self.start + Span::from_nanos(self.call.every.as_nanos().saturating_mul(number))
    }
}

impl DatagramSocket for Caller {
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<Marking>> {
        loop {
            let now = self.clock.now();
            let mut progress = lock(&self.progress);
            let number = progress.datagrams;
            if number == self.call.count {
                // Whoever runs the call ends it.
                return Poll::Pending;
            }
            let due = self.due(number);
            if due <= now {
                progress.datagrams += 1;
                buffer.put_slice(&number.to_be_bytes());
                buffer.put_slice(&vec![0; self.call.size - size_of::<u64>()]);
                return Poll::Ready(Ok(Marking::default()));
            }
            drop(progress);
            self.timer.set(Some(due));
            ready!(self.timer.poll_fired(context));
        }
    }

    fn poll_send(
        &self,
        _context: &mut Context<'_>,
        datagram: &[u8],
        _marking: Marking,
    ) -> Poll<io::Result<()>> {
        let now = self.clock.now();
        let mut progress = lock(&self.progress);
        let number = datagram.first_chunk().copied().map(u64::from_be_bytes);
        match number.filter(|number| *number < progress.datagrams) {
            Some(number) if datagram.len() == self.call.size => {
                progress.first_byte.get_or_insert(now);
                progress.done = Some(now);
                progress.received += datagram.len() as u64;
                progress.echoes.push(now.since(self.due(number)).as_nanos());
            }
            _ => progress.wrong = true,
        }
        Poll::Ready(Ok(()))
    }

    fn failure(&self) -> impl Future<Output = io::Error> + Send {
        std::future::pending()
    }
}

/// The gateway's side of a server that sends back what it gets, `ground_rtt` later.
#[derive(Debug)]
pub(crate) struct Echo {
    clock: Clock,
    timer: Timer,
    ground_rtt: Span,
    state: Mutex<Coming>,
}

#[derive(Debug, Default)]
struct Coming {
    /// What is on its way, and when it is back at the gateway.
    datagrams: VecDeque<(Time, Vec<u8>)>,
    reader: Option<Waker>,
}

impl Echo {
    pub(super) fn new(clock: &Clock, ground_rtt: Span) -> Self {
        Self {
            clock: clock.clone(),
            timer: clock.timer(),
            ground_rtt,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Coming> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DatagramSocket for Echo {
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<Marking>> {
        loop {
            let mut state = self.lock();
            let Some((due, _)) = state.datagrams.front() else {
                state.reader = Some(context.waker().clone());
                return Poll::Pending;
            };
            if *due <= self.clock.now() {
                if let Some((_, datagram)) = state.datagrams.pop_front() {
                    buffer.put_slice(&datagram);
                }
                return Poll::Ready(Ok(Marking::default()));
            }
            self.timer.set(Some(*due));
            drop(state);
            ready!(self.timer.poll_fired(context));
        }
    }

    fn poll_send(
        &self,
        _context: &mut Context<'_>,
        datagram: &[u8],
        _marking: Marking,
    ) -> Poll<io::Result<()>> {
        let mut state = self.lock();
        let back = self.clock.now() + self.ground_rtt;
        state.datagrams.push_back((back, datagram.to_vec()));
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(()))
    }

    fn failure(&self) -> impl Future<Output = io::Error> + Send {
        std::future::pending()
    }
}

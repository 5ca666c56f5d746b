//! Connected datagram sockets in memory.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use bentpipe_tunnel::marking::Marking;
use bentpipe_tunnel::sockets::DatagramSocket;
use tokio::io::ReadBuf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A datagram as it is marked.
type Marked = (Vec<u8>, Marking);

/// A connected datagram socket in memory.
#[derive(Debug)]
pub struct DatagramEnd {
    sends: UnboundedSender<Marked>,
    receives: Mutex<UnboundedReceiver<Marked>>,
    failure: Mutex<Option<io::ErrorKind>>,
    path: Arc<Mutex<Path>>,
}

/// What is between the two ends of a pair.
#[derive(Debug, Default)]
struct Path {
    /// Longer payloads that must not be cut do not pass.
    longest: Option<u16>,
    /// One has not, of which nobody knows yet; who wants to know.
    too_long: bool,
    waiting: Option<Waker>,
    /// What the ends were told.
    told: Vec<u16>,
}

/// A connected pair.
pub fn datagram_pair() -> (DatagramEnd, DatagramEnd) {
    let (to_b, from_a) = unbounded_channel();
    let (to_a, from_b) = unbounded_channel();
    let path = Arc::<Mutex<Path>>::default();
    let end = |sends, receives| DatagramEnd {
        sends,
        receives: Mutex::new(receives),
        failure: Mutex::default(),
        path: path.clone(),
    };
    (end(to_b, from_b), end(to_a, from_a))
}

impl DatagramEnd {
    /// Lets the first use of the socket fail.
    pub fn fail(&self, kind: io::ErrorKind) {
        *self.failure.lock().unwrap() = Some(kind);
    }

    /// From now on longer payloads do not pass whole.
    pub fn limit(&self, longest: u16) {
        self.path.lock().unwrap().longest = Some(longest);
    }

    /// What either end was told of path MTUs.
    pub fn told(&self) -> Vec<u16> {
        self.path.lock().unwrap().told.clone()
    }

    /// Sends a datagram to the peer; nobody may be there.
    pub fn send(&self, datagram: &[u8]) {
        self.send_marked(datagram, Marking::default());
    }

    /// The same with a marking.
    pub fn send_marked(&self, datagram: &[u8], marking: Marking) {
        let _ = self.sends.send((datagram.to_vec(), marking));
    }

    /// The next datagram; nothing when the peer is gone.
    pub async fn receive(&self) -> Option<Vec<u8>> {
        self.receive_marked().await.map(|(datagram, _)| datagram)
    }

    /// The same with its marking.
    pub async fn receive_marked(&self) -> Option<Marked> {
        std::future::poll_fn(|context| self.receives.lock().unwrap().poll_recv(context)).await
    }
}

impl DatagramSocket for DatagramEnd {
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<Marking>> {
        if let Some(kind) = *self.failure.lock().unwrap() {
            return Poll::Ready(Err(kind.into()));
        }
        match ready!(self.receives.lock().unwrap().poll_recv(context)) {
            Some((datagram, marking)) => {
                buffer.put_slice(&datagram);
                Poll::Ready(Ok(marking))
            }
            None => Poll::Pending,
        }
    }

    fn poll_send(
        &self,
        _context: &mut Context<'_>,
        datagram: &[u8],
        marking: Marking,
    ) -> Poll<io::Result<()>> {
        let mut path = self.path.lock().unwrap();
        let passes = (path.longest).is_none_or(|longest| datagram.len() <= longest.into());
        if passes || !marking.dont_fragment {
            self.send_marked(datagram, marking);
        } else {
            path.too_long = true;
            if let Some(waiting) = path.waiting.take() {
                waiting.wake();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn failure(&self) -> impl Future<Output = io::Error> + Send {
        std::future::pending()
    }

    fn poll_too_long(&self, context: &mut Context<'_>) -> Poll<u16> {
        let mut path = self.path.lock().unwrap();
        match path.longest.filter(|_| std::mem::take(&mut path.too_long)) {
            Some(longest) => Poll::Ready(longest + 28),
            None => {
                path.waiting = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn tell_path_mtu(&self, mtu: u16) {
        self.path.lock().unwrap().told.push(mtu);
    }
}

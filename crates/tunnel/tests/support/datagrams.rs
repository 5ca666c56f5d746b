//! Connected datagram sockets in memory.

use std::io;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use bentpipe_tunnel::sockets::DatagramSocket;
use tokio::io::ReadBuf;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A connected datagram socket in memory.
#[derive(Debug)]
pub struct DatagramEnd {
    sends: UnboundedSender<Vec<u8>>,
    receives: Mutex<UnboundedReceiver<Vec<u8>>>,
    failure: Mutex<Option<io::ErrorKind>>,
}

/// A connected pair.
pub fn datagram_pair() -> (DatagramEnd, DatagramEnd) {
    let (to_b, from_a) = unbounded_channel();
    let (to_a, from_b) = unbounded_channel();
    let end = |sends, receives| DatagramEnd {
        sends,
        receives: Mutex::new(receives),
        failure: Mutex::default(),
    };
    (end(to_b, from_b), end(to_a, from_a))
}

impl DatagramEnd {
    /// Lets the first use of the socket fail.
    pub fn fail(&self, kind: io::ErrorKind) {
        *self.failure.lock().unwrap() = Some(kind);
    }

    /// Sends a datagram to the peer; nobody may be there.
    pub fn send(&self, datagram: &[u8]) {
        let _ = self.sends.send(datagram.to_vec());
    }

    /// The next datagram; nothing when the peer is gone.
    pub async fn receive(&self) -> Option<Vec<u8>> {
        std::future::poll_fn(|context| self.receives.lock().unwrap().poll_recv(context)).await
    }
}

impl DatagramSocket for DatagramEnd {
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(kind) = *self.failure.lock().unwrap() {
            return Poll::Ready(Err(kind.into()));
        }
        match ready!(self.receives.lock().unwrap().poll_recv(context)) {
            Some(datagram) => {
                buffer.put_slice(&datagram);
                Poll::Ready(Ok(()))
            }
            None => Poll::Pending,
        }
    }

    fn poll_send(&self, _context: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        self.send(datagram);
        Poll::Ready(Ok(()))
    }

    fn failure(&self) -> impl Future<Output = io::Error> + Send {
        std::future::pending()
    }
}

//! The clock, timers and sockets of the system below QUIC, which no stall makes tell a wrong time.
//!
//! The QUIC library asks for the time once and then reads its socket until that is empty, and takes the moment for the
//! arrival of all that it reads. A process that did not run in between (no turn on a busy machine, a processor taken by
//! the hypervisor) finds datagrams that came afterwards: their round trips would be shorter than the path's by as much,
//! and a controller keeps the shortest that it has seen.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bentpipe_quic::layer::Layer;
use noq::udp::RecvMeta;
use noq::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};

/// How long after the library has asked for the time datagrams are as good as there already. It means to read for
/// 50 microseconds at once.
const PROMPT: Duration = Duration::from_micros(500);

thread_local! {
    /// When the time was last asked for here. The library asks and reads without leaving its thread.
    static ASKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Tokio's, whose sockets hand over nothing that was read long after the time was asked for.
#[derive(Debug, Clone, Copy)]
pub struct SystemRuntime;

impl Runtime for SystemRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Box<dyn AsyncUdpSocket>> {
        Ok(Prompt::default().over(TokioRuntime.wrap_udp_socket(socket)?))
    }

    fn now(&self) -> Instant {
        let now = TokioRuntime.now();
        ASKED.set(Some(now));
        now
    }
}

/// Over a socket whose datagrams the library takes for having come when it last asked for the time.
#[derive(Debug, Default)]
struct Prompt {
    /// What was read too late for the time that the library had, until it asks again: one reading at most.
    late: VecDeque<(Vec<u8>, RecvMeta)>,
}

impl Layer for Prompt {
    fn receive(
        &mut self,
        socket: &mut dyn AsyncUdpSocket,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if self.late.is_empty() {
            let count = ready!(socket.poll_recv(context, buffers, meta))?;
            if ASKED.get().is_none_or(|asked| asked.elapsed() <= PROMPT) {
                return Poll::Ready(Ok(count));
            }
            let read = buffers.iter().zip(meta.iter()).take(count);
            self.late = read
                .map(|(buffer, meta)| (buffer[..meta.len].to_vec(), *meta))
                .collect();
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let count = self.late.len().min(buffers.len()).min(meta.len());
        let late = self.late.drain(..count);
        for ((buffer, meta), (bytes, of)) in buffers.iter_mut().zip(meta).zip(late) {
            buffer[..bytes.len()].copy_from_slice(&bytes);
            *meta = of;
        }
        Poll::Ready(Ok(count))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// What one poll of the library's task reads, as it does: it asks for the time, and `stalls` before it reads.
    async fn read(socket: &mut dyn AsyncUdpSocket, stalls: Duration) -> Option<Vec<u8>> {
        poll_fn(|context| {
            let mut bytes = [0; 2000];
            let mut meta = [RecvMeta::default()];
            SystemRuntime.now();
            std::thread::sleep(stalls);
            let mut buffers = [IoSliceMut::new(&mut bytes)];
            Poll::Ready(match socket.poll_recv(context, &mut buffers, &mut meta) {
                Poll::Ready(count) => {
                    assert_eq!(count.expect("the socket works"), 1);
                    Some(bytes[..meta[0].len].to_vec())
                }
                Poll::Pending => None,
            })
        })
        .await
    }

    #[tokio::test]
    async fn what_came_during_a_stall_is_handed_over_when_the_time_has_been_asked_for_again() {
        let (sender, receiver) = (localhost(), localhost());
        let address = receiver.local_addr().unwrap();
        let mut socket = SystemRuntime.wrap_udp_socket(receiver).unwrap();
        sender.send_to(b"one", address).unwrap();
        sender.send_to(b"two", address).unwrap();
        let mut read = async |stalls| {
            // A turn of the runtime, which looks whether the socket is readable.
            tokio::time::sleep(Duration::from_millis(1)).await;
            read(&mut *socket, stalls).await
        };
        assert_eq!(read(Duration::from_millis(5)).await, None);
        assert_eq!(read(Duration::ZERO).await.unwrap(), b"one");
        assert_eq!(read(Duration::from_millis(5)).await, None);
        assert_eq!(read(Duration::ZERO).await.unwrap(), b"two");
    }

    fn localhost() -> UdpSocket {
        UdpSocket::bind("127.0.0.1:0").unwrap()
    }
}

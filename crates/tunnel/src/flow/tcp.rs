//! A TCP flow: a local socket and a stream of the tunnel, until both directions end.
//!
//! The rules, the same at both ends of the tunnel:
//!
//! - Each direction ends for itself: FIN becomes the end of the stream and the
//!   end of the stream becomes FIN (RFC 9114, section 4.4).
//! - What goes wrong in one direction ends both, at once: RST becomes a reset of the
//!   stream with H3_CONNECT_ERROR, and a reset or a refusal becomes RST.
//! - Nothing is read that cannot be passed on: each side's window is the other's.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use futures_util::FutureExt as _;
use h3::error::StreamError;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

use super::outcome::{Carried, FlowError};
use super::stalled::{Evicted, Held, StalledFlows};
use super::stream::{Down, Up};
use crate::sockets::Socket;

/// What is read from a socket at a time. It belongs to the thread, not to the flow,
/// so that idle flows hold no buffer.
const READ: usize = 64 * 1024;

/// Carries a flow between `socket` and the stream made of `up` and `down`.
///
/// `opened` is awaited before anything is taken from `down`: the terminal reads the
/// gateway's answer there, while bytes already go up, and waits for it when they cannot any more. `stopped` resolves when the
/// other end reads no more of `up`, `lost` when the flow has to give way to another.
///
/// Returns when both directions have ended. On an error both have been aborted.
pub async fn carry<U: Up, D: Down>(
    socket: impl Socket,
    mut up: U,
    mut down: D,
    opened: impl AsyncFnOnce(&mut D) -> Result<(), FlowError>,
    (stopped, lost): (
        impl Future<Output = ()> + Send,
        impl Future<Output = ()> + Send,
    ),
    stalled: &StalledFlows,
    held: &Held,
) -> (Carried, Result<(), FlowError>) {
    let reset = socket.reset();
    let (mut reader, mut writer) = tokio::io::split(socket);
    let mut carried = Carried::default();
    let Carried {
        up: went_up,
        down: went_down,
    } = &mut carried;

    let upward = async {
        loop {
            let data = read(&mut reader).await.map_err(FlowError::Local)?;
            if data.is_empty() {
                up.finish().await?;
                return Ok(());
            }
            *went_up += data.len() as u64;
            up.send(data).await?;
        }
    };
    let answered = Notify::new();
    let upward = async {
        let done = tokio::select! {
            biased;
            done = upward => done,
            () = stopped => Err(FlowError::Stopped),
        };
        // Who refuses reads no more, which may arrive before the reason.
        if let Err(FlowError::Stopped | FlowError::Stream(_)) = done {
            answered.notified().await;
        }
        done
    };
    let downward = async {
        opened(&mut down).await?;
        answered.notify_one();
        loop {
            let (mut data, ended) = receive_batch(&mut down).await;
            *went_down += data.len() as u64;
            while data.has_remaining() {
                let taken = stalled.bound(held, writer.write_buf(&mut data)).await;
                if taken
                    .map_err(|Evicted| FlowError::Stalled)?
                    .map_err(FlowError::Local)?
                    == 0
                {
                    return Err(FlowError::Local(io::ErrorKind::WriteZero.into()));
                }
            }
            if let Some(end) = ended {
                end?;
                return writer.shutdown().await.map_err(FlowError::Local);
            }
        }
    };
    let result = tokio::select! {
        biased;
        done = async { tokio::try_join!(biased; downward, upward) } => done.map(|((), ())| ()),
        error = reset => Err(FlowError::Local(error)),
        () = lost => Err(FlowError::GivenWay),
    };
    if result.is_ok() {
        reader.unsplit(writer).close();
    } else {
        // Dropping the socket resets it.
        up.abort();
        down.abort();
    }
    (carried, result)
}

/// Receives what is there, about [`READ`] bytes at most: packets are small, and one
/// write for each would cost more than all else. The second value is there when the
/// stream has ended, well or not.
async fn receive_batch<D: Down>(down: &mut D) -> (BytesMut, Option<Result<(), StreamError>>) {
    let mut batch = BytesMut::new();
    let mut next = Some(down.receive().await);
    while let Some(received) = next {
        match received {
            Ok(Some(data)) => batch.put(data),
            Ok(None) => return (batch, Some(Ok(()))),
            Err(error) => return (batch, Some(Err(error))),
        }
        if batch.len() >= READ {
            break;
        }
        next = down.receive().now_or_never();
    }
    (batch, None)
}

/// Reads what is there, up to [`READ`] bytes; empty at the end.
async fn read(reader: &mut (impl AsyncRead + Unpin)) -> io::Result<Bytes> {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
    }
    std::future::poll_fn(|context: &mut Context<'_>| {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match Pin::new(&mut *reader).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled()))),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            }
        })
    })
    .await
}

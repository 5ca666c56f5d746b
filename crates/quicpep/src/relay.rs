//! One direction of one stream: data, FIN, RESET_STREAM and STOP_SENDING, from the
//! connection that it comes from to the connection that it goes to.
//!
//! Nothing is read that cannot be written, except for one batch of [`BATCH`] chunks: a
//! receiver that does not read stops its own sender by the stream's window, and no other.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use noq::{ReadError, RecvStream, SendStream, WriteError};

/// Chunks that are read at once; each is at most a packet's data.
const BATCH: usize = 32;

/// While data cannot be written, it is looked so often whether their sender has given up.
const RESET_LOOK: Duration = Duration::from_millis(100);

/// A stream that was cut because one of its connections was lost. To drop it before the
/// other connection has been closed would tell the other side of an end that was not there.
#[derive(Debug)]
pub(crate) struct Cut {
    _from: RecvStream,
    _to: Option<SendStream>,
}

impl Cut {
    /// A stream that came in and could not be opened on the other side.
    pub(crate) fn unopened(from: RecvStream, back: Option<SendStream>) -> Self {
        Self {
            _from: from,
            _to: back,
        }
    }
}

/// Why a batch was not written.
enum Interrupted {
    /// The receiver wants no more.
    Stopped(noq::VarInt),
    /// The sender has given up.
    Reset(noq::VarInt),
    /// A connection is lost.
    Lost,
}

/// Carries `from` into `to` until the stream has ended and its receiver has acknowledged
/// everything, or one side has given up, or a connection is lost.
pub(crate) async fn relay(mut from: RecvStream, mut to: SendStream) -> Option<Cut> {
    let mut stopped = pin!(to.stopped());
    let mut buffers: [Bytes; BATCH] = std::array::from_fn(|_| Bytes::new());
    loop {
        let read = tokio::select! {
            biased;
            stop = &mut stopped => {
                let Ok(Some(code)) = stop else {
                    return cut(from, to);
                };
                // A stream that is over already cannot be stopped any more.
                let _ = from.stop(code);
                return None;
            }
            read = from.read_many_chunks(&mut buffers) => read,
        };
        match read {
            Ok(Some(count)) => match write(&mut from, &mut to, &mut buffers[..count]).await {
                Ok(()) => {}
                Err(Interrupted::Stopped(code)) => {
                    let _ = from.stop(code);
                    return None;
                }
                Err(Interrupted::Reset(code)) => {
                    let _ = to.reset(code);
                    return None;
                }
                Err(Interrupted::Lost) => return cut(from, to),
            },
            Ok(None) => {
                let _ = to.finish();
                // Whoever closes a connection waits until what was finished is there.
                let _ = stopped.await;
                return None;
            }
            Err(ReadError::Reset(code)) => {
                let _ = to.reset(code);
                return None;
            }
            Err(_) => return cut(from, to),
        }
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "what the caller returns: the stream is kept"
)]
fn cut(from: RecvStream, to: SendStream) -> Option<Cut> {
    Some(Cut {
        _from: from,
        _to: Some(to),
    })
}

/// Writes all of `data`. A sender that gives up meanwhile is heard within [`RESET_LOOK`].
async fn write(
    from: &mut RecvStream,
    to: &mut SendStream,
    mut data: &mut [Bytes],
) -> Result<(), Interrupted> {
    let mut may_reset = true;
    while !data.is_empty() {
        tokio::select! {
            biased;
            written = to.write_many_chunks(&mut data) => match written {
                Ok(_) => {}
                Err(WriteError::Stopped(code)) => return Err(Interrupted::Stopped(code)),
                Err(_) => return Err(Interrupted::Lost),
            },
            () = tokio::time::sleep(RESET_LOOK), if may_reset => {
                // Takes nothing. The library's own wait for a reset would leave a waker
                // behind for every stream that ends after it.
                match from.read_chunk(0).now_or_never() {
                    Some(Err(ReadError::Reset(code))) => return Err(Interrupted::Reset(code)),
                    None | Some(Ok(Some(_))) => {}
                    // It has ended well; or its connection is lost, and what it sent still
                    // goes on.
                    Some(Ok(None) | Err(_)) => may_reset = false,
                }
            }
        }
    }
    Ok(())
}

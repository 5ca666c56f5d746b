//! Client and server on the QUIC library's sans-I/O core: the same protocol without an async
//! runtime, for whoever has a clock and a loop of his own.
//!
//! A program is told of its connection's events (`on_event`) and let work after them (`work`).

use bytes::Bytes;
use noq_proto::{Connection, Dir, Event, ReadError, StreamEvent, StreamId};

use crate::protocol::{HEADER, header, wanted};

/// What is sent: a piece of it at a time.
static ZEROS: [u8; 65_536] = [0; 65_536];

/// Asks for bytes, a request at a time.
#[derive(Debug, Default)]
pub struct Client {
    connected: bool,
    stream: Option<StreamId>,
    received: u64,
    done: bool,
}

impl Client {
    /// Whether the handshake is complete.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Bytes that have come of the latest answer.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether the latest answer is complete.
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Asks for `bytes` with a request of `size` bytes; whether there was a stream for it.
    pub fn request(&mut self, connection: &mut Connection, bytes: u64, size: usize) -> bool {
        let Some(id) = connection.streams().open(Dir::Bi) else {
            return false;
        };
        let mut request = vec![0; size.max(HEADER)];
        request[..HEADER].copy_from_slice(&header(bytes));
        let mut sender = connection.send_stream(id);
        let whole = sender.write(&request) == Ok(request.len()) && sender.finish().is_ok();
        if whole {
            (self.stream, self.received, self.done) = (Some(id), 0, false);
        }
        whole
    }

    /// Takes notice of what happened on `connection`.
    pub fn on_event(&mut self, event: &Event) {
        self.connected |= matches!(event, Event::Connected);
    }

    /// Takes what has come.
    pub fn work(&mut self, connection: &mut Connection) {
        let Some(id) = self.stream else { return };
        let (bytes, ended) = drain(connection, id, |_| {});
        self.received += bytes;
        if ended {
            self.done = true;
            self.stream = None;
        }
    }
}

/// Answers requests.
#[derive(Debug, Default)]
pub struct Server {
    answers: Vec<Answer>,
}

/// What is left to send on a stream.
#[derive(Debug)]
struct Answer {
    stream: StreamId,
    header: [u8; HEADER],
    /// Bytes of the request so far.
    read: usize,
    /// Bytes of the answer, once the request is whole.
    left: Option<u64>,
}

impl Server {
    /// Takes notice of what happened on `connection`.
    pub fn on_event(&mut self, connection: &mut Connection, event: &Event) {
        if matches!(event, Event::Stream(StreamEvent::Opened { dir: Dir::Bi })) {
            while let Some(stream) = connection.streams().accept(Dir::Bi) {
                self.answers.push(Answer {
                    stream,
                    header: [0; HEADER],
                    read: 0,
                    left: None,
                });
            }
        }
    }

    /// Reads what has come, and sends what there is room for.
    pub fn work(&mut self, connection: &mut Connection) {
        for answer in &mut self.answers {
            if answer.left.is_none() {
                let Answer { header, read, .. } = answer;
                let (_, ended) = drain(connection, answer.stream, |chunk| {
                    for (place, byte) in header.iter_mut().skip(*read).zip(chunk) {
                        *place = *byte;
                    }
                    *read = read.saturating_add(chunk.len());
                });
                if ended {
                    let whole = answer.read >= HEADER;
                    answer.left = Some(if whole { wanted(answer.header) } else { 0 });
                }
            }
            if let Some(left) = &mut answer.left {
                send(connection, answer.stream, left);
            }
        }
        self.answers.retain(|answer| answer.left != Some(0));
    }
}

/// Writes as much as the connection takes; ends the stream after the last byte.
fn send(connection: &mut Connection, stream: StreamId, left: &mut u64) {
    while *left > 0 {
        let most = usize::try_from(*left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        let mut chunk = [Bytes::from_static(&ZEROS[..most])];
        match connection
            .send_stream(stream)
            .write_chunks(&mut &mut chunk[..])
        {
            Ok(written) if written > 0 => *left -= written as u64,
            _ => return,
        }
    }
    // The peer never stops a stream; a connection that is gone has its own event.
    drop(connection.send_stream(stream).finish());
}

/// Reads all there is: how many bytes, and whether the stream has ended.
fn drain(
    connection: &mut Connection,
    stream: StreamId,
    mut take: impl FnMut(&[u8]),
) -> (u64, bool) {
    let mut receiver = connection.recv_stream(stream);
    let Ok(mut chunks) = receiver.read(true) else {
        return (0, false);
    };
    let mut bytes = 0;
    let ended = loop {
        match chunks.next(usize::MAX) {
            Ok(Some(chunk)) => {
                bytes += chunk.bytes.len() as u64;
                take(&chunk.bytes);
            }
            Ok(None) => break true,
            Err(ReadError::Blocked) => break false,
            Err(_) => break false,
        }
    };
    let _ = chunks.finalize();
    (bytes, ended)
}

//! What each end does on one stream.

use bentpipe_units::Span;

use crate::error::PerfError;
use crate::meter::Meter;
use crate::protocol::{HEADER, UNLIMITED, header, wanted};
use crate::transport::{Connection, ReceiveHalf, SendHalf};

/// How far a transfer goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    /// So many bytes.
    Bytes(u64),
    /// Until this moment.
    Time(Span),
}

/// Downloads on a stream of its own.
pub(crate) async fn download(
    connection: &impl Connection,
    until: Until,
    meter: &Meter,
) -> Result<(), PerfError> {
    let (mut send, mut receive) = connection.open().await?;
    let asked = match until {
        Until::Bytes(bytes) => bytes,
        Until::Time(_) => UNLIMITED,
    };
    send.write_header(header(asked)).await?;
    send.finish()?;
    match until {
        Until::Bytes(_) => answer_of(&mut receive, asked, meter).await,
        Until::Time(end) => {
            let enough = tokio::select! {
                biased;
                ended = answer_of(&mut receive, asked, meter) => ended,
                () = meter.clock().sleep_until(end) => Ok(()),
            };
            receive.stop();
            enough
        }
    }
}

/// Reads an answer, which shall have `asked` bytes.
async fn answer_of(
    receive: &mut impl ReceiveHalf,
    asked: u64,
    meter: &Meter,
) -> Result<(), PerfError> {
    let mut got = 0;
    while let Some(bytes) = receive.read().await? {
        meter.received(bytes);
        got += bytes;
        if got > asked {
            receive.stop();
            break;
        }
    }
    if got == asked {
        Ok(())
    } else {
        Err(PerfError::Length { wanted: asked, got })
    }
}

/// What a stream has sent, counted.
struct Sent<'a> {
    meter: &'a Meter,
    bytes: u64,
}

impl<'a> Sent<'a> {
    fn new(meter: &'a Meter) -> Self {
        Self { meter, bytes: 0 }
    }

    /// Sends `bytes` of content.
    async fn write(&mut self, send: &mut impl SendHalf, bytes: u64) -> Result<(), PerfError> {
        let mut left = bytes;
        while left > 0 {
            let written = send.write(left).await?;
            self.meter.sent(written);
            self.bytes += written;
            left -= written;
        }
        Ok(())
    }

    /// The stream has ended so.
    fn ended(self, how: Result<(), PerfError>) -> Result<(), PerfError> {
        if let Err(PerfError::EarlyDataRefused) = how {
            self.meter.refused(self.bytes);
        }
        how
    }
}

/// Uploads on a stream of its own, and waits until the server has everything.
pub(crate) async fn upload(
    connection: &impl Connection,
    until: Until,
    meter: &Meter,
) -> Result<(), PerfError> {
    let mut sent = Sent::new(meter);
    let how = upload_counted(connection, until, &mut sent).await;
    sent.ended(how)
}

async fn upload_counted(
    connection: &impl Connection,
    until: Until,
    sent: &mut Sent<'_>,
) -> Result<(), PerfError> {
    let meter = sent.meter;
    let (mut send, mut receive) = connection.open().await?;
    send.write_header(header(0)).await?;
    let bytes = match until {
        Until::Bytes(bytes) => bytes,
        Until::Time(_) => u64::MAX,
    };
    let write = sent.write(&mut send, bytes);
    match until {
        Until::Bytes(_) => write.await?,
        Until::Time(end) => tokio::select! {
            biased;
            () = meter.clock().sleep_until(end) => {}
            failed = write => failed?,
        },
    }
    send.finish()?;
    answer_of(&mut receive, 0, meter).await
}

/// A request of `request` bytes for `response` bytes, on a stream of its own.
///
/// # Errors
/// When the connection or the stream ends early, or the answer has another length.
pub async fn request(
    connection: &impl Connection,
    request: u64,
    response: u64,
    meter: &Meter,
) -> Result<(), PerfError> {
    let mut sent = Sent::new(meter);
    let how = request_counted(connection, request, response, &mut sent).await;
    sent.ended(how)
}

async fn request_counted(
    connection: &impl Connection,
    request: u64,
    response: u64,
    sent: &mut Sent<'_>,
) -> Result<(), PerfError> {
    let (mut send, mut receive) = connection.open().await?;
    send.write_header(header(response)).await?;
    let content = request.saturating_sub(HEADER as u64);
    sent.write(&mut send, content).await?;
    send.finish()?;
    answer_of(&mut receive, response, sent.meter).await
}

/// The server's side of a stream: how many bytes are to be sent, once all have come.
pub(crate) async fn requested(
    receive: &mut impl ReceiveHalf,
    meter: &Meter,
) -> Result<Option<u64>, PerfError> {
    let header = receive.read_header().await?;
    while let Some(bytes) = receive.read().await? {
        meter.received(bytes);
    }
    // The draft wants streams that end within the header ignored.
    Ok(header.map(wanted))
}

/// Sends the answer that was asked for.
pub(crate) async fn answer(
    send: &mut impl SendHalf,
    bytes: u64,
    meter: &Meter,
) -> Result<(), PerfError> {
    let mut left = bytes;
    while left > 0 {
        match send.write(left).await {
            Ok(written) => {
                meter.sent(written);
                left = if bytes == UNLIMITED {
                    left
                } else {
                    left - written
                };
            }
            // Whoever has asked has enough.
            Err(PerfError::Broken(0)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    send.finish()?;
    send.settled().await;
    Ok(())
}

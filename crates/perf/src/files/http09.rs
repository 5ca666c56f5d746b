//! HTTP/0.9 over QUIC, as the QUIC Interop Runner has it (ALPN `hq-interop`): a request is a line
//! on a stream of its own, and the answer on the same stream is the file and nothing else.

use std::sync::Arc;

use http::Uri;
use noq::{Connection, RecvStream, SendStream, VarInt};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Files, PIECE, Sink, of_file};
use crate::error::PerfError;
use crate::meter::Meter;

/// The longest request, bytes.
const LONGEST_REQUEST: usize = 4096;
/// The code of a stream whose file cannot be had. The protocol has none of its own.
const NOT_FOUND: VarInt = VarInt::from_u32(0x194);

/// Fetches a file on a stream of its own.
pub(super) async fn fetch(
    connection: &Connection,
    file: &Uri,
    sink: &mut Sink,
    meter: &Meter,
) -> Result<(), PerfError> {
    let path = file.path();
    let (mut send, mut receive) = connection.open_bi().await.map_err(of_file(path))?;
    let wanted = file.path_and_query().map_or(path, |wanted| wanted.as_str());
    send.write_all(format!("GET {wanted}\r\n").as_bytes())
        .await?;
    // A stream that the server has stopped already needs no end.
    let _ = send.finish();
    loop {
        match receive.read_chunk(PIECE).await {
            Ok(None) => return Ok(()),
            Ok(Some(piece)) => {
                meter.received(piece.len() as u64);
                sink.write_all(&piece).await.map_err(of_file(path))?;
            }
            Err(noq::ReadError::Reset(code)) => {
                return Err(PerfError::File {
                    path: path.to_owned(),
                    why: format!(
                        "the server has reset the stream (code {code}); is the file there?"
                    ),
                });
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Serves the files that are asked for, until the connection ends.
pub(crate) async fn serve(connection: &Connection, files: &Arc<dyn Files>, meter: &Arc<Meter>) {
    while let Ok((send, receive)) = connection.accept_bi().await {
        let (files, meter) = (files.clone(), meter.clone());
        tokio::spawn(async move {
            if let Err(error) = answer(send, receive, &*files, &meter).await {
                tracing::debug!("{error}");
            }
        });
    }
}

async fn answer(
    mut send: SendStream,
    mut receive: RecvStream,
    files: &dyn Files,
    meter: &Meter,
) -> Result<(), PerfError> {
    let request = receive.read_to_end(LONGEST_REQUEST).await;
    let request = request.map_err(of_file("a request"))?;
    meter.received(request.len() as u64);
    let request = String::from_utf8_lossy(&request);
    let mut words = request.split_whitespace();
    let path = match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => path.split('?').next().unwrap_or(path),
        _ => "",
    };
    let (mut source, _) = match files.open(path).await {
        Ok(file) => file,
        Err(error) => {
            let _ = send.reset(NOT_FOUND);
            return Err(of_file(path)(error));
        }
    };
    let mut piece = vec![0; PIECE];
    loop {
        match source.read(&mut piece).await {
            Ok(0) => break,
            Ok(count) => {
                send.write_all(&piece[..count]).await?;
                meter.sent(count as u64);
            }
            // The stream is reset when it is dropped unfinished, so that half a file is not
            // taken for a whole one.
            Err(error) => {
                let _ = send.reset(NOT_FOUND);
                return Err(of_file(path)(error));
            }
        }
    }
    let _ = send.finish();
    Ok(())
}

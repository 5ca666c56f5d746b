//! HTTP/3 (RFC 9114), as far as files need it.

use std::sync::Arc;

use bentpipe_quic::h3::{BidiStream, Connection as Adapter, Opener};
use bytes::{Buf as _, Bytes};
use h3::client::SendRequest;
use h3::error::Code;
use h3::server::RequestResolver;
use http::{Request, Response, StatusCode, Uri};
use noq::Connection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Files, PIECE, Sink, of_file};
use crate::error::PerfError;
use crate::meter::Meter;
use crate::quic::QuicConnection;

/// The longest header section, bytes.
const MAX_FIELD_SECTION: u64 = 8 * 1024;

/// The client's side of a connection.
pub(super) struct Client(SendRequest<Opener, Bytes>);

impl Client {
    /// HTTP/3 on `connection`.
    pub(super) async fn new(connection: &QuicConnection) -> Result<Self, PerfError> {
        let (mut driver, requests) = h3::client::builder()
            .max_field_section_size(MAX_FIELD_SECTION)
            .build::<_, _, Bytes>(Adapter::plain(connection.inner().clone()))
            .await
            .map_err(|error| PerfError::Lost(error.to_string()))?;
        let connection = connection.clone();
        tokio::spawn(async move {
            // The server's own streams are then for the next client on this connection.
            if !connection.early_data_refused().await {
                std::future::poll_fn(|context| driver.poll_close(context)).await;
            }
        });
        Ok(Self(requests))
    }

    /// Fetches a file on a stream of its own.
    pub(super) async fn fetch(
        &self,
        file: &Uri,
        sink: &mut Sink,
        meter: &Meter,
    ) -> Result<(), PerfError> {
        let path = file.path();
        let request = Request::get(file).body(()).map_err(of_file(path))?;
        let sent = self.0.clone().send_request(request).await;
        let mut stream = sent.map_err(of_file(path))?;
        stream.finish().await.map_err(of_file(path))?;
        let response = stream.recv_response().await.map_err(of_file(path))?;
        if response.status() != StatusCode::OK {
            stream.stop_sending(Code::H3_REQUEST_CANCELLED);
            return Err(PerfError::File {
                path: path.to_owned(),
                why: format!("the server answers {}", response.status()),
            });
        }
        let told = response.headers().get(http::header::CONTENT_LENGTH);
        let told = told.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let mut got = 0;
        while let Some(mut data) = stream.recv_data().await.map_err(of_file(path))? {
            while data.has_remaining() {
                let piece = data.chunk();
                let length = piece.len();
                meter.received(length as u64);
                got += length as u64;
                sink.write_all(piece).await.map_err(of_file(path))?;
                data.advance(length);
            }
        }
        match told {
            Some(wanted) if wanted != got => Err(PerfError::Length { wanted, got }),
            _ => Ok(()),
        }
    }
}

/// Serves the files that are asked for, until the connection ends.
pub(crate) async fn serve(connection: &Connection, files: &Arc<dyn Files>, meter: &Arc<Meter>) {
    let built = h3::server::builder()
        .max_field_section_size(MAX_FIELD_SECTION)
        .build::<_, Bytes>(Adapter::plain(connection.clone()))
        .await;
    let mut requests = match built {
        Ok(requests) => requests,
        Err(error) => return tracing::debug!("HTTP/3 could not be set up: {error}"),
    };
    loop {
        match requests.accept().await {
            Ok(Some(request)) => {
                let (files, meter) = (files.clone(), meter.clone());
                tokio::spawn(async move {
                    if let Err(error) = answer(request, &*files, &meter).await {
                        tracing::debug!("{error}");
                    }
                });
            }
            Ok(None) => return,
            Err(error) => return tracing::debug!("{error}"),
        }
    }
}

async fn answer(
    request: RequestResolver<Adapter, Bytes>,
    files: &dyn Files,
    meter: &Meter,
) -> Result<(), PerfError> {
    let resolved = request.resolve_request().await;
    let (request, stream) = resolved.map_err(of_file("a request"))?;
    let path = request.uri().path();
    let mut stream: h3::server::RequestStream<BidiStream<Bytes>, Bytes> = stream;
    let refuse = |status| Response::builder().status(status).body(());
    let (mut source, length) = match files.open(path).await {
        Ok(file) if request.method() == http::Method::GET => file,
        other => {
            let status = match &other {
                Ok(_) => StatusCode::METHOD_NOT_ALLOWED,
                Err(_) => StatusCode::NOT_FOUND,
            };
            let response = refuse(status).map_err(of_file(path))?;
            stream
                .send_response(response)
                .await
                .map_err(of_file(path))?;
            return stream.finish().await.map_err(of_file(path));
        }
    };
    let response = Response::builder()
        .header(http::header::CONTENT_LENGTH, length)
        .body(())
        .map_err(of_file(path))?;
    stream
        .send_response(response)
        .await
        .map_err(of_file(path))?;
    loop {
        let mut piece = bytes::BytesMut::with_capacity(PIECE);
        match source.read_buf(&mut piece).await {
            Ok(0) => return stream.finish().await.map_err(of_file(path)),
            Ok(count) => {
                let sent = stream.send_data(piece.freeze()).await;
                sent.map_err(of_file(path))?;
                meter.sent(count as u64);
            }
            Err(error) => {
                stream.stop_stream(Code::H3_INTERNAL_ERROR);
                return Err(of_file(path)(error));
            }
        }
    }
}

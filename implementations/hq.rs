//! HTTP/0.9 over a stream of QUIC (hq-interop), for wrappers in Rust whose streams are tokio's.

use anyhow::Result;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::contract::{Request, served};

const LONGEST_REQUEST: u64 = 4096;

/// Reads a request to its end, and answers it with its file.
pub async fn answer(
    receive: impl AsyncRead + Unpin,
    mut send: impl AsyncWrite + Unpin,
) -> Result<()> {
    let mut request = String::new();
    receive
        .take(LONGEST_REQUEST)
        .read_to_string(&mut request)
        .await?;
    let path = served(request.trim().trim_start_matches("GET "))?;
    tokio::io::copy(&mut File::open(path).await?, &mut send).await?;
    send.shutdown().await?;
    Ok(())
}

/// Sends a request, and saves what comes.
pub async fn fetch(
    request: &Request,
    mut receive: impl AsyncRead + Unpin,
    mut send: impl AsyncWrite + Unpin,
) -> Result<()> {
    send.write_all(format!("GET {}\r\n", request.path).as_bytes())
        .await?;
    send.shutdown().await?;
    let mut sink = File::create(request.saved()?).await?;
    tokio::io::copy(&mut receive, &mut sink).await?;
    sink.flush().await?;
    Ok(())
}

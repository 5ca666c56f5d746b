//! An endpoint of quinn by the contract of docs/matrix.md: HTTP/3 (crate h3) and HTTP/0.9 over QUIC (hq-interop).

#[path = "../../contract.rs"]
mod contract;
#[path = "../../hq.rs"]
mod hq;
#[path = "../../quinn.rs"]
mod like_quinn;

mod library {
    pub use quinn::congestion::BbrConfig as Bbr;
    pub use quinn::*;
}

use anyhow::{Result, bail};
use bytes::Bytes;
use quinn::{Connection, VarInt};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::contract::{Request, served};

const PIECE: usize = 64 << 10;

#[tokio::main]
async fn main() -> Result<()> {
    let h3 = contract::is_h3();
    let alpn: &[u8] = if h3 { b"h3" } else { b"hq-interop" };
    let transport = like_quinn::transport("bbr")?;
    if contract::is_server() {
        return match h3 {
            true => like_quinn::listen(alpn, transport, serve_h3).await,
            false => like_quinn::listen(alpn, transport, like_quinn::serve_hq).await,
        };
    }
    let requests = contract::requests()?;
    let (endpoint, connection) = like_quinn::connect(alpn, transport, &requests[0]).await?;
    if h3 {
        fetch_h3(connection.clone(), &requests).await?;
    } else {
        like_quinn::fetch_hq(&connection, &requests).await?;
    }
    connection.close(VarInt::from_u32(if h3 { 0x100 } else { 0 }), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn serve_h3(connection: Connection) -> Result<()> {
    let mut connection =
        h3::server::Connection::<_, Bytes>::new(h3_quinn::Connection::new(connection)).await?;
    while let Some(resolver) = connection.accept().await? {
        let (request, mut stream) = resolver.resolve_request().await?;
        tokio::spawn(async move {
            let mut source = File::open(served(request.uri().path())?).await?;
            stream.send_response(http::Response::new(())).await?;
            let mut piece = vec![0; PIECE];
            loop {
                let length = source.read(&mut piece).await?;
                if length == 0 {
                    break;
                }
                stream
                    .send_data(Bytes::copy_from_slice(&piece[..length]))
                    .await?;
            }
            stream.finish().await?;
            anyhow::Ok(())
        });
    }
    Ok(())
}

async fn fetch_h3(connection: Connection, requests: &[Request]) -> Result<()> {
    let (mut driver, mut sender) = h3::client::new(h3_quinn::Connection::new(connection)).await?;
    tokio::spawn(async move { std::future::poll_fn(|context| driver.poll_close(context)).await });
    for request in requests {
        let mut stream = sender
            .send_request(http::Request::get(&request.url).body(())?)
            .await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        if !response.status().is_success() {
            bail!("{}: {}", request.url, response.status());
        }
        let mut sink = File::create(request.saved()?).await?;
        while let Some(mut piece) = stream.recv_data().await? {
            sink.write_all_buf(&mut piece).await?;
        }
        sink.flush().await?;
    }
    Ok(())
}

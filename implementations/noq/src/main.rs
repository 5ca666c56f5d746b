//! An endpoint of noq by the contract of docs/matrix.md: HTTP/0.9 over QUIC (hq-interop).

#[path = "../../contract.rs"]
mod contract;
#[path = "../../hq.rs"]
mod hq;
#[path = "../../quinn.rs"]
mod quinn;

mod library {
    pub use noq::congestion::Bbr3Config as Bbr;
    pub use noq::*;
}

use anyhow::Result;

const ALPN: &[u8] = b"hq-interop";

#[tokio::main]
async fn main() -> Result<()> {
    let transport = quinn::transport("bbr3")?;
    if contract::is_server() {
        return quinn::listen(ALPN, transport, quinn::serve_hq).await;
    }
    let requests = contract::requests()?;
    let (endpoint, connection) = quinn::connect(ALPN, transport, &requests[0]).await?;
    quinn::fetch_hq(&connection, &requests).await?;
    connection.close(noq::VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(())
}

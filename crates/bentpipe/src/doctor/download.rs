//! What is downloaded to look at a network: a file of a web server.

use std::time::{Duration, Instant};

use bentpipe_tunnel::target::Target;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// How long a download may take, each.
const DOWNLOAD: Duration = Duration::from_secs(15);

/// Something to download by HTTP/1.1.
#[derive(Debug, Clone)]
pub struct Download {
    /// Of the server.
    pub host: String,
    /// Of the server.
    pub port: u16,
    /// From the first '/' on.
    pub path: String,
}

impl std::str::FromStr for Download {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not the URL of something large; write it like \"http://example.net/10MB\" (not https: what is measured is the network)"
            )
        };
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let with_port = match authority.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => authority.to_owned(),
            _ => format!("{authority}:80"),
        };
        let target: Target = with_port.parse().map_err(|_| wrong())?;
        let host = match &target.host {
            bentpipe_tunnel::target::Host::Address(address) => address.to_string(),
            bentpipe_tunnel::target::Host::Name(name) => name.clone(),
        };
        Ok(Self {
            host,
            port: target.port,
            path: format!("/{path}"),
        })
    }
}

impl Download {
    /// Where it is.
    pub fn target(&self) -> Target {
        let host = bentpipe_tunnel::target::Host::name(&self.host);
        let host = host.expect("it was one when the URL was read");
        Target {
            host,
            port: self.port,
        }
    }

    /// The rate of a download over the connection that `connecting` gives, bit/s, from the
    /// request on; what came in [`DOWNLOAD`] counts.
    pub async fn over<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        connecting: impl Future<Output = std::io::Result<S>>,
    ) -> std::io::Result<f64> {
        let limit = tokio::time::timeout(DOWNLOAD, connecting);
        let mut stream = limit.await.map_err(|_| std::io::ErrorKind::TimedOut)??;
        let began = Instant::now();
        let (host, path) = (&self.host, &self.path);
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let (mut bytes, mut buffer) = (0, vec![0; 1 << 16]);
        let reading = async {
            loop {
                match stream.read(&mut buffer).await? {
                    0 => return std::io::Result::Ok(()),
                    count => bytes += count,
                }
            }
        };
        if let Ok(ended) = tokio::time::timeout(DOWNLOAD, reading).await {
            ended?;
        }
        if bytes == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let bits = bytes as f64 * 8.0;
        Ok(bits / began.elapsed().as_secs_f64())
    }
}

//! The Unix socket on which a daemon tells how it stands.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use bentpipe_os::limits;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;

use super::Ask;

/// Whoever does not read is let go.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket; its file goes when this is dropped.
#[derive(Debug)]
pub struct StatusSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl StatusSocket {
    /// Opens it, in the place of one that a killed daemon has left.
    pub fn open(path: PathBuf) -> Option<Self> {
        let bound = || {
            // A second start, by mistake, must not take the first one's place.
            if UnixStream::connect(&path).is_ok() {
                return Err(io::Error::from(io::ErrorKind::AddrInUse));
            }
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            limits::privately(|| UnixListener::bind(&path))
        };
        match bound() {
            Ok(listener) => Some(Self { path, listener }),
            Err(error) => {
                tracing::warn!(
                    "{}: {error}; `bentpipe status` will not find this process",
                    path.display()
                );
                None
            }
        }
    }

    /// Answers whoever connects, for ever.
    pub async fn serve(self, ask: Ask) {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            let status = ask();
            tokio::spawn(async move {
                let mut line = serde_json::to_vec(&status).unwrap_or_default();
                line.push(b'\n');
                // Whoever asked may have gone.
                let _ = tokio::time::timeout(PATIENCE, stream.write_all(&line)).await;
            });
        }
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

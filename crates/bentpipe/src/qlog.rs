//! qlogs: what each QUIC connection does, a file each (draft-ietf-quic-qlog-main-schema-13, JSON text
//! sequences), for `bentpipe trace` and other readers.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use bentpipe_quic::Events;
use noq::{ConnectionId, QlogConfig, QlogFactory, Side};

use crate::failure::Failure;

/// Where a file ends at the latest, bytes: some million packets.
const MOST: u64 = 1 << 30;
/// What stands before each record (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1e;

/// A directory with a file for each connection.
struct Directory(PathBuf);

/// Writes qlogs into `directory`, which is made if it does not exist.
pub fn into(directory: &Path) -> Result<Events, Failure> {
    std::fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
    Ok(Events::to(Arc::new(Directory(directory.to_owned()))))
}

/// Writes them where the environment variable QLOGDIR says, if it is set.
pub fn asked_for() -> Result<Events, Failure> {
    match std::env::var_os("QLOGDIR") {
        Some(directory) if !directory.is_empty() => into(Path::new(&directory)),
        _ => Ok(Events::default()),
    }
}

impl QlogFactory for Directory {
    /// A file with the moment in its name, in milliseconds since 1970, and the first connection ID
    /// that the client has chosen for its server, which both ends know.
    fn for_connection(
        &self,
        side: Side,
        remote: SocketAddr,
        id: ConnectionId,
        _: Instant,
    ) -> Option<QlogConfig> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let began = since.map_or(0, |since| since.as_millis());
        let end = match side {
            Side::Client => "client",
            Side::Server => "server",
        };
        let path = self.0.join(format!("{began}-{id}-{end}.sqlog"));
        let file = match File::create_new(&path) {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!("no qlog of a connection: {}: {error}", path.display());
                return None;
            }
        };
        let mut config = QlogConfig::new(Box::new(Log {
            to: Some(BufWriter::new(file)),
            path,
            written: 0,
        }));
        config
            .title(Some(concat!("bentpipe ", env!("CARGO_PKG_VERSION")).into()))
            .description(Some(format!(
                "{end} towards {remote}, begun {began} ms after 1970"
            )));
        Some(config)
    }
}

/// A file that ends before a record when it is full or the disk is; the connection goes on.
struct Log {
    to: Option<BufWriter<File>>,
    path: PathBuf,
    written: u64,
}

impl Log {
    fn end(&mut self, why: &dyn std::fmt::Display) {
        tracing::warn!("the qlog ends early: {}: {why}", self.path.display());
        self.to = None;
    }
}

impl Write for Log {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.written >= MOST && piece.first() == Some(&RECORD_SEPARATOR) && self.to.is_some() {
            self.end(&format_args!("it is {MOST} bytes long"));
        }
        let Some(to) = &mut self.to else {
            return Ok(piece.len());
        };
        match to.write(piece) {
            Ok(count) => {
                self.written += count as u64;
                Ok(count)
            }
            Err(error) => {
                self.end(&error);
                Ok(piece.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(Err(error)) = self.to.as_mut().map(Write::flush) {
            self.end(&error);
        }
        Ok(())
    }
}

//! A directory's files, as `bentpipe perf server --www` serves and `bentpipe perf get` keeps them.
//!
//! Files are read and written where they are asked for: what the kernel has in memory takes no
//! longer than to hand it to a thread that may wait.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use bentpipe_perf::files::{Files, Sink, Source, Store};
use futures_util::future::{BoxFuture, FutureExt as _, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The files below a directory, by their path in it.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    /// The files below `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        match path.is_dir() {
            true => Ok(Self(path)),
            false => Err(io::Error::new(ErrorKind::NotADirectory, "not a directory")),
        }
    }

    /// A regular file; links do not lead out of the directory.
    fn file(&self, path: &str) -> io::Result<(Source, u64)> {
        let path = Path::new(path.trim_start_matches('/'));
        if !path
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
        {
            return Err(ErrorKind::NotFound.into());
        }
        let path = self.0.join(path).canonicalize()?;
        let file = File::open(&path)?;
        let metadata = file.metadata()?;
        if !path.starts_with(&self.0) || !metadata.is_file() {
            return Err(ErrorKind::NotFound.into());
        }
        Ok((Box::new(Now(file)), metadata.len()))
    }

    /// A new file of the last name in `path`.
    fn kept(&self, path: &str) -> io::Result<Sink> {
        let name = Path::new(path).file_name().ok_or_else(|| {
            io::Error::new(
                ErrorKind::InvalidInput,
                "the URL names no file to keep it as",
            )
        })?;
        Ok(Box::new(Now(File::create(self.0.join(name))?)))
    }
}

impl Files for Directory {
    fn open<'a>(&'a self, path: &'a str) -> BoxFuture<'a, io::Result<(Source, u64)>> {
        ready(self.file(path)).boxed()
    }
}

impl Store for Directory {
    fn create<'a>(&'a self, path: &'a str) -> BoxFuture<'a, io::Result<Sink>> {
        ready(self.kept(path)).boxed()
    }
}

/// What is fetched to be measured, and not kept.
#[derive(Debug)]
pub struct Nowhere;

impl Store for Nowhere {
    fn create<'a>(&'a self, _path: &'a str) -> BoxFuture<'a, io::Result<Sink>> {
        ready(Ok(Box::new(tokio::io::sink()) as Sink)).boxed()
    }
}

/// A file that is ready at any time.
struct Now(File);

impl AsyncRead for Now {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.0.read(buffer.initialize_unfilled())?;
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Now {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.write(data))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_directory_is_served() {
        let root = std::env::temp_dir().join(format!("bentpipe-www-{}", std::process::id()));
        let inside = root.join("www");
        std::fs::create_dir_all(inside.join("deeper")).expect("a directory");
        std::fs::write(root.join("secret"), "secret").expect("a file");
        std::fs::write(inside.join("deeper/file"), "12345").expect("a file");
        std::os::unix::fs::symlink(root.join("secret"), inside.join("link")).expect("a link");
        let directory = Directory::open(&inside).expect("it is there");
        assert_eq!(directory.file("/deeper/file").expect("it is there").1, 5);
        for path in [
            "/../secret",
            "/deeper/../../secret",
            "/link",
            "/deeper",
            "/",
            "",
            "/nothing",
        ] {
            assert!(directory.file(path).is_err(), "{path:?}");
        }
        assert!(directory.kept("/").is_err());
        std::fs::remove_dir_all(root).expect("it is ours");
    }
}

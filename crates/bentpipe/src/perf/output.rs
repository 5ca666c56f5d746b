//! Where results go: a file, or the standard output as `-`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A place for lines.
pub struct Output {
    path: PathBuf,
    writer: Box<dyn Write + Send>,
}

impl Output {
    /// Opens `path` anew; `-` is the standard output.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let writer: Box<dyn Write + Send> = if is_stdout(path) {
            Box::new(io::stdout())
        } else {
            let file = File::create(path).map_err(|error| Failure::file(path, error))?;
            Box::new(BufWriter::new(file))
        };
        Ok(Self {
            path: path.to_owned(),
            writer,
        })
    }

    /// Writes a line, for whoever reads along.
    pub fn line(&mut self, line: &str) -> Result<(), Failure> {
        writeln!(self.writer, "{line}")
            .and_then(|()| self.writer.flush())
            .map_err(|error| anyhow::anyhow!("{}: {error}", self.path.display()).into())
    }
}

/// Whether the standard output is meant.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

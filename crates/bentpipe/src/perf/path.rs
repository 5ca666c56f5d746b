//! What was learnt of a path, in a file for the next measurement (Careful Resume, RFC 9959).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_cc::PathMemory;
use bentpipe_units::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::failure::{self, Failure};

/// What is saved is believed so long, as the tunnel believes it.
const LIFETIME: Duration = Duration::from_secs(3600);

/// The file's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    /// What the path carried, payload of IP packets.
    rate: Rate,
    /// Its least round-trip time.
    round_trip: Span,
}

/// What is known of the path to the other end, and where it is kept.
#[derive(Debug, Clone, Default)]
pub struct PathFile {
    file: Option<PathBuf>,
    memory: PathMemory,
}

impl PathFile {
    /// Reads `file`, which may not be there yet; without one nothing is kept.
    pub fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = file else {
            return Ok(Self::default());
        };
        let written = match fs::metadata(path).and_then(|metadata| metadata.modified()) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::file(path, error)),
            Ok(written) => Some(written),
        };
        // A clock that was set back since makes it no older.
        let fresh = written.filter(|at| at.elapsed().is_ok_and(|age| age < LIFETIME));
        let memory = match fresh {
            None => PathMemory::default(),
            Some(_) => {
                let saved = Saved::parse(&failure::read(path)?);
                saved.map_err(|why| Failure::file(path, why))?
            }
        };
        Ok(Self {
            file: Some(path.to_owned()),
            memory,
        })
    }

    /// What is known, shared with the connections that learn.
    pub fn memory(&self) -> PathMemory {
        self.memory.clone()
    }

    /// Writes what is known now, if anything is.
    pub fn write(&self) -> Result<(), Failure> {
        let (Some(path), Some(known)) = (&self.file, self.memory.get()) else {
            return Ok(());
        };
        let text = toml::to_string(&Saved::of(&known)).map_err(anyhow::Error::from)?;
        let text = format!("# What `bentpipe perf` learnt of a path; it may be deleted.\n{text}");
        fs::write(path, text).map_err(|error| Failure::file(path, error))
    }
}

impl Saved {
    fn parse(text: &str) -> Result<PathMemory, String> {
        let saved: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let bits = saved.rate.bits_per_second();
        if !(1_000..=100_000_000_000).contains(&bits) {
            return Err(format!(
                "rate = \"{}\": give 1 kbit/s to 100 Gbit/s, or delete the file",
                saved.rate
            ));
        }
        if !(Span::from_millis(1)..=Span::from_millis(10_000)).contains(&saved.round_trip) {
            return Err(format!(
                "round_trip = \"{}\": give 1 ms to 10 s, or delete the file",
                saved.round_trip
            ));
        }
        Ok(PathMemory::with(bentpipe_cc::Path {
            rate: bits as f64 / 8.0,
            rtt: saved.round_trip,
        }))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate in whole bits per second"
    )]
    fn of(path: &bentpipe_cc::Path) -> Self {
        Self {
            rate: Rate::from_bits_per_second((path.rate * 8.0) as u64),
            round_trip: path.rtt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        let path = bentpipe_cc::Path {
            rate: 2_500_000.0,
            rtt: Span::from_millis(600),
        };
        let text = toml::to_string(&Saved::of(&path)).expect("plain data");
        let memory = Saved::parse(&text).expect("what was written");
        assert_eq!(memory.get(), Some(path));
    }

    #[test]
    fn nonsense_is_refused_with_its_remedy() {
        for text in [
            "",
            "rate = 5",
            "rate = \"1 bit/s\"\nround_trip = \"600 ms\"",
            "rate = \"20 Mbit/s\"\nround_trip = \"600 s\"",
            "rate = \"20 Mbit/s\"\nround_trip = \"600 ms\"\nmore = 1",
        ] {
            assert!(Saved::parse(text).is_err(), "{text:?}");
        }
    }
}

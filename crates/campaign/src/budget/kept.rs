//! Runs over drawn links, kept in a file as they end: a set takes hours, and who is interrupted goes on where it was.
//!
//! The file stands beside the one with the figures, `.part` after its name. Its first line says what its runs are of, each
//! other is one of them, in JSON. The same program comes to the same figures with the same seed; another may not.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Serialize;

use super::draw::Links;
use super::never_worst::Run;

/// What the runs of a file are of.
#[derive(Debug, Serialize)]
struct Of {
    /// Which set of links, and how long each is run.
    #[serde(flatten)]
    links: Links,
    /// SHA-256 of the program, hexadecimal.
    program: String,
}

/// A file of runs, open for more.
#[derive(Debug)]
pub struct Kept {
    path: PathBuf,
    file: File,
}

impl Kept {
    /// The file beside `out` for runs over `links`, made where there is none, and the runs in it.
    ///
    /// # Errors
    ///
    /// Where it cannot be read or written, another process writes it, or its runs are of another set, length or program.
    pub fn open(out: &Path, links: Links) -> anyhow::Result<(Self, Vec<Run>)> {
        let program = sha256(&std::fs::read("/proc/self/exe").context("reading this program")?);
        Self::open_by(out, &Of { links, program })
    }

    fn open_by(out: &Path, of: &Of) -> anyhow::Result<(Self, Vec<Run>)> {
        let mut name = out.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        let place = || path.display();
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("making {}", directory.display()))?;
        }
        let file = (OpenOptions::new().read(true).append(true).create(true)).open(&path);
        let mut file = file.with_context(|| format!("opening {}", place()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("{}: another process writes it", place()),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("locking {}", place()));
            }
        }
        let mut text = String::new();
        (file.read_to_string(&mut text)).with_context(|| format!("reading {}", place()))?;
        let header = serde_json::to_string(of)? + "\n";
        // Who is killed while it writes leaves a line without an end.
        let runs = match text.strip_prefix(&header) {
            Some(runs) => &runs[..runs.rfind('\n').map_or(0, |end| end + 1)],
            None if header.starts_with(&text) => "",
            None => bail!(
                "{}: its runs are of another set of links, of another length, or of another build of bentpipe; move it away, or remove it",
                place()
            ),
        };
        let whole = match text.starts_with(&header) {
            true => header.len() + runs.len(),
            false => 0,
        };
        if whole < text.len() {
            file.set_len(whole as u64)
                .with_context(|| format!("shortening {}", place()))?;
        }
        if whole == 0 {
            file.write_all(header.as_bytes())
                .with_context(|| format!("writing {}", place()))?;
        }
        let runs = (2..).zip(runs.lines()).map(|(number, line)| {
            serde_json::from_str(line).with_context(|| format!("{}, line {number}", place()))
        });
        let runs = runs.collect::<anyhow::Result<_>>()?;
        Ok((Self { path, file }, runs))
    }

    /// One more.
    ///
    /// # Errors
    ///
    /// Where it cannot be written; those before it stay.
    pub fn add(&mut self, run: &Run) -> anyhow::Result<()> {
        let line = serde_json::to_string(run)? + "\n";
        (self.file.write_all(line.as_bytes()))
            .with_context(|| format!("writing {}", self.path.display()))
    }

    /// The figures are written: nothing has to be gone on with.
    ///
    /// # Errors
    ///
    /// Where the file cannot be removed.
    pub fn done(self) -> anyhow::Result<()> {
        std::fs::remove_file(&self.path)
            .with_context(|| format!("removing {}", self.path.display()))
    }
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    (digest.as_ref().iter())
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use bentpipe_cc::Choice;

    use super::*;

    /// A place of its own, removed when dropped.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let directory = format!("bentpipe-kept-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(directory))
        }

        fn open(&self, seed: u64, program: &str) -> anyhow::Result<(Kept, Vec<Run>)> {
            self.open_for(Links::whole(seed), program)
        }

        fn open_for(&self, links: Links, program: &str) -> anyhow::Result<(Kept, Vec<Run>)> {
            let program = program.to_owned();
            Kept::open_by(&self.0.join("out.json"), &Of { links, program })
        }

        fn part(&self) -> PathBuf {
            self.0.join("out.json.part")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn run(link: u64) -> Run {
        Run {
            link,
            controller: Choice::Satellite,
            repetition: 2,
            lasted: 60,
            seconds: [Some(0.1 + 0.2), Some(1.0 / 3.0), None],
            goodput: 12.345_678_9,
            queue_p95_ms: 1e-9,
            lost: 0.01,
        }
    }

    #[test]
    fn who_is_killed_goes_on_with_every_whole_run() {
        let place = Place::new("killed");
        let (mut kept, before) = place.open(7, "this").unwrap();
        assert_eq!(before, []);
        kept.add(&run(1)).unwrap();
        kept.add(&run(2)).unwrap();
        drop(kept);
        let whole = std::fs::read(place.part()).unwrap();
        for cut in 1..whole.len() {
            std::fs::write(place.part(), &whole[..cut]).unwrap();
            let ends = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
            let (mut kept, before) = place.open(7, "this").unwrap();
            assert_eq!(before.len(), ends.saturating_sub(1), "cut at {cut}");
            kept.add(&run(3)).unwrap();
            drop(kept);
            let (kept, after) = place.open(7, "this").unwrap();
            assert_eq!(after, [&before[..], &[run(3)]].concat());
            kept.done().unwrap();
            assert!(!place.part().exists());
        }
    }

    #[test]
    fn runs_of_another_set_length_or_program_are_left_alone() {
        let place = Place::new("another");
        let (mut kept, _) = place.open(7, "this").unwrap();
        kept.add(&run(1)).unwrap();
        drop(kept);
        let there = std::fs::read(place.part()).unwrap();
        let shorter = Links {
            seed: 7,
            seconds: 10,
        };
        for (links, program) in [
            (Links::whole(8), "this"),
            (shorter, "this"),
            (Links::whole(7), "that"),
        ] {
            let refused = place.open_for(links, program).unwrap_err().to_string();
            assert!(refused.contains("move it away, or remove it"), "{refused}");
            assert_eq!(std::fs::read(place.part()).unwrap(), there);
        }
        std::fs::write(place.part(), "a letter without an end").unwrap();
        assert!(place.open(7, "this").is_err());
        assert_eq!(
            std::fs::read(place.part()).unwrap(),
            b"a letter without an end"
        );
        std::fs::write(place.part(), [&there[..], b"{\"link\": true}\n"].concat()).unwrap();
        let refused = format!("{:#}", place.open(7, "this").unwrap_err());
        assert!(refused.contains("out.json.part, line 3"), "{refused}");
    }

    #[test]
    fn two_at_once_do_not_write_one_file() {
        let place = Place::new("two");
        let (kept, _) = place.open(7, "this").unwrap();
        let refused = place.open(7, "this").unwrap_err().to_string();
        assert!(refused.contains("another process writes it"), "{refused}");
        drop(kept);
        assert!(place.open(7, "this").is_ok());
    }
}

//! What is known of the paths to the peers, in a file: a daemon that restarts goes on
//! where it was (RFC 9959).
//!
//! The file only makes things faster. One that cannot be read or believed is named in a
//! warning and is replaced when there is something to write; one that cannot be written
//! costs a warning. Neither keeps a daemon from its work.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bentpipe_tunnel::identity::Fingerprint;
use bentpipe_tunnel::paths::{MOST, Paths, SavedPath};
use bentpipe_units::{Rate, Span};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const HEAD: &str = "# What bentpipe has learnt of the paths to its peers, for the time after a restart.\n# Without this file the next sessions start as if nothing were known.\n\n";
const VERSION: i64 = 1;
/// A file that is longer was not written by us: each path has less than 256 bytes.
const LONGEST: u64 = 256 * (MOST as u64 + 1);
/// Numbers that a path can have; a tunnel expects no more than 100 Gbit/s of a link.
const RATES: std::ops::RangeInclusive<u64> = 8_000..=100_000_000_000;
const LONGEST_ROUND_TRIP: Span = Span::from_millis(10_000);
/// A clock is set back by so little every now and then; by more, it was wrong or is.
const CLOCK_STEP: Duration = Duration::from_secs(10);
/// What open sessions learn is written so often.
const WRITE_EVERY: Duration = Duration::from_secs(60);
/// Peers that come and go do not make us write more often.
const WRITE_AT_MOST_EVERY: Duration = Duration::from_secs(10);
/// How old the time of an open session may be in the file, when nothing else has changed.
const OPEN_FOR: Duration = Duration::from_secs(600);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: i64,
    #[serde(default)]
    path: BTreeMap<Fingerprint, Entry>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// What it carried, IP packets' payload.
    rate: Rate,
    /// The least that was seen.
    round_trip: Span,
    /// The last moment of a session over it that is known of: seconds since 1970, UTC.
    used: u64,
}

/// The file, and what it holds as far as this process knows.
#[derive(Debug)]
pub struct PathFile {
    path: PathBuf,
    written: Vec<SavedPath>,
    at: Instant,
    /// The last attempt failed, and that has been told.
    failing: bool,
}

/// Keeps the file up to date until it is stopped.
#[derive(Debug)]
pub struct Keeper {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Keeper {
    /// Reads the file at `path` and keeps it up to date from now on.
    pub fn start(path: PathBuf) -> (Self, Paths) {
        let file = PathFile::open(path);
        let paths = Paths::restored(file.written.iter().copied());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keep(file, paths.clone(), stopped));
        (Self { stop, task }, paths)
    }

    /// Writes what is known now, and ends.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::warn!("what is known of the paths was not written: {error}");
        }
    }
}

async fn keep(mut file: PathFile, paths: Paths, mut stopped: oneshot::Receiver<()>) {
    loop {
        let stopping = tokio::select! {
            () = due(&paths) => false,
            _ = &mut stopped => true,
        };
        let saved = paths.saved();
        // A disk may take its time.
        let writing = tokio::task::spawn_blocking(move || {
            file.update(saved);
            file
        });
        match writing.await {
            Ok(back) if !stopping => file = back,
            _ => return,
        }
    }
}

async fn due(paths: &Paths) {
    tokio::time::sleep(WRITE_AT_MOST_EVERY).await;
    // Either is as good a moment.
    let _ = tokio::time::timeout(WRITE_EVERY, paths.session_ended()).await;
}

impl PathFile {
    /// The file at `path`, and what it has told.
    fn open(path: PathBuf) -> Self {
        let written = read(&path, SystemTime::now()).unwrap_or_else(|why| {
            tracing::warn!(
                "{}: {why}; sessions start as if nothing were known of their paths, and the file is replaced when something is. If it should be looked at, move it away now",
                path.display()
            );
            Vec::new()
        });
        if !written.is_empty() {
            tracing::info!(file = %path.display(), paths = written.len(), "paths are remembered");
        }
        Self {
            path,
            written,
            at: Instant::now(),
            failing: false,
        }
    }

    /// Writes `saved` if that is worth it.
    fn update(&mut self, saved: Vec<SavedPath>) {
        if !self.is_news(&saved) {
            return;
        }
        match write(&self.path, &saved, SystemTime::now()) {
            Ok(()) => {
                self.written = saved;
                self.at = Instant::now();
                self.failing = false;
            }
            Err(error) if !self.failing => {
                tracing::warn!(
                    "{}: {error}; what is known of the paths is not kept over a restart. Make room on the disk, or let bentpipe's user write there",
                    self.path.display()
                );
                self.failing = true;
            }
            Err(_) => {}
        }
    }

    fn is_news(&self, saved: &[SavedPath]) -> bool {
        let open = |saved: &SavedPath| saved.ended.is_none();
        let same = |old: &SavedPath, new: &SavedPath| {
            (old.peer, old.path, open(old)) == (new.peer, new.path, open(new))
        };
        let unchanged = self.written.len() == saved.len()
            && self
                .written
                .iter()
                .zip(saved)
                .all(|(old, new)| same(old, new));
        !unchanged || (saved.iter().any(open) && self.at.elapsed() >= OPEN_FOR)
    }
}

/// What the file at `path` holds, in the order of the peers' keys; nothing, if there is none.
fn read(path: &Path, now: SystemTime) -> Result<Vec<SavedPath>, String> {
    let text = match text(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let table: toml::Table = toml::from_str(&text).map_err(|error| in_a_line(&error))?;
    match table.get("version") {
        Some(toml::Value::Integer(VERSION)) => {}
        Some(other) => {
            return Err(format!(
                "version = {other} is of another bentpipe; this one reads {VERSION}"
            ));
        }
        None => return Err("version is missing".into()),
    }
    let contents: Contents = table.try_into().map_err(|error| in_a_line(&error))?;
    if contents.path.len() > MOST {
        let count = contents.path.len();
        return Err(format!("it has {count} paths, more than {MOST}"));
    }
    let mut saved = Vec::new();
    for (peer, entry) in contents.path {
        entry.check().map_err(|why| format!("{peer}: {why}"))?;
        saved.extend(entry.saved(peer, now));
    }
    Ok(saved)
}

/// Logs have lines; the library's text has several, with a picture of the place.
fn in_a_line(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let words: Vec<_> = text.lines().filter(|line| !line.contains('|')).collect();
    words.join(": ")
}

/// The text of a file that may be anything.
fn text(path: &Path) -> io::Result<String> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut text = String::new();
    File::open(path)?
        .take(LONGEST + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::other(format!(
            "longer than {LONGEST} bytes, which bentpipe never writes"
        )));
    }
    Ok(text)
}

fn write(path: &Path, saved: &[SavedPath], now: SystemTime) -> anyhow::Result<()> {
    let entry = |saved: &SavedPath| {
        let entry = Entry::of(saved, now);
        entry.check().is_ok().then_some((saved.peer, entry))
    };
    let contents = Contents {
        version: VERSION,
        path: saved.iter().filter_map(entry).collect(),
    };
    let text = toml::to_string(&contents)?;
    bentpipe_os::secret::write(path, &format!("{HEAD}{text}"))?;
    Ok(())
}

impl Entry {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate in whole bits per second; what is beyond all rates stays so"
    )]
    fn of(saved: &SavedPath, now: SystemTime) -> Self {
        let used = since_1970(now).saturating_sub(saved.ended.unwrap_or_default());
        Self {
            rate: Rate::from_bits_per_second((saved.path.rate * 8.0).round() as u64),
            round_trip: saved.path.rtt,
            used: used.as_secs(),
        }
    }

    /// Whether there can be such a path.
    fn check(&self) -> Result<(), String> {
        if !RATES.contains(&self.rate.bits_per_second()) {
            return Err(format!(
                "rate = \"{}\" is not from 8 kbit/s to 100 Gbit/s",
                self.rate
            ));
        }
        if self.round_trip.as_nanos() == 0 || self.round_trip > LONGEST_ROUND_TRIP {
            return Err(format!(
                "round_trip = \"{}\" is not from 1 ns to 10 s",
                self.round_trip
            ));
        }
        Ok(())
    }

    /// What is known from it, unless it comes from the future.
    fn saved(self, peer: Fingerprint, now: SystemTime) -> Option<SavedPath> {
        let (used, now) = (Duration::from_secs(self.used), since_1970(now));
        (used <= now + CLOCK_STEP).then_some(SavedPath {
            peer,
            path: bentpipe_cc::Path {
                rate: self.rate.bits_per_second() as f64 / 8.0,
                rtt: self.round_trip,
            },
            ended: Some(now.saturating_sub(used)),
        })
    }
}

fn since_1970(now: SystemTime) -> Duration {
    now.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use bentpipe_tunnel::identity::Identity;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const PATH: bentpipe_cc::Path = bentpipe_cc::Path {
        rate: 2_487_654.25,
        rtt: Span::from_millis(603),
    };

    /// A directory that goes with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let id = std::process::id();
            let path = std::env::temp_dir().join(format!("bentpipe-paths-{name}-{id}"));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("terminal.paths.toml")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn peer(seed: u8) -> Fingerprint {
        Identity::from_seed(&[seed; 32]).fingerprint()
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + NOW + Duration::from_secs(seconds)
    }

    fn open(seed: u8) -> SavedPath {
        SavedPath {
            peer: peer(seed),
            path: PATH,
            ended: None,
        }
    }

    fn ended(seed: u8, seconds: u64) -> SavedPath {
        SavedPath {
            ended: Some(Duration::from_secs(seconds)),
            ..open(seed)
        }
    }

    /// In the order of the peers' keys, as a file has them.
    fn sorted(mut saved: Vec<SavedPath>) -> Vec<SavedPath> {
        saved.sort_by_key(|saved| saved.peer);
        saved
    }

    #[test]
    fn what_was_written_is_read_and_has_aged() {
        let directory = Directory::new("aged");
        write(&directory.file(), &[open(1), ended(2, 100)], at(0)).unwrap();
        let read = read(&directory.file(), at(50)).unwrap();
        assert_eq!(read, sorted(vec![ended(1, 50), ended(2, 150)]));
        let mode = std::fs::metadata(directory.file()).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[test]
    fn without_a_file_nothing_is_known() {
        let directory = Directory::new("none");
        assert_eq!(read(&directory.file(), at(0)), Ok(Vec::new()));
    }

    #[test]
    fn what_comes_from_the_future_is_not_believed() {
        let directory = Directory::new("future");
        write(&directory.file(), &[open(1), ended(2, 3600)], at(0)).unwrap();
        let known = |seconds_before| {
            let now = at(0) - Duration::from_secs(seconds_before);
            read(&directory.file(), now).unwrap()
        };
        assert_eq!(known(5), sorted(vec![ended(1, 0), ended(2, 3595)]));
        assert_eq!(known(60), [ended(2, 3540)]);
        assert_eq!(known(2 * 3600), []);
        assert_eq!(
            read(&directory.file(), SystemTime::UNIX_EPOCH),
            Ok(Vec::new())
        );
    }

    #[test]
    fn a_file_that_cannot_be_believed_is_refused_as_a_whole() {
        let directory = Directory::new("damaged");
        let whole = |lines: &str| {
            let (one, two) = (peer(1), peer(2));
            format!(
                "version = 1\n[path.\"{one}\"]\nrate = \"20 Mbit/s\"\nround_trip = \"600 ms\"\nused = 1800000000\n[path.\"{two}\"]\n{lines}\n"
            )
        };
        let entry = |rate: &str, round_trip: &str, used: &str| {
            whole(&format!(
                "rate = {rate}\nround_trip = {round_trip}\nused = {used}"
            ))
        };
        let (rate, round_trip, used) = ("\"20 Mbit/s\"", "\"600 ms\"", "1800000000");
        let good = entry(rate, round_trip, used);
        let half = &good[..good.len() * 2 / 3];
        for (text, said) in [
            (good.as_str(), None),
            (half, Some("TOML")),
            ("", Some("version is missing")),
            ("\u{0}\u{1}", Some("TOML")),
            (
                &good.replace("version = 1", "version = 2\nnew = 3"),
                Some("version = 2 is of another"),
            ),
            (
                &good.replace("version = 1", "version = \"1\""),
                Some("version = \"1\" is of another"),
            ),
            (
                &good.replace("sha256:", "sha1:"),
                Some("is not a key fingerprint"),
            ),
            (&whole("rate = \"20 Mbit/s\""), Some("missing field")),
            (&format!("{good}colour = 3"), Some("unknown field")),
            (
                &entry("\"0 Mbit/s\"", round_trip, used),
                Some("rate = \"0 bit/s\" is not from"),
            ),
            (
                &entry("\"-20 Mbit/s\"", round_trip, used),
                Some("-20 Mbit/s"),
            ),
            (
                &entry("\"200 Gbit/s\"", round_trip, used),
                Some("is not from"),
            ),
            (&entry("nan", round_trip, used), Some("invalid type")),
            (&entry("inf", round_trip, used), Some("invalid type")),
            (
                &entry(rate, "\"0 ms\"", used),
                Some("round_trip = \"0 ns\" is not from"),
            ),
            (&entry(rate, "\"1 h\"", used), Some("is not from")),
            (&entry(rate, "\"-1 ms\"", used), Some("-1 ms")),
            (&entry(rate, round_trip, "-1"), Some("-1")),
            (&entry(rate, round_trip, "1e300"), Some("expected u64")),
        ] {
            std::fs::write(directory.file(), text).unwrap();
            match (read(&directory.file(), at(0)), said) {
                (Ok(saved), None) => assert_eq!(saved.len(), 2),
                (Err(why), Some(said)) => {
                    println!("{why}");
                    assert!(why.contains(said) && !why.contains('\n'), "{text}: {why}");
                }
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }

    #[test]
    fn a_file_that_is_none_of_ours_is_refused_before_it_fills_the_memory() {
        let directory = Directory::new("long");
        let long = " ".repeat(usize::try_from(LONGEST).unwrap() + 1);
        std::fs::write(directory.file(), long).unwrap();
        assert!(
            read(&directory.file(), at(0))
                .unwrap_err()
                .contains("longer than")
        );
        assert!(
            read(&directory.0, at(0))
                .unwrap_err()
                .contains("not a file")
        );
        assert!(
            read(Path::new("/dev/zero"), at(0))
                .unwrap_err()
                .contains("not a file")
        );
    }

    #[test]
    fn as_many_paths_as_are_remembered_fit_in_the_file() {
        let directory = Directory::new("most");
        let longest = Entry {
            rate: Rate::from_bits_per_second(99_999_999_999),
            round_trip: Span::from_nanos(9_999_999_999),
            used: u64::from(u32::MAX),
        };
        let text = |paths: usize| {
            // Any fingerprint is as long as any other.
            let lines = toml::to_string(&BTreeMap::from([(peer(1), longest)])).unwrap();
            HEAD.len() + paths * (lines.len() + "path.\n".len())
        };
        assert!((text(MOST) as u64) < LONGEST, "{} of {LONGEST}", text(MOST));
        drop(directory);
    }

    #[test]
    fn a_damaged_file_stays_until_there_is_something_to_write() {
        let directory = Directory::new("stays");
        std::fs::write(directory.file(), "rubbish").unwrap();
        let mut file = PathFile::open(directory.file());
        file.update(Vec::new());
        assert_eq!(
            std::fs::read_to_string(directory.file()).unwrap(),
            "rubbish"
        );
        file.update(vec![open(1)]);
        assert_eq!(PathFile::open(directory.file()).written.len(), 1);
    }

    #[test]
    fn it_is_written_only_when_something_has_changed() {
        let directory = Directory::new("changed");
        let mut file = PathFile::open(directory.file());
        let mut writes = |saved: &[SavedPath]| {
            let _ = std::fs::remove_file(directory.file());
            file.update(saved.to_vec());
            directory.file().exists()
        };
        assert!(!writes(&[]));
        assert!(writes(&[open(1)]));
        assert!(!writes(&[open(1)]), "nothing new");
        let faster = bentpipe_cc::Path { rate: 3e6, ..PATH };
        let learnt = SavedPath {
            path: faster,
            ..open(1)
        };
        assert!(writes(&[learnt]));
        let ended = |seconds| SavedPath {
            ended: Some(Duration::from_secs(seconds)),
            ..learnt
        };
        assert!(writes(&[ended(0)]));
        assert!(!writes(&[ended(100)]), "only older");
        assert!(writes(&[]), "too old");
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_old_one() {
        let directory = Directory::new("full");
        let mut file = PathFile::open(directory.file());
        file.update(vec![open(1)]);
        let before = std::fs::read_to_string(directory.file()).unwrap();
        // What is written first is in the way, as a full disk would be.
        let new = directory.0.join("terminal.paths.toml.new");
        std::fs::create_dir(&new).unwrap();
        file.update(vec![open(2)]);
        assert!(file.failing);
        assert_eq!(std::fs::read_to_string(directory.file()).unwrap(), before);
        std::fs::remove_dir(new).unwrap();
        file.update(vec![open(2)]);
        assert!(!file.failing);
        let peers: Vec<_> = PathFile::open(directory.file()).written;
        assert_eq!(peers[0].peer, peer(2));
    }

    /// Numbers that no path has can come from a peer that acknowledges what it never received.
    #[test]
    fn what_would_not_be_believed_is_not_written() {
        let directory = Directory::new("poison");
        let with = |rate| SavedPath {
            path: bentpipe_cc::Path { rate, ..PATH },
            ..open(1)
        };
        for rate in [f64::INFINITY, f64::NAN, -1.0, 0.0, 1e15] {
            write(&directory.file(), &[with(rate), open(2)], at(0)).unwrap();
            let saved = read(&directory.file(), at(0)).unwrap();
            assert_eq!(saved, [ended(2, 0)], "{rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn peers_that_come_and_go_do_not_make_it_write_without_bound() {
        let paths = Paths::default();
        let begin = tokio::time::Instant::now();
        for _ in 0..5 {
            drop(paths.lease(
                peer(1),
                PATH.rtt.as_duration(),
                bentpipe_cc::PathMemory::with(PATH),
            ));
            due(&paths).await;
        }
        assert_eq!(begin.elapsed(), 5 * WRITE_AT_MOST_EVERY);
        due(&paths).await;
        let last = begin.elapsed() - 5 * WRITE_AT_MOST_EVERY;
        assert_eq!(
            last,
            WRITE_AT_MOST_EVERY + WRITE_EVERY,
            "no session has ended"
        );
    }

    #[tokio::test]
    async fn when_it_is_stopped_it_has_written() {
        let directory = Directory::new("stopped");
        let (keeper, paths) = Keeper::start(directory.file());
        drop(paths.lease(
            peer(1),
            PATH.rtt.as_duration(),
            bentpipe_cc::PathMemory::with(PATH),
        ));
        keeper.stop().await;
        let (keeper, paths) = Keeper::start(directory.file());
        assert_eq!(paths.known(&peer(1), PATH.rtt.as_duration()), Some(PATH));
        keeper.stop().await;
    }
}

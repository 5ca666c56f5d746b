//! The gateway's list of terminals and of enrolment lines, a file that people can read
//! and edit.

pub mod clients;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use bentpipe_tunnel::identity::{Fingerprint, PeerRole, Registry};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use clients::Client;

const HEAD: &str = "# Terminals and other clients that may use this gateway, and enrolment lines. `bentpipe gateway terminals`,\n# `lines`, `token` and `certificate` list and change them; an entry that is removed counts at once.\n\n";
/// How long another process may hold the file.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct List {
    /// Enrolled terminals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terminal: Vec<Terminal>,
    /// Enrolment lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enrolment: Vec<Enrolment>,
    /// Clients of other people's making.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub client: Vec<Client>,
}

/// An enrolled terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terminal {
    /// By what it is known.
    pub key: Fingerprint,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When it was enrolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled: Option<Date>,
    /// The key that it had before, which is good until the terminal has used the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_key: Option<Fingerprint>,
    /// The first key that it had, if that is another: its volume is counted under that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_key: Option<Fingerprint>,
    /// The next key of the gateway that it has written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knows_key: Option<Fingerprint>,
}

impl Terminal {
    /// Whether its key is or was `key`.
    fn has(&self, key: &Fingerprint) -> bool {
        self.key == *key || self.old_key == Some(*key) || self.first_key == Some(*key)
    }

    /// Whether `key` lets it in.
    fn admits(&self, key: &Fingerprint) -> bool {
        self.key == *key || self.old_key == Some(*key)
    }

    /// Its name, or else its key.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.key.to_string())
    }
}

/// A one-time key, and the terminal that has used it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enrolment {
    /// The one-time key of the line.
    pub key: Fingerprint,
    /// What its terminal will be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// When the line was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Date>,
    /// When it ceases to be good; without, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Date>,
    /// The terminal that was enrolled with it: it enrols no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<Fingerprint>,
}

/// A moment, written as RFC 3339 has it, in whole seconds and UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(pub SystemTime);

impl Date {
    /// This moment.
    pub fn now() -> Self {
        Self(SystemTime::now())
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        humantime::format_rfc3339_seconds(self.0).fmt(out)
    }
}

impl Serialize for Date {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Date {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map(Self).map_err(|_| {
            serde::de::Error::custom(format!(
                "{text:?} is not a moment; write it like \"2026-01-31T12:00:00Z\""
            ))
        })
    }
}

/// The list in its file. Changes that others make to the file count from the next
/// handshake on.
#[derive(Debug)]
pub struct FileRegistry {
    path: PathBuf,
    read: Mutex<Read>,
}

/// What was read last.
#[derive(Debug)]
struct Read {
    list: List,
    /// The file then; `None` if it could not be read since: it is read again at the next look.
    version: Option<Version>,
}

/// What changes of a file with its content, whoever writes it: an editor, or another process that
/// puts a new file in its place. Time alone has ticks of milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Absent,
    File {
        changed: Option<SystemTime>,
        length: u64,
        inode: u64,
    },
}

impl Version {
    fn of(path: &Path) -> io::Result<Self> {
        match std::fs::metadata(path) {
            Ok(metadata) => Ok(Self::File {
                changed: metadata.modified().ok(),
                length: metadata.len(),
                inode: metadata.ino(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Absent),
            Err(error) => Err(error),
        }
    }
}

impl FileRegistry {
    /// The list at `path`; a file that is not there is an empty list.
    pub fn open(path: PathBuf) -> anyhow::Result<Self> {
        // Before the content: what changes meanwhile is read again.
        let version = Version::of(&path).ok();
        let list = load(&path)?;
        let read = Mutex::new(Read { list, version });
        Ok(Self { path, read })
    }

    /// Puts a new line on the list.
    pub fn add_enrolment(&self, enrolment: Enrolment) -> anyhow::Result<()> {
        self.change(|list| {
            list.enrolment.push(enrolment);
            Ok(())
        })
    }

    /// Shuts the terminal out that `selector` names: its key, the beginning of it, or its name.
    pub fn revoke(&self, selector: &str) -> anyhow::Result<Terminal> {
        self.change(|list| {
            let index = list.find_terminal(selector)?;
            Ok(list.terminal.remove(index))
        })
    }

    /// Calls a terminal `name`.
    pub fn name(&self, selector: &str, name: &str) -> anyhow::Result<Terminal> {
        check_name(name).map_err(anyhow::Error::msg)?;
        self.change(|list| {
            let index = list.find_terminal(selector)?;
            if list
                .terminal
                .iter()
                .any(|t| t.name.as_deref() == Some(name))
            {
                return Err(format!("there is a terminal called {name:?} already"));
            }
            let terminal = &mut list.terminal[index];
            terminal.name = Some(name.to_owned());
            Ok(terminal.clone())
        })
    }

    /// Makes the enrolment line worthless that `selector` names.
    pub fn withdraw(&self, selector: &str) -> anyhow::Result<Enrolment> {
        self.change(|list| {
            let index = find(
                selector,
                list.enrolment
                    .iter()
                    .map(|line| (&line.key, line.name.as_deref())),
                "enrolment line",
                "bentpipe gateway lines list",
            )?;
            Ok(list.enrolment.remove(index))
        })
    }

    /// What the terminal with `key`, or the client that shows it, is called.
    pub fn name_of(&self, key: &Fingerprint) -> Option<String> {
        self.with(|list| {
            let terminal = list.terminal.iter().find(|terminal| terminal.has(key));
            let client = || Some(list.client(key)?.name.clone());
            terminal
                .and_then(|terminal| terminal.name.clone())
                .or_else(client)
        })
    }

    /// The list as it is now.
    pub fn current(&self) -> List {
        self.with(List::clone)
    }

    fn with<T>(&self, look: impl FnOnce(&List) -> T) -> T {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Version::of(&self.path).ok();
        if now.is_none() || read.version != now {
            match load(&self.path) {
                Ok(list) => {
                    *read = Read { list, version: now };
                }
                // Half-edited, perhaps: whoever was enrolled before still is.
                Err(error) => {
                    tracing::warn!("{error:#}; the list as it was before stays in force");
                    let unreadable = error.downcast_ref::<io::Error>().is_some();
                    read.version = now.filter(|_| !unreadable);
                }
            }
        }
        look(&read.list)
    }

    /// Reads, changes and replaces the file while no other process does.
    fn change<T>(&self, change: impl FnOnce(&mut List) -> Result<T, String>) -> anyhow::Result<T> {
        let lock_path = self.path.with_extension("lock");
        // A lock that others could open, they could hold.
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .with_context(|| lock_path.display().to_string())?;
        let mine = lock.metadata().map(|metadata| metadata.permissions());
        if mine.is_ok_and(|permissions| permissions.mode() & 0o077 != 0) {
            lock.set_permissions(std::fs::Permissions::from_mode(0o600))
                .with_context(|| lock_path.display().to_string())?;
        }
        let deadline = std::time::Instant::now() + LOCK_PATIENCE;
        while let Err(error) = lock.try_lock() {
            if std::time::Instant::now() > deadline {
                anyhow::bail!(
                    "{}: {error}; `fuser {}` shows which process holds it",
                    lock_path.display(),
                    lock_path.display()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut list = load(&self.path)?;
        let changed = change(&mut list).map_err(anyhow::Error::msg)?;
        let text = toml::to_string(&list)?;
        bentpipe_os::secret::write(&self.path, &format!("{HEAD}{text}"))
            .with_context(|| self.path.display().to_string())?;
        Ok(changed)
    }
}

impl List {
    fn find_terminal(&self, selector: &str) -> Result<usize, String> {
        find(
            selector,
            self.terminal.iter().map(|t| (&t.key, t.name.as_deref())),
            "terminal",
            "bentpipe gateway terminals list",
        )
    }

    fn enrol(
        &mut self,
        line: &Fingerprint,
        terminal: Fingerprint,
        now: Date,
    ) -> Result<(), String> {
        const AGAIN: &str = "make a new line at the gateway with `bentpipe gateway init`";
        let known = self.terminal.iter().any(|known| known.key == terminal);
        let entry = self
            .enrolment
            .iter_mut()
            .find(|entry| entry.key == *line)
            .ok_or_else(|| format!("the enrolment line has been withdrawn; {AGAIN}"))?;
        match entry.used_by {
            // Its answer was lost, and it asks again.
            Some(user) if user == terminal && known => return Ok(()),
            Some(user) if user == terminal => {
                return Err(format!(
                    "this terminal has been revoked, and the enrolment line is used up; {AGAIN}"
                ));
            }
            Some(user) => {
                return Err(format!(
                    "the enrolment line has been used by the terminal {user}; {AGAIN}"
                ));
            }
            None => {}
        }
        if let Some(expires) = entry.expires
            && expires <= now
        {
            return Err(format!(
                "the enrolment line has expired at {expires}; {AGAIN}"
            ));
        }
        entry.used_by = Some(terminal);
        let name = entry.name.clone();
        if !known {
            self.terminal.push(Terminal {
                key: terminal,
                name,
                enrolled: Some(now),
                old_key: None,
                first_key: None,
                knows_key: None,
            });
        }
        Ok(())
    }

    fn renew(&mut self, old: &Fingerprint, new: Fingerprint) -> Result<(), String> {
        let taken = |terminal: &Terminal| terminal.has(&new) && !terminal.has(old);
        if self.terminal.iter().any(taken) || self.enrolment.iter().any(|line| line.key == new) {
            return Err(format!("the key {new} is another's"));
        }
        let entry = self.terminal.iter_mut().find(|entry| entry.admits(old));
        let entry = entry.ok_or_else(|| "this terminal is not enrolled".to_owned())?;
        if entry.key == new {
            // Its answer was lost, and it asks again.
            return Ok(());
        }
        entry.first_key.get_or_insert(*old);
        entry.old_key = Some(*old);
        entry.key = new;
        Ok(())
    }
}

/// The one of `entries` that is meant.
fn find<'a>(
    selector: &str,
    entries: impl Iterator<Item = (&'a Fingerprint, Option<&'a str>)>,
    what: &str,
    lists: &str,
) -> Result<usize, String> {
    let digits = selector.strip_prefix("sha256:").unwrap_or(selector);
    let mut found = None;
    for (index, (key, name)) in entries.enumerate() {
        let key = key.to_string();
        if name == Some(selector) || key == selector {
            return Ok(index);
        }
        if digits.len() >= 4 && key["sha256:".len()..].starts_with(digits) {
            if found.is_some() {
                return Err(format!(
                    "more than one {what} begins with {selector:?}; give more of the key"
                ));
            }
            found = Some(index);
        }
    }
    found.ok_or_else(|| {
        format!("there is no {what} {selector:?}; `{lists}` shows those there are. Give a name, a key, or at least four characters of one")
    })
}

/// A name is one word that cannot be taken for a key.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = (1..=64).contains(&name.len())
        && !name.starts_with("sha256:")
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if fits {
        return Ok(());
    }
    Err(format!(
        "{name:?} cannot be a name; use up to 64 letters, digits, '-', '_' and '.'"
    ))
}

impl Registry for FileRegistry {
    fn role(&self, key: &Fingerprint) -> PeerRole {
        self.with(|list| {
            let is_terminal = list.terminal.iter().any(|terminal| terminal.admits(key));
            if is_terminal || list.client(key).is_some() {
                PeerRole::Terminal
            } else if list.enrolment.iter().any(|enrolment| enrolment.key == *key) {
                PeerRole::Enrolment
            } else {
                PeerRole::Unknown
            }
        })
    }

    fn has_tokens(&self) -> bool {
        self.with(List::has_tokens)
    }

    fn enrol(&self, enrolment: &Fingerprint, terminal: Fingerprint) -> Result<(), String> {
        let mut refusal = None;
        let enrolled = self.change(|list| {
            list.enrol(enrolment, terminal, Date::now())
                .inspect_err(|why| refusal = Some(why.clone()))
        });
        match (enrolled, refusal) {
            (Ok(()), _) => Ok(()),
            (Err(_), Some(why)) => Err(why),
            (Err(error), None) => {
                tracing::error!("a terminal could not be enrolled: {error:#}");
                Err("the gateway could not write its list of terminals".into())
            }
        }
    }

    fn renew(&self, old: &Fingerprint, new: Fingerprint) -> Result<(), String> {
        let renewed = self.change(|list| list.renew(old, new));
        renewed.map_err(|error| format!("{error:#}"))
    }

    fn renewal(&self, key: &Fingerprint) -> Option<(Fingerprint, Fingerprint)> {
        self.with(|list| {
            let entry = list.terminal.iter().find(|entry| entry.admits(key))?;
            Some((entry.old_key?, entry.key))
        })
    }

    fn retire(&self, old: &Fingerprint) {
        let retired = self.change(|list| {
            for entry in &mut list.terminal {
                entry.old_key.take_if(|key| key == old);
            }
            Ok(())
        });
        if let Err(error) = retired {
            tracing::error!(%old, "a terminal's old key is still good: {error:#}");
        }
    }

    fn account(&self, key: &Fingerprint) -> Fingerprint {
        let first = self.with(|list| {
            let entry = list.terminal.iter().find(|entry| entry.admits(key))?;
            entry.first_key
        });
        first.unwrap_or(*key)
    }

    fn knows(&self, key: &Fingerprint, next: Fingerprint) {
        let known = |list: &List| {
            let mut entries = list.terminal.iter();
            entries.any(|entry| entry.admits(key) && entry.knows_key == Some(next))
        };
        if self.with(known) {
            return;
        }
        let noted = self.change(|list| {
            for entry in list.terminal.iter_mut().filter(|entry| entry.admits(key)) {
                entry.knows_key = Some(next);
            }
            Ok(())
        });
        if let Err(error) = noted {
            tracing::error!(%key, "that a terminal knows the next key cannot be noted: {error:#}");
        }
    }
}

fn load(path: &Path) -> anyhow::Result<List> {
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(List::default()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_tunnel::identity::Identity;

    use super::*;

    fn key(number: u8) -> Fingerprint {
        Identity::from_seed(&[number; 32]).fingerprint()
    }

    fn at(seconds: u64) -> Date {
        Date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    fn with_line() -> List {
        List {
            enrolment: vec![Enrolment {
                key: key(1),
                name: Some("boat".into()),
                made: Some(at(0)),
                expires: Some(at(100)),
                used_by: None,
            }],
            ..List::default()
        }
    }

    #[test]
    fn a_line_enrols_one_terminal_which_may_ask_again() {
        let mut list = with_line();
        list.enrol(&key(1), key(2), at(99)).unwrap();
        list.enrol(&key(1), key(2), at(1000)).unwrap();
        assert_eq!(list.terminal.len(), 1);
        assert_eq!(list.terminal[0].name.as_deref(), Some("boat"));
        let why = list.enrol(&key(1), key(3), at(99)).unwrap_err();
        assert!(why.contains("has been used"), "{why}");
    }

    #[test]
    fn a_revoked_terminal_does_not_return_by_its_used_line() {
        let mut list = with_line();
        list.enrol(&key(1), key(2), at(99)).unwrap();
        list.terminal.clear();
        let why = list.enrol(&key(1), key(2), at(99)).unwrap_err();
        assert!(why.contains("revoked"), "{why}");
        assert!(list.terminal.is_empty());
    }

    #[test]
    fn a_terminal_changes_its_key_and_keeps_its_name_and_account() {
        let mut list = with_line();
        list.enrol(&key(1), key(2), at(99)).unwrap();
        list.enrolment.push(Enrolment {
            key: key(9),
            ..list.enrolment[0].clone()
        });
        list.renew(&key(2), key(3)).unwrap();
        list.renew(&key(2), key(3)).unwrap();
        // Another new key, after the first was lost: the one that is in use stays good.
        list.renew(&key(2), key(4)).unwrap();
        let entry = &list.terminal[0];
        assert_eq!(list.terminal.len(), 1);
        assert_eq!((entry.key, entry.old_key), (key(4), Some(key(2))));
        assert_eq!(entry.first_key, Some(key(2)));
        assert!(!entry.admits(&key(3)) && entry.admits(&key(2)) && entry.admits(&key(4)));
        assert_eq!(entry.label(), "boat");
        list.terminal[0].old_key = None;
        list.renew(&key(4), key(5)).unwrap();
        assert_eq!(list.terminal[0].first_key, Some(key(2)));
        for (old, new) in [(7, 8), (2, 8), (5, 9)] {
            list.renew(&key(old), key(new)).unwrap_err();
        }
    }

    /// As when an end has no descriptor left: `read` is what it could not do.
    #[test]
    fn what_could_not_be_read_is_read_at_the_next_look_although_it_has_not_changed() {
        let directory = std::env::temp_dir().join(format!("bentpipe-list-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let registry = FileRegistry::open(directory.join("terminals.toml")).unwrap();
        registry
            .change(|list| {
                *list = with_line();
                Ok(())
            })
            .unwrap();
        assert_eq!(registry.role(&key(1)), PeerRole::Enrolment);
        // A directory cannot be read as a file is.
        let aside = directory.join("aside");
        std::fs::rename(&registry.path, &aside).unwrap();
        std::fs::create_dir(&registry.path).unwrap();
        assert_eq!(registry.role(&key(1)), PeerRole::Enrolment);
        assert_eq!(registry.read.lock().unwrap().version, None);
        std::fs::remove_dir(&registry.path).unwrap();
        std::fs::write(&registry.path, "").unwrap();
        assert_eq!(registry.role(&key(1)), PeerRole::Unknown);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// An editor writes a file in two steps, within one tick of the clock.
    #[test]
    fn a_file_that_grows_within_a_tick_is_read_again() {
        let path = std::env::temp_dir().join(format!("bentpipe-grows-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let time = std::fs::metadata(&path).unwrap().modified().unwrap();
        let registry = FileRegistry::open(path.clone()).unwrap();
        assert_eq!(registry.role(&key(1)), PeerRole::Unknown);
        std::fs::write(&path, toml::to_string(&with_line()).unwrap()).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(registry.role(&key(1)), PeerRole::Enrolment);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_line_expires() {
        let why = with_line().enrol(&key(1), key(2), at(100)).unwrap_err();
        assert!(why.contains("expired at 1970-01-01T00:01:40Z"), "{why}");
    }

    #[test]
    fn entries_are_found_by_name_key_or_its_beginning() {
        let mut list = with_line();
        list.enrol(&key(1), key(2), at(1)).unwrap();
        let digits = key(2).to_string();
        for selector in ["boat", &digits, &digits[..12], &digits[7..11]] {
            assert_eq!(list.find_terminal(selector), Ok(0), "{selector}");
        }
        for selector in ["ship", "sha256:", "", &digits[7..10]] {
            list.find_terminal(selector).unwrap_err();
        }
    }

    #[test]
    fn the_file_reads_as_it_was_written_and_old_files_are_read() {
        let list = with_line();
        assert_eq!(
            toml::from_str::<List>(&toml::to_string(&list).unwrap()).unwrap(),
            list
        );
        let old = format!("[[terminal]]\nkey = \"{}\"\n", key(2));
        assert_eq!(toml::from_str::<List>(&old).unwrap().terminal.len(), 1);
    }
}

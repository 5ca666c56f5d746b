//! The gateway's list of terminals, a file that people can read and edit.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::Context as _;
use bentpipe_tunnel::identity::{Fingerprint, PeerRole, Registry};
use serde::{Deserialize, Serialize};

const HEAD: &str = "# Terminals that may use this gateway. Remove an entry to shut its terminal out\n# (its open session ends when the gateway is restarted).\n\n";

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct List {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    terminal: Vec<Terminal>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    enrolment: Vec<Enrolment>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terminal {
    key: Fingerprint,
}

/// A one-time key, and the terminal that has used it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Enrolment {
    key: Fingerprint,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_by: Option<Fingerprint>,
}

/// The list in its file. Changes that others make to the file count from the next
/// handshake on.
#[derive(Debug)]
pub struct FileRegistry {
    path: PathBuf,
    /// What was read last, and the file's time of change then.
    read: Mutex<(Option<SystemTime>, List)>,
}

impl FileRegistry {
    /// The list at `path`; a file that is not there is an empty list.
    pub fn open(path: PathBuf) -> anyhow::Result<Self> {
        let read = Mutex::new((changed(&path), load(&path)?));
        Ok(Self { path, read })
    }

    /// Puts a new one-time key on the list.
    pub fn add_enrolment(&self, key: Fingerprint) -> anyhow::Result<()> {
        self.change(|list| {
            list.enrolment.push(Enrolment { key, used_by: None });
            Ok(())
        })?
        .map_err(anyhow::Error::msg)
    }

    /// How many terminals are enrolled.
    pub fn terminals(&self) -> usize {
        self.current().terminal.len()
    }

    fn current(&self) -> List {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = changed(&self.path);
        if read.0 != now {
            match load(&self.path) {
                Ok(list) => *read = (now, list),
                // Half-edited, perhaps: whoever was enrolled before still is.
                Err(error) => tracing::warn!("{error:#}; the list as it was before stays in force"),
            }
        }
        read.1.clone()
    }

    /// Reads, changes and replaces the file while no other process does.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut List) -> Result<T, String>,
    ) -> anyhow::Result<Result<T, String>> {
        let lock_path = self.path.with_extension("lock");
        let lock = File::create(&lock_path).with_context(|| lock_path.display().to_string())?;
        lock.lock()
            .with_context(|| lock_path.display().to_string())?;
        let mut list = load(&self.path)?;
        let changed = change(&mut list);
        if changed.is_ok() {
            let text = toml::to_string(&list)?;
            bentpipe_os::secret::write(&self.path, &format!("{HEAD}{text}"))
                .with_context(|| self.path.display().to_string())?;
        }
        Ok(changed)
    }
}

impl Registry for FileRegistry {
    fn role(&self, key: &Fingerprint) -> PeerRole {
        let list = self.current();
        if list.terminal.iter().any(|terminal| terminal.key == *key) {
            PeerRole::Terminal
        } else if list.enrolment.iter().any(|enrolment| enrolment.key == *key) {
            PeerRole::Enrolment
        } else {
            PeerRole::Unknown
        }
    }

    fn enrol(&self, enrolment: &Fingerprint, terminal: Fingerprint) -> Result<(), String> {
        let enrolled = self.change(|list| {
            let entry = list
                .enrolment
                .iter_mut()
                .find(|entry| entry.key == *enrolment)
                .ok_or("the enrolment line has been withdrawn")?;
            match entry.used_by {
                Some(other) if other != terminal => {
                    return Err(format!(
                        "the enrolment line has been used by the terminal {other}; run `bentpipe gateway init` again for a new line"
                    ));
                }
                _ => entry.used_by = Some(terminal),
            }
            if !list.terminal.iter().any(|known| known.key == terminal) {
                list.terminal.push(Terminal { key: terminal });
            }
            Ok(())
        });
        enrolled.unwrap_or_else(|error| {
            tracing::error!("a terminal could not be enrolled: {error:#}");
            Err("the gateway could not write its list of terminals".into())
        })
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path)
        .and_then(|metadata| metadata.modified())
        .ok()
}

fn load(path: &Path) -> anyhow::Result<List> {
    match std::fs::read_to_string(path) {
        Ok(text) => toml::from_str(&text).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(List::default()),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

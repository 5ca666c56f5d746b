//! What terminals have carried in this calendar month, kept in a file over a restart.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bentpipe_os::secret;
use bentpipe_tunnel::identity::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::failure;
use crate::registry::Date;

/// The file is written so often, when something has been carried; a gateway that is killed
/// loses what was carried since.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// Months that are known beside the present one: a clock that steps away and back finds its month
/// again, and with it volumes that are used up.
const OTHER_MONTHS: usize = 3;

/// The volumes of a month.
#[derive(Debug)]
pub struct Volumes {
    path: PathBuf,
    known: Months,
    changed: bool,
}

/// What the file has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Months {
    #[serde(flatten)]
    present: Month,
    /// Those that were the present one before, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    other: Vec<Month>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Month {
    /// Like "2026-01", UTC.
    month: String,
    /// By the terminal's key.
    bytes: BTreeMap<String, u64>,
}

impl Volumes {
    /// What the file at `path` has of this month.
    pub fn open(path: PathBuf) -> Self {
        let read = || -> Result<Months, String> {
            let text = failure::read(&path).map_err(|error| error.to_string())?;
            toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
        };
        let known = match path.exists() {
            true => read().unwrap_or_else(|why| {
                tracing::warn!("{why}; the volumes of this month are counted from 0");
                Months::default()
            }),
            false => Months::default(),
        };
        Self {
            path,
            known,
            changed: false,
        }
    }

    /// Counts `bytes` of the terminal with `key`; all of this month.
    pub fn add(&mut self, key: &Fingerprint, bytes: u64) -> u64 {
        self.add_at(Date::now(), key, bytes)
    }

    fn add_at(&mut self, now: Date, key: &Fingerprint, bytes: u64) -> u64 {
        let date = now.to_string();
        let volumes = self.known.of(date.get(..7).unwrap_or(&date));
        if bytes == 0 {
            return volumes.get(&key.to_string()).copied().unwrap_or(0);
        }
        self.changed = true;
        let all = volumes.entry(key.to_string()).or_default();
        *all = all.saturating_add(bytes);
        *all
    }

    /// The file's new text, if something has been carried since it was last asked.
    fn take(&mut self) -> Option<(PathBuf, String)> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let text = toml::to_string(&self.known).ok()?;
        Some((self.path.clone(), text))
    }
}

impl Months {
    /// The volumes of `month`, which is the present one from now on.
    fn of(&mut self, month: &str) -> &mut BTreeMap<String, u64> {
        if self.present.month != month {
            let known = self.other.iter().position(|other| other.month == month);
            let next = match known {
                Some(index) => self.other.remove(index),
                None => Month {
                    month: month.to_owned(),
                    bytes: BTreeMap::new(),
                },
            };
            let before = std::mem::replace(&mut self.present, next);
            if !before.month.is_empty() {
                self.other.push(before);
            }
            if self.other.len() > OTHER_MONTHS {
                self.other.remove(0);
            }
        }
        &mut self.present.bytes
    }
}

/// Writes the volumes down now and then, for ever.
pub async fn keep(volumes: Arc<Mutex<Volumes>>) {
    loop {
        tokio::time::sleep(WRITE_EVERY).await;
        write(&volumes).await;
    }
}

/// Writes the volumes down, if they have changed.
pub async fn write(volumes: &Mutex<Volumes>) {
    let taken = volumes
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some((path, text)) = taken else {
        return;
    };
    let name = path.display().to_string();
    // A disk may take its time.
    let written = tokio::task::spawn_blocking(move || secret::write(&path, &text)).await;
    match written {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(
            "{name}: {error}; what terminals carried would not be known after a restart"
        ),
        Err(error) => tracing::warn!("{name}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use bentpipe_tunnel::identity::Identity;

    use super::*;

    fn at(text: &str) -> Date {
        let time: SystemTime = humantime::parse_rfc3339(text).unwrap();
        Date(time)
    }

    #[test]
    fn a_month_is_counted_over_a_restart_and_the_next_begins_at_nought() {
        let file = format!("bentpipe-volumes-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(file);
        let key = Identity::from_seed(&[7; 32]).fingerprint();
        let mut volumes = Volumes::open(path.clone());
        assert_eq!(volumes.add_at(at("2026-01-31T23:59:59Z"), &key, 5), 5);
        let (path, text) = volumes.take().unwrap();
        secret::write(&path, &text).unwrap();
        let mut volumes = Volumes::open(path.clone());
        std::fs::remove_file(path).unwrap();
        assert_eq!(volumes.add_at(at("2026-01-31T23:59:59Z"), &key, 2), 7);
        assert_eq!(volumes.add_at(at("2026-02-01T00:00:00Z"), &key, 0), 0);
    }

    /// As on a machine whose battery is empty, until it has heard a time server.
    #[test]
    fn a_clock_that_was_wrong_for_a_while_gives_nobody_a_new_volume() {
        let file = format!("bentpipe-volumes-clock-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(file);
        let key = Identity::from_seed(&[8; 32]).fingerprint();
        let old = format!("month = \"2026-11\"\n\n[bytes]\n\"{key}\" = 5\n");
        secret::write(&path, &old).unwrap();
        let mut volumes = Volumes::open(path.clone());
        for (when, carried) in [
            ("2026-11-22T00:00:00Z", 6),
            ("1970-01-01T00:00:09Z", 1),
            ("2026-11-22T00:01:00Z", 7),
            ("2099-01-01T00:00:00Z", 1),
        ] {
            assert_eq!(volumes.add_at(at(when), &key, 1), carried, "{when}");
        }
        let (path, text) = volumes.take().unwrap();
        secret::write(&path, &text).unwrap();
        let mut volumes = Volumes::open(path.clone());
        std::fs::remove_file(path).unwrap();
        assert_eq!(volumes.add_at(at("2026-11-22T00:02:00Z"), &key, 1), 8);
        for month in 1..=9 {
            volumes.add_at(at(&format!("2027-0{month}-01T00:00:00Z")), &key, 1);
        }
        assert_eq!(volumes.known.other.len(), OTHER_MONTHS);
    }
}

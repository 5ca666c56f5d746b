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

/// The volumes of a month.
#[derive(Debug)]
pub struct Volumes {
    path: PathBuf,
    month: Month,
    changed: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Month {
    /// Like "2026-01", UTC.
    month: String,
    /// By the terminal's key.
    bytes: BTreeMap<String, u64>,
}

impl Volumes {
    /// What the file at `path` has of this month.
    pub fn open(path: PathBuf) -> Self {
        let read = || -> Result<Month, String> {
            let text = failure::read(&path).map_err(|error| error.to_string())?;
            toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
        };
        let month = match path.exists() {
            true => read().unwrap_or_else(|why| {
                tracing::warn!("{why}; the volumes of this month are counted from 0");
                Month::default()
            }),
            false => Month::default(),
        };
        Self {
            path,
            month,
            changed: false,
        }
    }

    /// Counts `bytes` of the terminal with `key`; all of this month.
    pub fn add(&mut self, key: &Fingerprint, bytes: u64) -> u64 {
        self.add_at(Date::now(), key, bytes)
    }

    fn add_at(&mut self, now: Date, key: &Fingerprint, bytes: u64) -> u64 {
        let date = now.to_string();
        let month = date.get(..7).unwrap_or(&date);
        if self.month.month != month {
            self.month = Month {
                month: month.to_owned(),
                bytes: BTreeMap::new(),
            };
        }
        if bytes == 0 {
            return self.month.bytes.get(&key.to_string()).copied().unwrap_or(0);
        }
        self.changed = true;
        let all = self.month.bytes.entry(key.to_string()).or_default();
        *all = all.saturating_add(bytes);
        *all
    }

    /// The file's new text, if something has been carried since it was last asked.
    fn take(&mut self) -> Option<(PathBuf, String)> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let text = toml::to_string(&self.month).ok()?;
        Some((self.path.clone(), text))
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
}

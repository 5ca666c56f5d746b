//! The keys of a gateway that a terminal is paired with, and its token there, kept in `pairing.toml`.

use std::io;
use std::sync::{Mutex, PoisonError};

use bentpipe_tunnel::identity::{Fingerprint, GatewayKeys};

use crate::files::{Files, PairedGateway};

/// The keys of one gateway.
#[derive(Debug)]
pub struct PairedKeys {
    files: Files,
    paired: Mutex<PairedGateway>,
}

impl PairedKeys {
    /// Those of `paired`, whose changes are written to the pairing of `files`.
    pub fn new(files: Files, paired: PairedGateway) -> Self {
        Self {
            files,
            paired: Mutex::new(paired),
        }
    }

    /// Changes the gateway's entry in the file, and then here.
    fn change(&self, change: impl FnOnce(&mut PairedGateway)) -> io::Result<()> {
        let mut paired = self.paired.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = paired.clone();
        change(&mut new);
        if new == *paired {
            return Ok(());
        }
        let failed = |failure: crate::failure::Failure| io::Error::other(failure.to_string());
        // Another process may have changed other entries.
        let mut all = self.files.read_pairing().map_err(failed)?;
        let entry = all.iter_mut().find(|entry| **entry == *paired);
        let entry = entry.ok_or_else(|| {
            let name = self.files.pairing().display().to_string();
            io::Error::other(format!("{name} names other gateways than at the start"))
        })?;
        *entry = new.clone();
        self.files.write_pairing(&all).map_err(failed)?;
        *paired = new;
        Ok(())
    }
}

impl GatewayKeys for PairedKeys {
    fn accepted(&self) -> Vec<Fingerprint> {
        let paired = self.paired.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(paired.gateway_key)
            .chain(paired.next_key)
            .collect()
    }

    fn token(&self) -> Option<String> {
        let paired = self.paired.lock().unwrap_or_else(PoisonError::into_inner);
        paired.token.clone()
    }

    fn shown(&self, key: &Fingerprint) {
        let changed = self.change(|paired| {
            if paired.next_key == Some(*key) {
                paired.gateway_key = *key;
                paired.next_key = None;
            }
        });
        match changed {
            Ok(()) => {}
            // Both are accepted, also after a restart.
            Err(error) => {
                tracing::warn!("the gateway has its new key, which cannot be written down: {error}")
            }
        }
    }

    fn announced(&self, next: Fingerprint) -> io::Result<()> {
        self.change(|paired| {
            if paired.gateway_key != next {
                paired.next_key = Some(next);
            }
        })
    }
}

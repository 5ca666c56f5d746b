//! The policies of a gateway's terminals, by its configuration.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bentpipe_tunnel::gateway::policy::{Policies, Policy};
use bentpipe_tunnel::identity::Fingerprint;

use super::volumes::Volumes;
use crate::config;
use crate::registry::FileRegistry;

/// What terminals may do, and what they have carried.
pub struct ConfiguredPolicies {
    registry: Arc<FileRegistry>,
    tables: RwLock<Tables>,
    pub volumes: Arc<Mutex<Volumes>>,
}

struct Tables {
    default: Arc<Policy>,
    /// By name or key, complete.
    terminals: BTreeMap<String, Arc<Policy>>,
}

impl ConfiguredPolicies {
    pub fn new(config: &config::Gateway, registry: Arc<FileRegistry>, volumes: Volumes) -> Self {
        Self {
            registry,
            tables: RwLock::new(Tables::of(config)),
            volumes: Arc::new(Mutex::new(volumes)),
        }
    }

    /// Puts the policies of `config` in force, for flows from now on.
    pub fn reload(&self, config: &config::Gateway) {
        *self.tables.write().unwrap_or_else(PoisonError::into_inner) = Tables::of(config);
    }
}

impl Tables {
    fn of(config: &config::Gateway) -> Self {
        let complete = |policy: &Policy| Arc::new(policy.or(&config.policy));
        let terminals = config.terminal.iter();
        Self {
            default: Arc::new(config.policy.clone()),
            terminals: terminals
                .map(|(name, policy)| (name.clone(), complete(policy)))
                .collect(),
        }
    }
}

impl Policies for ConfiguredPolicies {
    fn of(&self, key: &Fingerprint) -> Arc<Policy> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        if tables.terminals.is_empty() {
            return tables.default.clone();
        }
        let by_name = || tables.terminals.get(&self.registry.name_of(key)?);
        let own = tables.terminals.get(&key.to_string()).or_else(by_name);
        own.unwrap_or(&tables.default).clone()
    }

    fn carried(&self, key: &Fingerprint, bytes: u64) -> u64 {
        let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
        volumes.add(key, bytes)
    }
}

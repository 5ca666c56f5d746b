//! Flows by the name of their server: how many there were, and what they have carried.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::Carried;

/// Names that are counted; those that were seen longest ago are forgotten first.
const MOST: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");

/// Counts flows by name. Clones count together.
#[derive(Debug, Clone)]
pub struct ByName(Arc<Mutex<LruCache<Arc<str>, NameCounts>>>);

/// The flows of one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct NameCounts {
    flows: u64,
    up: u64,
    down: u64,
}

/// The flows of one name that are over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NameSnapshot {
    /// What the server is called.
    pub name: String,
    /// How many.
    pub flows: u64,
    /// Bytes from local sockets into the tunnel.
    pub up_bytes: u64,
    /// Bytes from the tunnel to local sockets.
    pub down_bytes: u64,
}

impl Default for ByName {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LruCache::new(MOST))))
    }
}

impl ByName {
    /// Counts a flow to `name` that is over.
    pub fn over(&self, name: &str, carried: Carried) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = names.get_or_insert_mut(name.into(), NameCounts::default);
        counts.flows += 1;
        counts.up += carried.up;
        counts.down += carried.down;
    }

    /// The `most` names that have carried most, the first first.
    pub fn largest(&self, most: usize) -> Vec<NameSnapshot> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = names
            .iter()
            .map(|(name, counts)| NameSnapshot {
                name: name.to_string(),
                flows: counts.flows,
                up_bytes: counts.up,
                down_bytes: counts.down,
            })
            .collect();
        all.sort_by(|a, b| {
            let bytes = |snapshot: &NameSnapshot| snapshot.up_bytes + snapshot.down_bytes;
            bytes(b).cmp(&bytes(a)).then_with(|| a.name.cmp(&b.name))
        });
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_no_more_are_kept_than_fit() {
        let names = ByName::default();
        for number in 0..2000 {
            let carried = Carried {
                up: 1,
                down: number,
            };
            names.over(&format!("host-{number}.example"), carried);
        }
        names.over("host-1999.example", Carried { up: 1, down: 1 });
        let largest = names.largest(2);
        assert_eq!(largest[0].name, "host-1999.example");
        assert_eq!((largest[0].flows, largest[0].down_bytes), (2, 2000));
        assert_eq!(largest[1].name, "host-1998.example");
        assert_eq!(names.largest(usize::MAX).len(), MOST.get());
    }
}

//! The names of the addresses that hosts connect to: what each asked for before.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

/// Addresses that are known by name; those used longest ago are forgotten first.
const MOST: NonZeroUsize = NonZeroUsize::new(8192).expect("not zero");

/// Stands for whichever host asked last.
const ANYBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// By host and address.
type Known = LruCache<(IpAddr, IpAddr), Arc<str>>;

/// Names by host and address. Clones are the same.
#[derive(Debug, Clone)]
pub struct Names(Arc<Mutex<Known>>);

impl Default for Names {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LruCache::new(MOST))))
    }
}

impl Names {
    /// `host` was told that `name` has the address `address`.
    pub fn learn(&self, host: IpAddr, address: IpAddr, name: &Arc<str>) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        names.put((host, address), name.clone());
        names.put((ANYBODY, address), name.clone());
    }

    /// What `host` asked for when it was told `address`, or else what anybody did.
    pub fn of(&self, host: IpAddr, address: IpAddr) -> Option<Arc<str>> {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let own = names.get(&(host, address)).cloned();
        // A host asks by one of its addresses and connects by another.
        own.or_else(|| names.get(&(ANYBODY, address)).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_knows_the_name_that_it_asked_for_and_a_flood_forgets_the_oldest() {
        let names = Names::default();
        let [ann, bob]: [IpAddr; 2] = [[192, 168, 7, 1].into(), [192, 168, 7, 2].into()];
        let shared: IpAddr = [93, 184, 216, 34].into();
        names.learn(ann, shared, &"a.example".into());
        names.learn(bob, shared, &"b.example".into());
        assert_eq!(names.of(ann, shared).as_deref(), Some("a.example"));
        assert_eq!(names.of(bob, shared).as_deref(), Some("b.example"));
        let eve = [192, 168, 7, 3].into();
        assert_eq!(names.of(eve, shared).as_deref(), Some("b.example"));
        for number in 0..MOST.get() / 2 {
            let [.., b, c, d] = number.to_be_bytes();
            names.learn(bob, [10, b, c, d].into(), &"flood.example".into());
        }
        assert_eq!(names.of(ann, shared), None);
        assert_eq!(
            names.of(bob, [10, 0, 0, 1].into()).as_deref(),
            Some("flood.example")
        );
    }
}

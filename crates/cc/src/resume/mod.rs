//! Careful Resume (RFC 9959): what a connection learnt of a path, kept for the next one.
//!
//! The memory is section 3's saved parameters for one remote endpoint. The
//! phases after it (reconnaissance, unvalidated, validating, safe retreat) are
//! a layer over any window-based controller in [`layer`]; the satellite
//! controller has them built in, as its start.

pub mod layer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_units::Span;

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// Bytes per second that it carried.
    pub rate: f64,
    /// Its least round-trip time.
    pub rtt: Span,
}

impl Path {
    /// Bytes that filled it: `saved_cwnd` of section 3.
    pub fn window(&self) -> f64 {
        self.rate * self.rtt.as_secs_f64()
    }

    /// Whether a round-trip time measured now may belong to this path. Section
    /// 4.2.1 refuses half the saved one and less, and more than ten times it.
    pub fn fits(&self, rtt: Span) -> bool {
        let (now, saved) = (rtt.as_secs_f64(), self.rtt.as_secs_f64());
        now > saved / 2.0 && now <= saved * 10.0
    }
}

/// Other paths that a memory keeps beside the present one.
const MOST_OTHERS: usize = 3;

/// One remote endpoint's paths, shared by the connections to it, one after the other: the present
/// one, and those that connections have migrated from, which round trips tell apart.
#[derive(Debug, Clone, Default)]
pub struct PathMemory(Arc<Mutex<Paths>>);

#[derive(Debug, Default)]
struct Paths {
    present: Option<Path>,
    /// The latest last.
    others: Vec<Path>,
}

impl PathMemory {
    /// A memory that knows `path` already, from a file say.
    pub fn with(path: Path) -> Self {
        let memory = Self::default();
        memory.save(path);
        memory
    }

    /// Whether `other` is this memory.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What is known of the present path.
    pub fn get(&self) -> Option<Path> {
        self.lock().present
    }

    /// What is known of a path with the round trip `rtt`, which is the present one from now on.
    pub fn like(&self, rtt: Span) -> Option<Path> {
        let mut paths = self.lock();
        let far = |path: &Path| (path.rtt.as_secs_f64() / rtt.as_secs_f64()).ln().abs();
        let known = paths.present.iter().chain(&paths.others);
        let fitting = known.filter(|path| path.fits(rtt));
        let nearest = *fitting.min_by(|one, other| far(one).total_cmp(&far(other)))?;
        paths.put(nearest);
        Some(nearest)
    }

    /// Saves what was learnt of the present path, which is another one if its round trip is.
    pub fn save(&self, path: Path) {
        self.lock().put(path);
    }

    /// Knows what `other` knows.
    pub fn take_over(&self, other: &Self) {
        if self.is(other) {
            return;
        }
        let (others, present) = {
            let known = other.lock();
            (known.others.clone(), known.present)
        };
        let mut paths = self.lock();
        for path in others.into_iter().chain(present) {
            paths.put(path);
        }
    }

    /// Safe retreat deletes what was saved (section 4.4).
    pub fn forget(&self) {
        self.lock().present = None;
    }

    fn lock(&self) -> MutexGuard<'_, Paths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Paths {
    fn put(&mut self, path: Path) {
        let same = |known: &Path| known.fits(path.rtt) && path.fits(known.rtt);
        if let Some(before) = self.present.replace(path)
            && !same(&before)
        {
            self.others.push(before);
        }
        self.others.retain(|known| !same(known));
        if self.others.len() > MOST_OTHERS {
            self.others.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(rate: f64, rtt: u64) -> Path {
        let rtt = Span::from_millis(rtt);
        Path { rate, rtt }
    }

    #[test]
    fn each_path_is_known_by_its_round_trip() {
        let (satellite, land) = (path(2.5e6, 540), path(6e6, 50));
        let memory = PathMemory::with(satellite);
        memory.save(land);
        assert_eq!(memory.get(), Some(land));
        assert_eq!(memory.like(Span::from_millis(600)), Some(satellite));
        assert_eq!(memory.get(), Some(satellite));
        assert_eq!(memory.like(Span::from_millis(48)), Some(land));
        memory.forget();
        assert_eq!(memory.like(Span::from_millis(48)), None);
        let next = PathMemory::default();
        next.take_over(&memory);
        assert_eq!(next.like(Span::from_millis(540)), Some(satellite));
    }

    #[test]
    fn what_changes_of_a_path_makes_no_other_and_few_are_kept() {
        let memory = PathMemory::default();
        for rtt in [500, 540, 620] {
            memory.save(path(1e6, rtt));
        }
        assert!(memory.lock().others.is_empty());
        for doubled in 0..20 {
            memory.save(path(1e6, 1 << doubled));
        }
        assert_eq!(memory.lock().others.len(), MOST_OTHERS);
    }
}

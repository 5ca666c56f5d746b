//! Careful Resume (RFC 9959): what a connection learnt of a path, kept for the next one.
//!
//! The memory is section 3's saved parameters for one remote endpoint. The
//! phases after it (reconnaissance, unvalidated, validating, safe retreat) are
//! a layer over any window-based controller in [`layer`]; the satellite
//! controller has them built in, as its start.

pub mod layer;

use std::sync::{Arc, Mutex};

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

/// One remote endpoint's path, shared by the connections to it, one after the other.
#[derive(Debug, Clone, Default)]
pub struct PathMemory(Arc<Mutex<Option<Path>>>);

impl PathMemory {
    /// A memory that knows `path` already, from a file say.
    pub fn with(path: Path) -> Self {
        Self(Arc::new(Mutex::new(Some(path))))
    }

    /// Whether `other` is this memory.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// What is known.
    pub fn get(&self) -> Option<Path> {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Saves what was learnt.
    pub fn save(&self, path: Path) {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(path);
    }

    /// Safe retreat deletes what was saved (section 4.4).
    pub fn forget(&self) {
        *self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }
}

//! Where a connection's events are written (qlog), as one of the things that it is set up with.

use std::fmt;
use std::sync::Arc;

use noq_proto::{QlogFactory, TransportConfig};

/// Whoever takes the events of connections, or nobody. Clones are the same.
#[derive(Clone, Default)]
pub struct Events(Option<Arc<dyn QlogFactory>>);

impl Events {
    /// Events go to what `writers` gives for each connection.
    pub fn to(writers: Arc<dyn QlogFactory>) -> Self {
        Self(Some(writers))
    }

    /// Connections with this configuration write theirs.
    pub fn of(&self, config: &mut TransportConfig) {
        if let Some(writers) = &self.0 {
            config.qlog_factory(writers.clone());
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = self.0.is_some();
        out.debug_struct("Events")
            .field("written", &written)
            .finish()
    }
}

impl PartialEq for Events {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

impl Eq for Events {}

//! The gaps in which a low constellation changes satellites.

use bentpipe_units::{Span, Time};

use crate::spec::Reconfigure;

/// Regular times in which nothing is sent.
#[derive(Debug)]
pub(crate) struct Gaps(Reconfigure);

impl Gaps {
    /// `None` where the changes leave no gap.
    pub fn new(spec: Reconfigure) -> Option<Self> {
        (spec.gap > Span::ZERO).then_some(Self(spec))
    }

    /// When the gap that `at` lies in is over.
    pub fn over(&self, at: Time) -> Option<Time> {
        let (_, past) = self.0.last(at)?;
        (past < self.0.gap).then(|| at + Span::from_nanos(self.0.gap.as_nanos() - past.as_nanos()))
    }
}

//! The times in which a source sends: from when until when, always or with pauses.

use bentpipe_units::Span;

/// From when until when, always or with pauses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnOff {
    pub from: Span,
    pub until: Option<Span>,
    /// How long it sends, and how long it pauses.
    pub pauses: Option<(Span, Span)>,
    /// Those are means of exponential times instead of exact ones.
    pub exponential: bool,
}

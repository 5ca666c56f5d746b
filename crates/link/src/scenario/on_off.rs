//! The checks of sending times.

use bentpipe_units::Span;

use super::problem::Problem;

/// Checks the times of sending and pausing of `field`.
pub(crate) fn check(field: &str, on: Option<Span>, off: Option<Span>) -> Result<(), Problem> {
    let wrong = |name: &str, span: Span, why| {
        Err(Problem::new(
            format!("{field}.{name}"),
            span.to_string(),
            why,
        ))
    };
    for (name, span) in [("on", on), ("off", off)] {
        if let Some(span) = span.filter(|span| *span < Span::from_millis(1)) {
            return wrong(name, span, "shorter than 1 ms");
        }
    }
    let alone = "on and off come together: how long it sends, and how long it pauses";
    match (on, off) {
        (Some(on), None) => wrong("on", on, alone),
        (None, Some(off)) => wrong("off", off, alone),
        _ => Ok(()),
    }
}

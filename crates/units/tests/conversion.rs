//! Floats become whole numbers, and never anything else.

use bentpipe_units::{Span, rounded, truncated};

#[test]
fn what_does_not_fit_saturates() {
    for (value, nearest, whole) in [
        (0.0, 0, 0),
        (0.5, 1, 0),
        (1.499, 1, 1),
        (2.5, 3, 2),
        (-0.4, 0, 0),
        (-7.0, 0, 0),
        (f64::NAN, 0, 0),
        (f64::INFINITY, u64::MAX, u64::MAX),
        (f64::NEG_INFINITY, 0, 0),
        (1e300, u64::MAX, u64::MAX),
    ] {
        assert_eq!(
            (rounded(value), truncated(value)),
            (nearest, whole),
            "{value}"
        );
    }
    assert_eq!(Span::from_secs_f64(0.25), Span::from_millis(250));
    assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
}

//! A field whose value cannot be.

/// A field whose value cannot be.
#[derive(Debug)]
pub(crate) struct Problem {
    pub field: String,
    pub value: String,
    pub why: String,
}

impl Problem {
    pub(crate) fn new(
        field: impl Into<String>,
        value: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            value: value.into(),
            why: why.into(),
        }
    }
}

/// The problem of `field` with `value`.
pub(crate) fn wrong(field: &str, value: impl ToString, why: &str) -> Result<(), Problem> {
    Err(Problem::new(field, value.to_string(), why))
}

//! The files a scenario refers to, and what is wrong with a field.

/// Reads a file that a scenario names, by its path as written there.
pub type Reader<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;

/// The reader, wrapped so that its errors name the field.
pub(crate) struct Files<'a>(pub &'a mut Reader<'a>);

impl Files<'_> {
    pub(crate) fn read(&mut self, field: &str, name: &str) -> Result<String, Problem> {
        (self.0)(name).map_err(|why| Problem::new(field.to_owned(), name, why))
    }
}

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

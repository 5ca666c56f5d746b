//! The files that a scenario names.

use super::problem::Problem;

/// Reads a file that a scenario names, by its path as written there.
pub type Reader<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;

/// The reader, wrapped so that its errors name the field.
pub(crate) struct Files<'a>(pub &'a mut Reader<'a>);

impl Files<'_> {
    pub(crate) fn read(&mut self, field: &str, name: &str) -> Result<String, Problem> {
        (self.0)(name).map_err(|why| Problem::new(field.to_owned(), name, why))
    }
}

//! The check of damage.

use super::problem::Problem;
use crate::spec::CorruptSpec;

impl CorruptSpec {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        match self {
            Self::Independent(_) => Ok(()),
            Self::Bounded(bounded) => bounded.check(field),
        }
    }
}

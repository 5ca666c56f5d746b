//! A change of a whole link: what changes of each of its directions at once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::direction::Change;

/// Which directions of a link are meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Directions {
    /// Gateway to terminal.
    Forward,
    /// Terminal to gateway.
    Return,
    /// Each.
    #[default]
    Both,
}

/// What changes of each direction; an empty [`Change`] changes nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LinkChange {
    /// Gateway to terminal.
    pub forward: Change,
    /// Terminal to gateway.
    pub r#return: Change,
}

impl LinkChange {
    /// The same change of each of `directions`.
    pub fn of(directions: Directions, change: &Change) -> Self {
        let only = |other| {
            if directions == other {
                Change::default()
            } else {
                change.clone()
            }
        };
        Self {
            forward: only(Directions::Return),
            r#return: only(Directions::Forward),
        }
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.forward.is_empty() && self.r#return.is_empty()
    }
}

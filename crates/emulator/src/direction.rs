//! The two directions of a link: their names, and what each link has once for either.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DirectionName {
    /// Gateway to terminal.
    Forward,
    /// Terminal to gateway.
    Return,
}

impl DirectionName {
    /// Both, in the order in which records and certificates have them.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Return];

    /// "forward" or "return".
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Return => "return",
        }
    }
}

impl fmt::Display for DirectionName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// One direction among those of all links of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DirectionId {
    /// The link's place among the plans.
    pub link: usize,
    /// Which of its directions.
    pub name: DirectionName,
}

impl DirectionId {
    /// All directions of so many links, in the order of [`Self::index`].
    pub fn all(links: usize) -> impl Iterator<Item = Self> {
        (0..links).flat_map(|link| DirectionName::BOTH.map(|name| Self { link, name }))
    }

    /// Its number in records and captures: link by link, forward before return.
    pub fn index(self) -> usize {
        DirectionName::BOTH.len() * self.link + self.name as usize
    }

    /// The direction of that number.
    pub fn at(index: usize) -> Self {
        let directions = DirectionName::BOTH.len();
        Self {
            link: index / directions,
            name: DirectionName::BOTH[index % directions],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_numbered_link_by_link() {
        for (number, id) in DirectionId::all(3).enumerate() {
            assert_eq!((id.index(), DirectionId::at(number)), (number, id));
        }
        assert_eq!(DirectionId::at(3).name, DirectionName::Return);
    }
}

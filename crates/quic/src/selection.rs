//! Controllers to choose from: the project's own, and the QUIC library's for comparison.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bentpipe_cc::{Choice, ChoiceError};

/// A controller's parameters, with a choice from all that there are.
pub type Settings = bentpipe_cc::Settings<Selection>;

/// A controller by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Selection {
    /// One of this project's.
    Own(Choice),
    /// The QUIC library's BBRv3 (draft-ietf-ccwg-bbr); draws random numbers of its own.
    LibraryBbr3,
}

impl Selection {
    /// Every controller.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = Choice::ALL.into_iter().map(Self::Own);
        own.chain([Self::LibraryBbr3])
    }

    /// Its name in configuration, records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own(choice) => choice.name(),
            Self::LibraryBbr3 => "bbr3-library",
        }
    }
}

impl From<Choice> for Selection {
    fn from(choice: Choice) -> Self {
        Self::Own(choice)
    }
}

impl From<Selection> for Option<Choice> {
    fn from(selection: Selection) -> Self {
        match selection {
            Selection::Own(choice) => Some(choice),
            Selection::LibraryBbr3 => None,
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Selection {
    type Err = ChoiceError;
    fn from_str(name: &str) -> Result<Self, ChoiceError> {
        Self::all()
            .find(|selection| selection.name() == name)
            .ok_or_else(|| ChoiceError::unknown(name, Self::all().map(Self::name)))
    }
}

impl serde::Serialize for Selection {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Selection {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Selection {
    fn schema_name() -> Cow<'static, str> {
        "Selection".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A congestion controller by name.",
            "type": "string",
            "enum": Self::all().map(Self::name).collect::<Vec<_>>(),
        })
    }
}

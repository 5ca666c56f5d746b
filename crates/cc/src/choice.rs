//! Controllers by name, and their parameters.
//!
//! The table in this file is the only list of controllers: a new one is its folder, its
//! `pub mod` in `lib.rs` and its entry here.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use bentpipe_units::{Bytes, Rate, Span};

use crate::bounded::Bounded;
use crate::resume::PathMemory;
use crate::resume::layer::CarefulResume;
use crate::{Controller, bbr3, cubic, fixed, hybla, newreno, satellite};

/// What a controller is made from.
struct Start<'a> {
    settings: &'a Settings,
    /// UDP payload of a full packet, and the initial window; bytes.
    packet: u64,
    window: u64,
    memory: PathMemory,
}

impl Start<'_> {
    /// What this end may send by contract, bytes per second.
    fn contract(&self) -> Option<u64> {
        (self.settings.contracted_rate).map(|rate| rate.bits_per_second() / 8)
    }

    /// `controller` with Careful Resume (RFC 9959) around it.
    fn resumed(self, controller: impl Controller + 'static) -> Box<dyn Controller> {
        Box::new(CarefulResume::new(
            Box::new(controller),
            self.packet,
            self.window,
            self.memory,
        ))
    }
}

/// Declares [`Choice`]: each controller's documentation, variant, name and constructor.
macro_rules! controllers {
    ($($(#[$doc:meta])* $variant:ident, $name:literal, $make:expr;)+) => {
        /// A controller by name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Choice {
            $($(#[$doc])* $variant,)+
        }

        impl Choice {
            /// Every controller.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Its name in configuration, records and tables.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            fn make(self, start: Start<'_>) -> Box<dyn Controller> {
                let make: fn(Start<'_>) -> Box<dyn Controller> = match self {
                    $(Self::$variant => $make,)+
                };
                make(start)
            }
        }
    };
}

controllers! {
    /// Ours, for satellites: see [`satellite`].
    Satellite, "satellite", |start| {
        let rtt = start.settings.initial_rtt;
        Box::new(satellite::Satellite::new(start.packet, start.window, rtt, start.memory))
    };

    /// RFC 9002, section 7.
    NewReno, "newreno", |start| {
        let newreno = newreno::NewReno::new(start.packet, start.window);
        start.resumed(newreno)
    };

    /// RFC 9438, slow start left by HyStart++ (RFC 9406).
    Cubic, "cubic", |start| {
        let cubic = cubic::Cubic::new(start.packet, start.window, cubic::Exit::hystart());
        start.resumed(cubic)
    };

    /// RFC 9438, slow start left by SEARCH (draft-chung-ccwg-search).
    CubicSearch, "cubic-search", |start| {
        let cubic = cubic::Cubic::new(start.packet, start.window, cubic::Exit::search());
        start.resumed(cubic)
    };

    /// TCP Hybla, bounded and paced.
    Hybla, "hybla", |start| {
        let rtt = start.settings.initial_rtt;
        let hybla = hybla::Hybla::new(start.packet, start.window, rtt, start.contract());
        start.resumed(hybla)
    };

    /// BBRv3 (draft-ietf-ccwg-bbr).
    Bbr3, "bbr3", |start| {
        let Settings { initial_rtt, seed, .. } = *start.settings;
        Box::new(bbr3::Bbr3::new(start.packet, start.window, initial_rtt, seed))
    };

    /// A contracted rate.
    Fixed, "fixed", |start| {
        let rtt = start.settings.initial_rtt;
        let rate = start.contract().unwrap_or(LEAST_CONTRACT / 8);
        Box::new(fixed::Fixed::new(start.packet, start.window, rtt, rate))
    };
}

impl Choice {
    /// Whether the controller makes use of [`Settings::contracted_rate`].
    pub const fn uses_contracted_rate(self) -> bool {
        matches!(self, Self::Hybla | Self::Fixed)
    }

    /// Whether the controller sets a window and no rate: it may be sent unpaced.
    pub const fn is_window_based(self) -> bool {
        matches!(self, Self::NewReno | Self::Cubic | Self::CubicSearch)
    }

    /// Whether the controller learns of the path what the next connection can start from (Careful Resume, RFC 9959).
    pub const fn resumes(self) -> bool {
        !matches!(self, Self::Bbr3 | Self::Fixed)
    }

    /// Published controllers beside which ours is measured.
    pub const REFERENCES: [Self; 3] = [Self::Bbr3, Self::Cubic, Self::NewReno];
}

impl fmt::Display for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for Choice {
    type Err = ChoiceError;
    fn from_str(name: &str) -> Result<Self, ChoiceError> {
        Self::ALL
            .into_iter()
            .find(|choice| choice.name() == name)
            .ok_or_else(|| ChoiceError::unknown(name, Self::ALL.map(Self::name)))
    }
}

impl serde::Serialize for Choice {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Choice {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Choice {
    fn schema_name() -> Cow<'static, str> {
        "Choice".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A congestion controller by name.",
            "type": "string",
            "enum": Self::ALL.map(Self::name),
        })
    }
}

/// Why there is no such controller.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// No controller has this name.
    #[error("controller {name:?} is unknown; there are {known}")]
    Unknown {
        /// What was given.
        name: String,
        /// The names that there are, with commas between them.
        known: String,
    },
    /// A parameter is given that this controller does not use.
    #[error("controller {controller}: {parameter} = {value} has no effect on it; leave it out")]
    Unused {
        /// Whose.
        controller: String,
        /// Which.
        parameter: &'static str,
        /// What was given.
        value: String,
    },
    /// A parameter is missing or out of its range.
    #[error("controller {controller}: {parameter} = {value} is out of its range, {range}")]
    Range {
        /// Whose.
        controller: String,
        /// Which.
        parameter: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        range: &'static str,
    },
}

impl ChoiceError {
    /// The parameter that it is about, if it is about one.
    pub fn parameter(&self) -> Option<&'static str> {
        match self {
            Self::Unknown { .. } => None,
            Self::Range { parameter, .. } | Self::Unused { parameter, .. } => Some(parameter),
        }
    }

    /// `name` is none of the `known` ones.
    pub fn unknown(name: &str, known: impl IntoIterator<Item = &'static str>) -> Self {
        let mut known: Vec<_> = known.into_iter().collect();
        let last = known.pop().unwrap_or_default();
        Self::Unknown {
            name: name.to_owned(),
            known: format!("{} and {last}", known.join(", ")),
        }
    }
}

/// Least largest window, bytes: ten packets, the least that RFC 9002 starts with.
const MIN_MAX_WINDOW: u64 = 16 << 10;
/// Most, bytes: what a window's unit can still count.
const MAX_MAX_WINDOW: u64 = 4 << 30;
/// Contracted rates, bit/s: a packet of 1500 bytes takes 1.5 s at the least of them.
const LEAST_CONTRACT: u64 = 8_000;
/// The fastest interface that there is to be had.
const MOST_CONTRACT: u64 = 100_000_000_000;

/// All that a controller is told before it begins.
///
/// `C` says which one: [`Choice`], or a type with more controllers than this crate has.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings<C = Choice> {
    /// Which one.
    pub controller: C,
    /// Full packets that may leave before the first acknowledgement.
    pub initial_window: u32,
    /// Round-trip time until it is measured.
    pub initial_rtt: Span,
    /// What this end may send, where it is known: the `fixed` controller's rate, and
    /// an upper bound for Hybla's start.
    pub contracted_rate: Option<Rate>,
    /// Most bytes that may ever be in flight, whatever the controller would like.
    pub max_window: Bytes,
    /// Where random choices come from; each connection derives its own from it.
    pub seed: u64,
    /// Whether a connection starts from what the one before it learnt (RFC 9959).
    pub resume: bool,
    /// Whether a window is spread over a round trip (RFC 9002, section 7.7) by a controller that sets no rate
    /// itself. Without, packets leave as soon as the window allows them.
    pub pacing: bool,
}

impl<C> Settings<C> {
    /// `controller` with a window of 32 packets and a GEO round trip to begin with, and
    /// of 64 MiB at most: 250 Mbit/s over 650 ms three times.
    pub fn new(controller: C) -> Self {
        Self {
            controller,
            initial_window: 32,
            initial_rtt: Span::from_millis(600),
            contracted_rate: None,
            max_window: Bytes::new(64 << 20),
            seed: 0,
            resume: true,
            pacing: true,
        }
    }

    /// The same for another controller.
    pub fn with_controller<D>(self, controller: D) -> Settings<D> {
        Settings {
            controller,
            initial_window: self.initial_window,
            initial_rtt: self.initial_rtt,
            contracted_rate: self.contracted_rate,
            max_window: self.max_window,
            seed: self.seed,
            resume: self.resume,
            pacing: self.pacing,
        }
    }
}

impl<C: Copy + fmt::Display + Into<Option<Choice>>> Settings<C> {
    /// What is known of the rate: a controller that makes use of it is told, another one is not.
    pub fn know_rate(&mut self, rate: Rate) {
        let uses = self
            .controller
            .into()
            .is_some_and(Choice::uses_contracted_rate);
        self.contracted_rate = uses.then_some(rate);
    }

    /// Checks each parameter against its range.
    pub fn check(&self) -> Result<(), ChoiceError> {
        let range = |parameter, value: &dyn fmt::Display, range| {
            Err(ChoiceError::Range {
                controller: self.controller.to_string(),
                parameter,
                value: value.to_string(),
                range,
            })
        };
        if !(2..=1000).contains(&self.initial_window) {
            return range(
                "initial_window",
                &format!("{} packets", self.initial_window),
                "2 to 1000 packets",
            );
        }
        if !(1_000_000..=10_000_000_000).contains(&self.initial_rtt.as_nanos()) {
            return range("initial_rtt", &self.initial_rtt, "1 ms to 10 s");
        }
        if !(MIN_MAX_WINDOW..=MAX_MAX_WINDOW).contains(&self.max_window.as_u64()) {
            return range("max_window", &self.max_window, "16 KiB to 4 GiB");
        }
        let choice = self.controller.into();
        if !self.pacing && !choice.is_some_and(Choice::is_window_based) {
            return range("pacing", &false, "true; this controller is a rate");
        }
        match self.contracted_rate {
            None if choice == Some(Choice::Fixed) => range(
                "contracted_rate",
                &"nothing",
                "8 kbit/s to 100 Gbit/s; this controller is that rate",
            ),
            Some(rate) if !(LEAST_CONTRACT..=MOST_CONTRACT).contains(&rate.bits_per_second()) => {
                range("contracted_rate", &rate, "8 kbit/s to 100 Gbit/s")
            }
            Some(rate) if !choice.is_some_and(Choice::uses_contracted_rate) => {
                Err(ChoiceError::Unused {
                    controller: self.controller.to_string(),
                    parameter: "contracted_rate",
                    value: rate.to_string(),
                })
            }
            _ => Ok(()),
        }
    }
}

impl Settings {
    /// The controller, for packets of `packet` bytes, with `window` bytes to begin with.
    pub fn build(&self, packet: u64, window: u64, memory: &PathMemory) -> Box<dyn Controller> {
        let memory = if self.resume {
            memory.clone()
        } else {
            PathMemory::default()
        };
        let controller = self.controller.make(Start {
            settings: self,
            packet,
            window,
            memory,
        });
        Box::new(Bounded::new(controller, self.max_window.as_u64()))
    }
}

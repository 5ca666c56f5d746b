//! Which controller, with which parameters.

use std::fmt;
use std::str::FromStr;

use bentpipe_units::{Bytes, Rate, Span};

use crate::bounded::Bounded;
use crate::resume::PathMemory;
use crate::resume::layer::CarefulResume;
use crate::{Controller, bbr3, cubic, fixed, hybla, law, newreno, satellite};

/// A controller by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice {
    /// Ours, for satellites: see [`satellite`].
    Satellite,
    /// See [`law`].
    Law,
    /// RFC 9002, section 7.
    NewReno,
    /// RFC 9438, slow start left by HyStart++ (RFC 9406).
    Cubic,
    /// RFC 9438, slow start left by SEARCH (draft-chung-ccwg-search).
    CubicSearch,
    /// TCP Hybla, bounded and paced.
    Hybla,
    /// BBRv3 (draft-ietf-ccwg-bbr).
    Bbr3,
    /// A contracted rate.
    Fixed,
    /// For comparison: the QUIC library's own BBRv3 (draft-ietf-ccwg-bbr); draws random numbers of its own.
    LibraryBbr3,
}

impl Choice {
    /// Every controller.
    pub const ALL: [Self; 9] = [
        Self::Satellite,
        Self::Law,
        Self::NewReno,
        Self::Cubic,
        Self::CubicSearch,
        Self::Hybla,
        Self::Bbr3,
        Self::Fixed,
        Self::LibraryBbr3,
    ];

    /// Its name in configuration, records and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Satellite => "satellite",
            Self::Law => "law",
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::CubicSearch => "cubic-search",
            Self::Hybla => "hybla",
            Self::Fixed => "fixed",
            Self::Bbr3 => "bbr3",
            Self::LibraryBbr3 => "bbr3-library",
        }
    }
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
            .ok_or_else(|| ChoiceError::Unknown(name.to_owned()))
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

/// Why there is no such controller.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// No controller has this name.
    #[error(
        "controller {0:?} is unknown; there are satellite, newreno, cubic, cubic-search, hybla, bbr3, fixed and bbr3-library"
    )]
    Unknown(String),
    /// A parameter is missing or out of its range.
    #[error("controller {controller}: {parameter} = {value} is out of its range, {range}")]
    Range {
        /// Whose.
        controller: Choice,
        /// Which.
        parameter: &'static str,
        /// What was given.
        value: String,
        /// What would be right.
        range: &'static str,
    },
}

/// Ten packets, the least that RFC 9002 starts with; and what a window's unit can still count.
const MIN_MAX_WINDOW: u64 = 16 << 10;
const MAX_MAX_WINDOW: u64 = 4 << 30;

/// All that a controller is told before it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Which one.
    pub controller: Choice,
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
}

impl Settings {
    /// `controller` with a window of 32 packets and a GEO round trip to begin with, and
    /// of 64 MiB at most: 250 Mbit/s over 650 ms three times.
    pub fn new(controller: Choice) -> Self {
        Self {
            controller,
            initial_window: 32,
            initial_rtt: Span::from_millis(600),
            contracted_rate: None,
            max_window: Bytes::new(64 << 20),
            seed: 0,
            resume: true,
        }
    }

    /// Checks each parameter against its range.
    pub fn check(&self) -> Result<(), ChoiceError> {
        let range = |parameter, value: &dyn fmt::Display, range| {
            Err(ChoiceError::Range {
                controller: self.controller,
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
        match self.contracted_rate {
            None if self.controller == Choice::Fixed => range(
                "contracted_rate",
                &"nothing",
                "8 kbit/s to 100 Gbit/s; this controller is that rate",
            ),
            Some(rate) if !(8_000..=100_000_000_000).contains(&rate.bits_per_second()) => {
                range("contracted_rate", &rate, "8 kbit/s to 100 Gbit/s")
            }
            _ => Ok(()),
        }
    }

    /// The controller, for packets of `packet` bytes, with `window` bytes to begin with.
    pub fn build(&self, packet: u64, window: u64, memory: &PathMemory) -> Box<dyn Controller> {
        let memory = if self.resume {
            memory.clone()
        } else {
            PathMemory::default()
        };
        let resumed = |controller: Box<dyn Controller>| -> Box<dyn Controller> {
            Box::new(CarefulResume::new(
                controller,
                packet,
                window,
                memory.clone(),
            ))
        };
        let expected = self.contracted_rate.map(|rate| rate.bits_per_second() / 8);
        let controller: Box<dyn Controller> = match self.controller {
            Choice::Satellite | Choice::LibraryBbr3 => Box::new(satellite::Satellite::new(
                packet,
                window,
                self.initial_rtt,
                memory,
            )),
            Choice::Law => Box::new(law::Law::new(packet, window, self.initial_rtt, memory)),
            Choice::NewReno => resumed(Box::new(newreno::NewReno::new(packet, window))),
            Choice::Cubic => resumed(Box::new(cubic::Cubic::new(
                packet,
                window,
                cubic::Exit::hystart(),
            ))),
            Choice::CubicSearch => resumed(Box::new(cubic::Cubic::new(
                packet,
                window,
                cubic::Exit::search(),
            ))),
            Choice::Hybla => resumed(Box::new(hybla::Hybla::new(
                packet,
                window,
                self.initial_rtt,
                expected,
            ))),
            Choice::Bbr3 => Box::new(bbr3::Bbr3::new(packet, window, self.initial_rtt, self.seed)),
            Choice::Fixed => Box::new(fixed::Fixed::new(
                packet,
                window,
                self.initial_rtt,
                expected.unwrap_or(1_000),
            )),
        };
        Box::new(Bounded::new(controller, self.max_window.as_u64()))
    }
}

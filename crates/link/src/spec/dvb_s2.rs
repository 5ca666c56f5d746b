//! A DVB-S2 carrier (ETSI EN 302 307-1).

use bentpipe_units::{Decibel, Frequency, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::radio::Radio;

/// A DVB-S2 carrier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DvbS2 {
    /// Of the carrier with its roll-off.
    pub bandwidth: Frequency,
    /// Symbol rate = bandwidth / (1 + `roll_off`).
    pub roll_off: f64,
    /// One MODCOD for everything (1 to 28), or `acm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modcod: Option<u8>,
    /// Adaptive coding and modulation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acm: Option<Acm>,
    /// Carrier over noise at the receiver.
    #[serde(default)]
    pub radio: Radio,
    /// Frames are handed over in a bunch this often, as OpenSAND does every
    /// 10 ms; without it they leave one by one at the symbol rate, as a modem does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Span>,
    /// Bytes of a lower layer's header on each packet: 14 where Ethernet is carried.
    #[serde(default)]
    pub link_header: u8,
}

/// How the modulator follows the weather.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Acm {
    /// Kept between the reported carrier over noise and what a MODCOD needs.
    #[serde(default)]
    pub margin: Decibel,
    /// Needed on top of the margin before a MODCOD that needs more is taken.
    #[serde(default)]
    pub hysteresis: Decibel,
    /// How often the receiver reports.
    #[serde(default = "second")]
    pub report_every: Span,
    /// How long a report travels; by default the other direction's one-way delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_delay: Option<Span>,
    /// Which of the usable MODCODs is taken.
    #[serde(default)]
    pub prefer: Prefer,
}

/// Which of the usable MODCODs is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    /// The one that carries most.
    #[default]
    Efficiency,
    /// The one that needs the most carrier over noise, as OpenSAND does. That is
    /// not always the one that carries most.
    Threshold,
}

fn second() -> Span {
    Span::from_millis(1000)
}

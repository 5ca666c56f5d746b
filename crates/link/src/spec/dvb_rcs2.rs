//! A DVB-RCS2 return link (ETSI EN 301 545-2).

use bentpipe_units::{Bytes, Frequency, Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::contending::ContendingTerminals;
use super::radio::Radio;

/// A DVB-RCS2 return link as one terminal sees it, alone or beside `others`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DvbRcs2 {
    /// Of the carriers with their roll-off.
    pub bandwidth: Frequency,
    /// Symbol rate = bandwidth / (1 + `roll_off`).
    pub roll_off: f64,
    /// How long a superframe lasts.
    #[serde(default = "superframe")]
    pub superframe: Span,
    /// Reference waveform: 3 to 12 are bursts of 536 symbols, 13 to 22 of 1616.
    pub waveform: u8,
    /// Constant rate assignment: there without asking.
    pub cra: Rate,
    /// Rate-based dynamic capacity: most that a request may ask for.
    #[serde(default = "nothing")]
    pub rbdc: Rate,
    /// Volume-based dynamic capacity: most bytes that a request may ask for.
    #[serde(default)]
    pub vbdc: Bytes,
    /// Free capacity assignment: what is left over and given without asking.
    #[serde(default = "nothing")]
    pub fca: Rate,
    /// Superframes from one request to the next (OpenSAND: round(1000 / 26.5)).
    #[serde(default = "request_every")]
    pub request_every: u32,
    /// The backlog is to be gone after so many superframes (OpenSAND: MSL).
    #[serde(default = "backlog_over")]
    pub backlog_over: u32,
    /// From a request to the moment its grant can be used; by default the
    /// round trip of the satellite hop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_delay: Option<Span>,
    /// Other terminals on the same carriers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ContendingTerminals>,
    /// Carrier over noise at the gateway. Bursts below what the waveform needs are lost.
    #[serde(default)]
    pub radio: Radio,
    /// Bytes of a lower layer's header on each packet: 14 where Ethernet is carried.
    #[serde(default)]
    pub link_header: u8,
}

fn superframe() -> Span {
    Span::from_nanos(26_500_000)
}

fn nothing() -> Rate {
    Rate::from_bits_per_second(0)
}

fn request_every() -> u32 {
    38
}

fn backlog_over() -> u32 {
    23
}

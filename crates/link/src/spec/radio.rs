//! The carrier over noise of a transparent satellite.

use bentpipe_units::Decibel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::trace::Trace;

/// Carrier over noise of a transparent satellite: both hops add their noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Radio {
    /// Of the hop to the satellite, under a clear sky.
    #[serde(default = "clear_sky")]
    pub up: Decibel,
    /// Of the hop from the satellite, under a clear sky.
    #[serde(default = "clear_sky")]
    pub down: Decibel,
    /// Attenuation over time on the hop of the terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fade: Option<Trace<Decibel>>,
}

impl Default for Radio {
    fn default() -> Self {
        Self {
            up: clear_sky(),
            down: clear_sky(),
            fade: None,
        }
    }
}

fn clear_sky() -> Decibel {
    Decibel::new(20.0).unwrap_or_default()
}

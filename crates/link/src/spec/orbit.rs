//! The satellites and the two places on the ground.

use bentpipe_units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::trace::AtEnd;

/// Terminal and gateway joined by the best satellite that both see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrbitSpec {
    /// Where the terminal stands.
    pub terminal: GroundPoint,
    /// Where the gateway stands.
    pub gateway: GroundPoint,
    /// Satellites lower than this above the horizon are not used, in degrees.
    #[serde(default = "ten")]
    pub minimum_elevation: f64,
    /// How long a run is worked out.
    pub duration: Span,
    /// How often the delay is computed.
    #[serde(default = "second")]
    pub step: Span,
    /// What happens after `duration`.
    pub at_end: AtEnd,
    /// The satellites.
    pub satellites: Constellation,
}

/// A place on the ground.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroundPoint {
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
    /// Metres above the ellipsoid.
    #[serde(default)]
    pub altitude: f64,
}

/// Where the satellites are from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Constellation {
    /// Two-line elements, with or without name lines. The run starts at the first one's epoch.
    Tle(String),
    /// A file of two-line elements, relative to the scenario.
    TleFile(String),
    /// A Walker delta shell.
    Walker(Walker),
}

/// A Walker delta shell: `satellites` on `planes` evenly spaced circular orbits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Walker {
    /// Kilometres above the equator.
    pub altitude: f64,
    /// Degrees.
    pub inclination: f64,
    /// All satellites.
    pub satellites: u32,
    /// Planes; must divide the satellites.
    pub planes: u32,
    /// Relative spacing between satellites of neighbouring planes, 0 to planes - 1.
    #[serde(default)]
    pub phasing: u32,
}

fn ten() -> f64 {
    10.0
}

fn second() -> Span {
    Span::from_millis(1000)
}

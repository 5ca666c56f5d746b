//! The claims about the link model, each with its source, and what the model does.
//!
//! Every figure comes out of the same [`Direction`](bentpipe_link::Direction) that the
//! emulator and the simulator run, with fixed seeds: the report is the same each time.

mod laws;
mod management;
mod standards;
mod opensand;
mod capacity;
mod orbits;

use std::fmt::Write;

use serde::Serialize;

use bentpipe_link::Scenario;

/// One claim and how it fared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claim {
    /// What is claimed.
    pub claim: &'static str,
    /// Where the figure is from.
    pub source: &'static str,
    /// What the source says, with what is allowed.
    pub theirs: String,
    /// What the model does.
    pub ours: String,
    /// Whether it holds.
    pub holds: bool,
}

/// The scenarios that are held against published measurements.
#[derive(Debug, Clone)]
pub struct Presets {
    /// `kosek-geo.toml`.
    pub kosek_geo: Scenario,
    /// `kosek-leo.toml`.
    pub kosek_leo: Scenario,
}

impl Presets {
    /// As they come with the program.
    pub fn shipped() -> Self {
        let preset = |text| {
            Scenario::parse(text).unwrap_or_else(|error| unreachable!("a preset is right: {error}"))
        };
        Self {
            kosek_geo: preset(include_str!("../../../scenarios/kosek-geo.toml")),
            kosek_leo: preset(include_str!("../../../scenarios/kosek-leo.toml")),
        }
    }
}

/// Works out every claim.
pub fn claims(presets: &Presets) -> Vec<Claim> {
    let mut all = laws::claims();
    all.extend(management::claims());
    all.extend(standards::claims());
    all.extend(opensand::claims(presets));
    all.extend(capacity::claims());
    all.extend(orbits::claims());
    all
}

/// The claims as a document.
pub fn markdown(claims: &[Claim]) -> String {
    let mut text = String::from(
        "# Validation of the link model\n\nWritten by `bentpipe link validate --output docs/validation.md`. Every figure under \"ours\" comes out of the\ncode that the emulator and the simulator run; seeds are fixed, so the file is the same each time, and a\ntest fails when it is not.\n\n| | Claim | Source | Theirs | Ours |\n|---|---|---|---|---|\n",
    );
    for claim in claims {
        let verdict = if claim.holds { "holds" } else { "**fails**" };
        let _ = writeln!(
            text,
            "| {verdict} | {} | {} | {} | {} |",
            claim.claim, claim.source, claim.theirs, claim.ours
        );
    }
    let holding = claims.iter().filter(|claim| claim.holds).count();
    let _ = write!(text, "\n{holding} of {} claims hold.\n", claims.len());
    text
}

/// A claim about a number that lies in a band.
fn banded(
    claim: &'static str,
    source: &'static str,
    (low, high): (f64, f64),
    ours: f64,
    (decimals, unit): (usize, &str),
) -> Claim {
    Claim {
        claim,
        source,
        theirs: format!("{low:.decimals$} to {high:.decimals$} {unit}"),
        ours: format!("{ours:.decimals$} {unit}"),
        holds: (low..=high).contains(&ours),
    }
}

/// Packets for the claims, and ways to send them.
pub(crate) mod probe {
    use bentpipe_units::Time;

    use bentpipe_link::spec::DirectionSpec;
    use bentpipe_link::{Direction, Packet, Scenario};

    /// A packet that is only a length, and belongs to a flow.
    #[derive(Debug, Clone, Copy)]
    pub struct Probe {
        pub len: u16,
        pub flow: u8,
    }

    impl Probe {
        pub fn new(len: u16) -> Self {
            Self { len, flow: 0 }
        }
    }

    impl Packet for Probe {
        fn ip_len(&self) -> usize {
            self.len.into()
        }
        fn flow(&self) -> u64 {
            self.flow.into()
        }
    }

    /// A direction as the scenario grammar writes it.
    pub fn forward(text: &str) -> DirectionSpec {
        let text = format!(
            "name = \"claim\"\n[forward]\n{text}\n[return]\nrate = \"1 Mbit/s\"\ndelay = \"0 ms\"\nqueue = \"10 packets\"\n"
        );
        Scenario::parse(&text)
            .unwrap_or_else(|error| unreachable!("a claim's scenario is right: {error}"))
            .forward
    }

    /// Everything that comes out until `until`: moment and packet.
    pub fn drain(link: &mut Direction<Probe>, until: Time) -> Vec<(Time, Probe)> {
        let mut out = Vec::new();
        while let Some(at) = link.poll_timeout().filter(|at| *at <= until) {
            while let Some(departure) = link.poll_departure(at) {
                out.push((departure.at, departure.packet));
            }
        }
        out
    }

    /// `count` packets of `len` bytes, all at the start.
    pub fn burst(link: &mut Direction<Probe>, count: u32, len: u16) {
        for _ in 0..count {
            let _ = link.handle_arrival(Time::ZERO, Probe::new(len));
        }
    }
}

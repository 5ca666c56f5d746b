//! What the transmitter can send, now and later.

use std::sync::Arc;

use bentpipe_units::{Decibel, Frequency, Rate, Span, Time};
use serde::{Deserialize, Serialize};

use super::files::{Files, Problem};
use super::others::Others;
use super::text_or_table::text_or_table;
use super::trace::{AtEnd, Between, Trace};
use crate::access::{dvb_rcs2, dvb_s2};
use crate::modcod;

/// The capacity of one direction: constant in the short form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(transform = super::text_or_table::short_form)]
#[serde(remote = "Self", rename_all = "kebab-case")]
pub enum RateSpec {
    /// So much at the IP level, always.
    Constant(Rate),
    /// A rate at the IP level that changes; zero means that packets wait.
    Trace(Arc<Trace<Rate>>),
    /// A mahimahi packet-delivery trace.
    Mahimahi(Arc<Mahimahi>),
    /// A DVB-S2 carrier (ETSI EN 302 307-1): BBFRAMEs, GSE, MODCODs.
    #[serde(rename = "dvb-s2")]
    DvbS2(Arc<DvbS2>),
    /// A DVB-RCS2 return link (ETSI EN 301 545-2): superframes, bursts, capacity classes.
    #[serde(rename = "dvb-rcs2")]
    DvbRcs2(Arc<DvbRcs2>),
}

text_or_table!(
    RateSpec,
    Constant,
    "a rate in quotes with its unit, like \"20 Mbit/s\", or a table: trace, mahimahi, dvb-s2 or dvb-rcs2"
);

impl From<Rate> for RateSpec {
    fn from(rate: Rate) -> Self {
        Self::Constant(rate)
    }
}

/// Moments at which one packet of up to 1504 bytes may leave, as mahimahi records them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mahimahi {
    /// Milliseconds since the start, one for each opportunity, never decreasing.
    #[serde(default)]
    pub opportunities: Vec<u64>,
    /// Instead: a file with one such number on each line, relative to the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What happens after the last one. mahimahi itself loops.
    pub at_end: AtEnd,
}

/// A DVB-S2 carrier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    /// The one that carries most.
    #[default]
    Efficiency,
    /// The one that needs the most carrier over noise, as OpenSAND does. That is
    /// not always the one that carries most.
    Threshold,
}

/// Carrier over noise of a transparent satellite: both hops add their noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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

/// A DVB-RCS2 return link as one terminal sees it, alone or beside `others`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
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
    pub vbdc: bentpipe_units::Bytes,
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
    pub others: Vec<Others>,
    /// Carrier over noise at the gateway. Bursts below what the waveform needs are lost.
    #[serde(default)]
    pub radio: Radio,
    /// Bytes of a lower layer's header on each packet: 14 where Ethernet is carried.
    #[serde(default)]
    pub link_header: u8,
}

/// What a scenario's other direction tells this one.
pub(crate) struct Hop {
    pub own_delay: Span,
    pub other_delay: Span,
}

impl RateSpec {
    /// What the link sends at best at the IP level: in packets of 1500 bytes,
    /// averaged over a trace, under a clear sky.
    pub fn ceiling(&self) -> Rate {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of rates is a rate"
        )]
        let rate = |bits: f64| Rate::from_bits_per_second(bits.round() as u64);
        match self {
            Self::Constant(rate) => *rate,
            Self::Trace(trace) => rate(trace.mean()),
            Self::Mahimahi(trace) => {
                let seconds = trace.opportunities.last().map_or(0, |ms| *ms).max(1) as f64 / 1e3;
                rate(trace.opportunities.len() as f64 * 1504.0 * 8.0 / seconds)
            }
            Self::DvbS2(spec) => rate(dvb_s2::ceiling(spec)),
            Self::DvbRcs2(spec) => rate(dvb_rcs2::ceiling(spec)),
        }
    }

    /// When the link ends, if a trace ends it.
    pub(crate) fn ends(&self) -> Option<Time> {
        match self {
            Self::Constant(_) => None,
            Self::Trace(trace) => trace.ends(),
            Self::Mahimahi(trace) => match (trace.at_end, trace.opportunities.last()) {
                (AtEnd::End, Some(ms)) => Some(Time::from_nanos(ms.saturating_mul(1_000_000))),
                _ => None,
            },
            Self::DvbS2(spec) => spec.radio.fade.as_ref().and_then(Trace::ends),
            Self::DvbRcs2(spec) => spec.radio.fade.as_ref().and_then(Trace::ends),
        }
    }

    /// The name of the unit in which losses may be counted, besides packets.
    pub(crate) fn frame(&self) -> Option<super::LossPer> {
        match self {
            Self::DvbS2(_) => Some(super::LossPer::Bbframe),
            Self::DvbRcs2(_) => Some(super::LossPer::Burst),
            _ => None,
        }
    }

    pub(crate) fn resolve(
        &mut self,
        field: &str,
        files: &mut Files<'_>,
        hop: &Hop,
    ) -> Result<(), Problem> {
        match self {
            Self::Constant(rate) if rate.bits_per_second() == 0 => Err(Problem::new(
                field,
                rate.to_string(),
                "a link that sends nothing; give at least \"1 bit/s\"",
            )),
            Self::Constant(_) => Ok(()),
            Self::Trace(trace) => {
                let field = format!("{field}.trace");
                let trace = Arc::make_mut(trace);
                trace.resolve(&field, files)?;
                check_rate_trace(trace, &field)
            }
            Self::Mahimahi(trace) => {
                Arc::make_mut(trace).resolve(&format!("{field}.mahimahi"), files)
            }
            Self::DvbS2(spec) => {
                Arc::make_mut(spec).resolve(&format!("{field}.dvb-s2"), files, hop)
            }
            Self::DvbRcs2(spec) => {
                Arc::make_mut(spec).resolve(&format!("{field}.dvb-rcs2"), files, hop)
            }
        }
    }
}

fn check_rate_trace(trace: &Trace<Rate>, field: &str) -> Result<(), Problem> {
    if trace.between == Between::Line {
        return Err(Problem::new(
            format!("{field}.between"),
            "line",
            "a rate goes in steps; give more points instead",
        ));
    }
    let sends = |points: &[(Span, Rate)]| points.iter().any(|(_, rate)| rate.bits_per_second() > 0);
    // The last point of a loop only says how long the loop is.
    let (from, why) = match trace.at_end {
        AtEnd::Loop => (
            &trace.points[..trace.points.len() - 1],
            "every rate in the loop is zero, so nothing is ever sent",
        ),
        AtEnd::Hold | AtEnd::End => (
            &trace.points[trace.points.len() - 1..],
            "the last rate is zero, so what waits then never leaves; end with a rate or use at_end = \"loop\"",
        ),
    };
    if !sends(from) {
        return Err(Problem::new(field, "0 bit/s", why));
    }
    if trace.at_end == AtEnd::Loop
        && (trace.length() < Span::from_millis(10) || trace.mean() < 1000.0)
    {
        return Err(Problem::new(
            field,
            trace.length().to_string(),
            "a loop is at least 10 ms long and sends at least 1 kbit/s on average",
        ));
    }
    Ok(())
}

impl Mahimahi {
    fn resolve(&mut self, field: &str, files: &mut Files<'_>) -> Result<(), Problem> {
        let wrong = |value: &str, why: String| Err(Problem::new(field, value, why));
        if let Some(name) = self.file.take() {
            if !self.opportunities.is_empty() {
                return wrong(
                    &name,
                    "a trace has opportunities or a file, not both".into(),
                );
            }
            for (number, line) in files
                .read(&format!("{field}.file"), &name)?
                .lines()
                .enumerate()
            {
                if line.trim().is_empty() {
                    continue;
                }
                let Ok(ms) = line.trim().parse() else {
                    return wrong(
                        &name,
                        format!(
                            "line {}: {line:?} is not a whole number of milliseconds",
                            number + 1
                        ),
                    );
                };
                self.opportunities.push(ms);
            }
        }
        let Some(last) = self.opportunities.last() else {
            return wrong(
                "[]",
                "an empty trace; give opportunities = [...] or a file".into(),
            );
        };
        if let Some(pair) = self.opportunities.windows(2).find(|pair| pair[1] < pair[0]) {
            return wrong(
                &pair[1].to_string(),
                format!(
                    "it stands behind {}; the moments must not decrease",
                    pair[0]
                ),
            );
        }
        if *last > 1_000_000_000_000 {
            return wrong(
                &last.to_string(),
                "more than 31 years of milliseconds".into(),
            );
        }
        match self.at_end {
            AtEnd::Loop if *last > 0 => Ok(()),
            AtEnd::Loop => wrong("loop", "a trace of no length cannot loop".into()),
            AtEnd::End => Ok(()),
            AtEnd::Hold => wrong(
                "hold",
                "an opportunity cannot be held; say at_end = \"loop\" (as mahimahi does) or \"end\"".into(),
            ),
        }
    }
}

fn check_carrier(field: &str, bandwidth: Frequency, roll_off: f64) -> Result<(), Problem> {
    if !(10_000..=10_000_000_000).contains(&bandwidth.hertz()) {
        return Err(Problem::new(
            format!("{field}.bandwidth"),
            bandwidth.to_string(),
            "not between 10 kHz and 10 GHz; is the unit right?",
        ));
    }
    if !(0.0..=1.0).contains(&roll_off) {
        return Err(Problem::new(
            format!("{field}.roll_off"),
            roll_off.to_string(),
            "not between 0 and 1; DVB-S2 has 0.2, 0.25 and 0.35",
        ));
    }
    Ok(())
}

impl Radio {
    fn resolve(&mut self, field: &str, files: &mut Files<'_>) -> Result<(), Problem> {
        match &mut self.fade {
            Some(fade) => fade.resolve(&format!("{field}.fade"), files),
            None => Ok(()),
        }
    }
}

impl DvbS2 {
    fn resolve(&mut self, field: &str, files: &mut Files<'_>, hop: &Hop) -> Result<(), Problem> {
        check_carrier(field, self.bandwidth, self.roll_off)?;
        self.radio.resolve(&format!("{field}.radio"), files)?;
        match (&self.modcod, &mut self.acm) {
            (Some(id), None) if modcod::dvb_s2(*id).is_none() => Err(Problem::new(
                format!("{field}.modcod"),
                id.to_string(),
                "DVB-S2 has MODCODs 1 (QPSK 1/4) to 28 (32APSK 9/10)",
            )),
            (Some(_), None) => Ok(()),
            (None, Some(acm)) => {
                acm.report_delay.get_or_insert(hop.other_delay);
                if acm.report_every < Span::from_millis(1) {
                    return Err(Problem::new(
                        format!("{field}.acm.report_every"),
                        acm.report_every.to_string(),
                        "less than 1 ms; OpenSAND reports every second",
                    ));
                }
                if acm.hysteresis < Decibel::ZERO {
                    return Err(Problem::new(
                        format!("{field}.acm.hysteresis"),
                        acm.hysteresis.to_string(),
                        "it cannot be negative",
                    ));
                }
                Ok(())
            }
            (modcod, _) => Err(Problem::new(
                field,
                if modcod.is_some() {
                    "modcod and acm"
                } else {
                    "neither modcod nor acm"
                },
                "say either modcod = 1 to 28 or acm = { ... }, one of the two",
            )),
        }?;
        match self.tick {
            Some(tick) if tick < Span::from_millis(1) || tick > Span::from_millis(1000) => {
                Err(Problem::new(
                    format!("{field}.tick"),
                    tick.to_string(),
                    "not between 1 ms and 1 s; OpenSAND has \"10 ms\"",
                ))
            }
            // A frame that does not fit into a tick would never leave.
            Some(tick) if dvb_s2::symbols_in(self, tick) < 33_000.0 => Err(Problem::new(
                format!("{field}.tick"),
                tick.to_string(),
                "shorter than one BBFRAME at this bandwidth; make it longer, or leave it out",
            )),
            _ => Ok(()),
        }
    }
}

impl DvbRcs2 {
    fn resolve(&mut self, field: &str, files: &mut Files<'_>, hop: &Hop) -> Result<(), Problem> {
        check_carrier(field, self.bandwidth, self.roll_off)?;
        self.radio.resolve(&format!("{field}.radio"), files)?;
        self.grant_delay
            .get_or_insert(hop.own_delay + hop.other_delay);
        let wrong = |name: &str, value: String, why: &str| {
            Err(Problem::new(format!("{field}.{name}"), value, why))
        };
        if modcod::dvb_rcs2(self.waveform).is_none() {
            return wrong(
                "waveform",
                self.waveform.to_string(),
                "the reference waveforms are 3 to 12 (536 symbols) and 13 to 22 (1616 symbols)",
            );
        }
        if self.superframe < Span::from_millis(1) || self.superframe > Span::from_millis(1000) {
            return wrong(
                "superframe",
                self.superframe.to_string(),
                "not between 1 ms and 1 s; OpenSAND has \"26.5 ms\"",
            );
        }
        for (name, superframes) in [
            ("request_every", self.request_every),
            ("backlog_over", self.backlog_over),
        ] {
            if !(1..=1000).contains(&superframes) {
                return wrong(
                    name,
                    superframes.to_string(),
                    "not between 1 and 1000 superframes",
                );
            }
        }
        if let Some(delay) = self
            .grant_delay
            .filter(|delay| *delay > Span::from_millis(60_000))
        {
            return wrong(
                "grant_delay",
                delay.to_string(),
                "longer than a minute; is the unit right?",
            );
        }
        if dvb_rcs2::bursts_of_carrier(self) == 0 {
            return wrong(
                "bandwidth",
                self.bandwidth.to_string(),
                "not one burst fits into a superframe; give more bandwidth or a longer superframe",
            );
        }
        if self.cra.bits_per_second() == 0
            && self.rbdc.bits_per_second() == 0
            && self.vbdc.as_u64() == 0
            && self.fca.bits_per_second() == 0
        {
            return wrong(
                "cra",
                self.cra.to_string(),
                "no capacity class has any capacity; give cra, rbdc, vbdc or fca",
            );
        }
        for (number, others) in self.others.iter().enumerate() {
            others.check(&format!("{field}.others.{number}"))?;
        }
        if self.cra.bits_per_second() == 0
            && self.rbdc.bits_per_second() == 0
            && dvb_rcs2::bursts_of_others(self) >= dvb_rcs2::bursts_of_carrier(self)
        {
            return wrong(
                "cra",
                self.cra.to_string(),
                "the others may take the whole carrier, and what is left over would be nothing for ever; give cra or rbdc",
            );
        }
        Ok(())
    }
}

fn second() -> Span {
    Span::from_millis(1000)
}
fn clear_sky() -> Decibel {
    Decibel::new(20.0).unwrap_or_default()
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

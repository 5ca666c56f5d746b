//! Carriers: filled in from the other direction, and checked.

use bentpipe_units::{Decibel, Frequency, Span};

use super::files::Files;
use super::problem::Problem;
use crate::spec::{DvbRcs2, DvbS2, Radio};
use crate::transmit::{dvb_rcs2, dvb_s2, modcod};

/// What a scenario's other direction tells this one.
pub(crate) struct Hop {
    pub own_delay: Span,
    pub other_delay: Span,
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
    pub(super) fn resolve(
        &mut self,
        field: &str,
        files: &mut Files<'_>,
        hop: &Hop,
    ) -> Result<(), Problem> {
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
    pub(super) fn resolve(
        &mut self,
        field: &str,
        files: &mut Files<'_>,
        hop: &Hop,
    ) -> Result<(), Problem> {
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
            && dvb_rcs2::bursts_of_contending(self) >= dvb_rcs2::bursts_of_carrier(self)
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

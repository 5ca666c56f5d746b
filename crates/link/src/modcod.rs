//! What a carrier can be modulated and coded with, and which of it is taken now.
//!
//! Values: OpenSAND (CNES), `opensand-deploy/src/backend/backend.py` and
//! `opensand-core/src/dvb/dama/ForwardSchedulingS2.cpp`, which have them from
//! ETSI EN 302 307-1 (DVB-S2, normal frames, table 13) and ETSI EN 301 545-2
//! (DVB-RCS2, reference waveforms). Carrier over noise is Es/N0 for quasi error
//! free reception without implementation loss.

use bentpipe_units::{Decibel, Span, Time};

use crate::scenario::{Acm, Prefer, Radio};

/// A modulation and coding of DVB-S2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct S2 {
    /// 1 to 28.
    pub id: u8,
    /// Modulation.
    pub modulation: &'static str,
    /// Rate of the code.
    pub code_rate: &'static str,
    /// Bits of payload in each symbol, as published.
    pub efficiency: f64,
    /// What it needs at the receiver, dB.
    pub es_n0: f64,
    /// Bytes of one BBFRAME.
    pub bytes: u32,
}

/// A reference waveform of DVB-RCS2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rcs2 {
    /// 3 to 22.
    pub id: u8,
    /// Modulation.
    pub modulation: &'static str,
    /// Rate of the code.
    pub code_rate: &'static str,
    /// What it needs at the receiver, dB.
    pub es_n0: f64,
    /// Symbols of one burst.
    pub symbols: u32,
    /// Bytes that one burst carries in OpenSAND: symbols, bits and code rate
    /// multiplied, without the preamble that the standard takes off.
    pub bytes: u32,
}

impl S2 {
    /// Symbols of one BBFRAME.
    pub fn symbols(&self) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "OpenSAND rounds down, too; at most 32669"
        )]
        let symbols = (f64::from(self.bytes) * 8.0 / self.efficiency) as u32;
        symbols
    }
}

/// The MODCOD of this number.
pub fn dvb_s2(id: u8) -> Option<&'static S2> {
    DVB_S2.iter().find(|modcod| modcod.id == id)
}

/// The waveform of this number.
pub fn dvb_rcs2(id: u8) -> Option<&'static Rcs2> {
    DVB_RCS2.iter().find(|waveform| waveform.id == id)
}

impl Radio {
    /// Carrier over noise at `now`, dB: the noise of both hops adds up.
    pub fn carrier_to_noise(&self, now: Time) -> f64 {
        let fade = self
            .fade
            .as_ref()
            .map_or(Decibel::ZERO, |fade| fade.at(now));
        let noise = |ratio: f64| 10f64.powf(-ratio / 10.0);
        let (up, down) = (self.up.as_f64(), self.down.as_f64() - fade.as_f64());
        -10.0 * (noise(up) + noise(down)).log10()
    }
}

/// Follows the reports of the receiver (adaptive coding and modulation).
#[derive(Debug)]
pub struct Follower {
    spec: Acm,
    delay: Span,
    current: &'static S2,
    /// The last report that was looked at, counted from the start.
    report: Option<u64>,
}

impl Follower {
    /// Begins with what the sky of the start allows.
    pub fn new(spec: Acm, radio: &Radio) -> Self {
        let mut follower = Self {
            spec,
            delay: spec.report_delay.unwrap_or_default(),
            current: &DVB_S2[0],
            report: None,
        };
        follower.current = follower.best(radio.carrier_to_noise(Time::ZERO));
        follower
    }

    /// The MODCOD at `now`. Moments must not decrease.
    pub fn modcod(&mut self, now: Time, radio: &Radio) -> &'static S2 {
        let every = self.spec.report_every.as_nanos();
        let Some(heard) = now.as_nanos().checked_sub(self.delay.as_nanos()) else {
            return self.current;
        };
        let newest = heard / every;
        if radio.fade.is_none() || self.report == Some(newest) {
            return self.current;
        }
        // Hysteresis has a memory: every report since the last look counts, but
        // no more than decide how it ends.
        let first = self.report.map_or(0, |last| last + 1);
        for report in first.max(newest.saturating_sub(64))..=newest {
            self.hear(radio.carrier_to_noise(Time::from_nanos(report * every)));
        }
        self.report = Some(newest);
        self.current
    }

    fn hear(&mut self, carrier_to_noise: f64) {
        let best = self.best(carrier_to_noise);
        let kept = self.current.es_n0 + self.spec.margin.as_f64() <= carrier_to_noise;
        if !kept || best.es_n0 <= self.current.es_n0 {
            self.current = best;
            return;
        }
        // Upwards only with the hysteresis on top.
        let sure = self.best(carrier_to_noise - self.spec.hysteresis.as_f64());
        if sure.es_n0 > self.current.es_n0 {
            self.current = sure;
        }
    }

    /// What carries most of what this carrier over noise allows; the most robust
    /// one where it allows nothing.
    fn best(&self, carrier_to_noise: f64) -> &'static S2 {
        let usable = DVB_S2
            .iter()
            .filter(|modcod| modcod.es_n0 + self.spec.margin.as_f64() <= carrier_to_noise);
        match self.spec.prefer {
            Prefer::Efficiency => usable.max_by(|a, b| a.efficiency.total_cmp(&b.efficiency)),
            Prefer::Threshold => usable.max_by(|a, b| a.es_n0.total_cmp(&b.es_n0)),
        }
        .unwrap_or(&DVB_S2[0])
    }
}

/// DVB-S2, normal frames.
#[rustfmt::skip]
pub const DVB_S2: [S2; 28] = [
    S2 { id: 1, modulation: "QPSK", code_rate: "1/4", efficiency: 0.49, es_n0: -2.35, bytes: 2001 },
    S2 { id: 2, modulation: "QPSK", code_rate: "1/3", efficiency: 0.656, es_n0: -1.24, bytes: 2676 },
    S2 { id: 3, modulation: "QPSK", code_rate: "2/5", efficiency: 0.789, es_n0: -0.3, bytes: 3216 },
    S2 { id: 4, modulation: "QPSK", code_rate: "1/2", efficiency: 0.988, es_n0: 1.0, bytes: 4026 },
    S2 { id: 5, modulation: "QPSK", code_rate: "3/5", efficiency: 1.188, es_n0: 2.23, bytes: 4836 },
    S2 { id: 6, modulation: "QPSK", code_rate: "2/3", efficiency: 1.322, es_n0: 3.1, bytes: 5380 },
    S2 { id: 7, modulation: "QPSK", code_rate: "3/4", efficiency: 1.487, es_n0: 4.03, bytes: 6051 },
    S2 { id: 8, modulation: "QPSK", code_rate: "4/5", efficiency: 1.587, es_n0: 4.68, bytes: 6456 },
    S2 { id: 9, modulation: "QPSK", code_rate: "5/6", efficiency: 1.655, es_n0: 5.18, bytes: 6730 },
    S2 { id: 10, modulation: "QPSK", code_rate: "8/9", efficiency: 1.767, es_n0: 6.2, bytes: 7184 },
    S2 { id: 11, modulation: "QPSK", code_rate: "9/10", efficiency: 1.789, es_n0: 6.42, bytes: 7274 },
    S2 { id: 12, modulation: "8PSK", code_rate: "3/5", efficiency: 1.78, es_n0: 5.5, bytes: 4836 },
    S2 { id: 13, modulation: "8PSK", code_rate: "2/3", efficiency: 1.981, es_n0: 6.62, bytes: 5380 },
    S2 { id: 14, modulation: "8PSK", code_rate: "3/4", efficiency: 2.228, es_n0: 7.91, bytes: 6051 },
    S2 { id: 15, modulation: "8PSK", code_rate: "5/6", efficiency: 2.479, es_n0: 9.35, bytes: 6730 },
    S2 { id: 16, modulation: "8PSK", code_rate: "8/9", efficiency: 2.646, es_n0: 10.69, bytes: 7184 },
    S2 { id: 17, modulation: "8PSK", code_rate: "9/10", efficiency: 2.679, es_n0: 10.98, bytes: 7274 },
    S2 { id: 18, modulation: "16APSK", code_rate: "2/3", efficiency: 2.637, es_n0: 8.97, bytes: 5380 },
    S2 { id: 19, modulation: "16APSK", code_rate: "3/4", efficiency: 2.967, es_n0: 10.21, bytes: 6051 },
    S2 { id: 20, modulation: "16APSK", code_rate: "4/5", efficiency: 3.166, es_n0: 11.03, bytes: 6456 },
    S2 { id: 21, modulation: "16APSK", code_rate: "5/6", efficiency: 3.3, es_n0: 11.61, bytes: 6730 },
    S2 { id: 22, modulation: "16APSK", code_rate: "8/9", efficiency: 3.523, es_n0: 12.89, bytes: 7184 },
    S2 { id: 23, modulation: "16APSK", code_rate: "9/10", efficiency: 3.567, es_n0: 13.13, bytes: 7274 },
    S2 { id: 24, modulation: "32APSK", code_rate: "3/4", efficiency: 3.703, es_n0: 12.73, bytes: 6051 },
    S2 { id: 25, modulation: "32APSK", code_rate: "4/5", efficiency: 3.952, es_n0: 13.64, bytes: 6456 },
    S2 { id: 26, modulation: "32APSK", code_rate: "5/6", efficiency: 4.12, es_n0: 14.28, bytes: 6730 },
    S2 { id: 27, modulation: "32APSK", code_rate: "8/9", efficiency: 4.398, es_n0: 15.69, bytes: 7184 },
    S2 { id: 28, modulation: "32APSK", code_rate: "9/10", efficiency: 4.453, es_n0: 16.05, bytes: 7274 },
];

/// DVB-RCS2, reference waveforms for linear modulation.
#[rustfmt::skip]
pub const DVB_RCS2: [Rcs2; 20] = [
    Rcs2 { id: 3, modulation: "QPSK", code_rate: "1/3", es_n0: 0.22, symbols: 536, bytes: 44 },
    Rcs2 { id: 4, modulation: "QPSK", code_rate: "1/2", es_n0: 2.34, symbols: 536, bytes: 67 },
    Rcs2 { id: 5, modulation: "QPSK", code_rate: "2/3", es_n0: 4.29, symbols: 536, bytes: 89 },
    Rcs2 { id: 6, modulation: "QPSK", code_rate: "3/4", es_n0: 5.36, symbols: 536, bytes: 100 },
    Rcs2 { id: 7, modulation: "QPSK", code_rate: "5/6", es_n0: 6.68, symbols: 536, bytes: 111 },
    Rcs2 { id: 8, modulation: "8PSK", code_rate: "2/3", es_n0: 8.08, symbols: 536, bytes: 134 },
    Rcs2 { id: 9, modulation: "8PSK", code_rate: "3/4", es_n0: 9.31, symbols: 536, bytes: 150 },
    Rcs2 { id: 10, modulation: "8PSK", code_rate: "5/6", es_n0: 10.82, symbols: 536, bytes: 167 },
    Rcs2 { id: 11, modulation: "16QAM", code_rate: "3/4", es_n0: 11.17, symbols: 536, bytes: 201 },
    Rcs2 { id: 12, modulation: "16QAM", code_rate: "5/6", es_n0: 12.56, symbols: 536, bytes: 223 },
    Rcs2 { id: 13, modulation: "QPSK", code_rate: "1/3", es_n0: -0.51, symbols: 1616, bytes: 134 },
    Rcs2 { id: 14, modulation: "QPSK", code_rate: "1/2", es_n0: 1.71, symbols: 1616, bytes: 202 },
    Rcs2 { id: 15, modulation: "QPSK", code_rate: "2/3", es_n0: 3.69, symbols: 1616, bytes: 269 },
    Rcs2 { id: 16, modulation: "QPSK", code_rate: "3/4", es_n0: 4.73, symbols: 1616, bytes: 303 },
    Rcs2 { id: 17, modulation: "QPSK", code_rate: "5/6", es_n0: 5.94, symbols: 1616, bytes: 336 },
    Rcs2 { id: 18, modulation: "8PSK", code_rate: "2/3", es_n0: 7.49, symbols: 1616, bytes: 404 },
    Rcs2 { id: 19, modulation: "8PSK", code_rate: "3/4", es_n0: 8.77, symbols: 1616, bytes: 454 },
    Rcs2 { id: 20, modulation: "8PSK", code_rate: "5/6", es_n0: 10.23, symbols: 1616, bytes: 505 },
    Rcs2 { id: 21, modulation: "16QAM", code_rate: "3/4", es_n0: 10.72, symbols: 1616, bytes: 606 },
    Rcs2 { id: 22, modulation: "16QAM", code_rate: "5/6", es_n0: 12.04, symbols: 1616, bytes: 673 },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(margin: f64, hysteresis: f64, prefer: Prefer) -> Follower {
        let decibel = |value| Decibel::new(value).unwrap();
        let spec = Acm {
            margin: decibel(margin),
            hysteresis: decibel(hysteresis),
            report_every: Span::from_millis(1000),
            report_delay: None,
            prefer,
        };
        Follower::new(spec, &Radio::default())
    }

    #[test]
    fn the_sky_of_20_db_on_both_hops_allows_the_highest_modcod() {
        assert!((Radio::default().carrier_to_noise(Time::ZERO) - 16.99).abs() < 0.01);
        assert_eq!(follower(0.0, 0.0, Prefer::Efficiency).current.id, 28);
        assert_eq!(follower(2.0, 0.0, Prefer::Efficiency).current.id, 26);
    }

    #[test]
    fn what_needs_most_is_not_always_what_carries_most() {
        // 10.98 dB: 8PSK 9/10 needs all of it and carries 2.679 bits; 16APSK 3/4
        // needs 10.21 dB and carries 2.967.
        assert_eq!(follower(0.0, 0.0, Prefer::Threshold).best(10.99).id, 17);
        assert_eq!(follower(0.0, 0.0, Prefer::Efficiency).best(10.99).id, 19);
    }

    #[test]
    fn hysteresis_holds_still_while_the_sky_trembles() {
        let mut steps = Vec::new();
        let mut follower = follower(0.0, 1.0, Prefer::Efficiency);
        // QPSK 3/4 needs 4.03 dB, QPSK 2/3 needs 3.10.
        for carrier_to_noise in [4.2, 3.9, 4.2, 3.9, 4.2, 5.1] {
            follower.hear(carrier_to_noise);
            steps.push(follower.current.id);
        }
        assert_eq!(steps, [7, 6, 6, 6, 6, 7]);
    }
}

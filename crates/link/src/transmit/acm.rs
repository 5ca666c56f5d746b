//! Adaptive coding and modulation: the MODCOD that the receiver's reports allow.

use bentpipe_units::{Decibel, Span, Time};

use super::modcod::{DVB_S2, S2};
use crate::spec::{Acm, Prefer, Radio};

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
pub struct AcmSelector {
    spec: Acm,
    delay: Span,
    current: &'static S2,
    /// The last report that was looked at, counted from the start.
    report: Option<u64>,
}

impl AcmSelector {
    /// Begins with what the sky of the start allows.
    pub fn new(spec: Acm, radio: &Radio) -> Self {
        let mut selector = Self {
            spec,
            delay: spec.report_delay.unwrap_or_default(),
            current: &DVB_S2[0],
            report: None,
        };
        selector.current = selector.best(radio.carrier_to_noise(Time::ZERO));
        selector
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

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(margin: f64, hysteresis: f64, prefer: Prefer) -> AcmSelector {
        let decibel = |value| Decibel::new(value).unwrap();
        let spec = Acm {
            margin: decibel(margin),
            hysteresis: decibel(hysteresis),
            report_every: Span::from_millis(1000),
            report_delay: None,
            prefer,
        };
        AcmSelector::new(spec, &Radio::default())
    }

    #[test]
    fn the_sky_of_20_db_on_both_hops_allows_the_highest_modcod() {
        assert!((Radio::default().carrier_to_noise(Time::ZERO) - 16.99).abs() < 0.01);
        assert_eq!(selector(0.0, 0.0, Prefer::Efficiency).current.id, 28);
        assert_eq!(selector(2.0, 0.0, Prefer::Efficiency).current.id, 26);
    }

    #[test]
    fn what_needs_most_is_not_always_what_carries_most() {
        // 10.98 dB: 8PSK 9/10 needs all of it and carries 2.679 bits; 16APSK 3/4
        // needs 10.21 dB and carries 2.967.
        assert_eq!(selector(0.0, 0.0, Prefer::Threshold).best(10.99).id, 17);
        assert_eq!(selector(0.0, 0.0, Prefer::Efficiency).best(10.99).id, 19);
    }

    #[test]
    fn hysteresis_holds_still_while_the_carrier_over_noise_varies() {
        let mut steps = Vec::new();
        let mut selector = selector(0.0, 1.0, Prefer::Efficiency);
        // QPSK 3/4 needs 4.03 dB, QPSK 2/3 needs 3.10.
        for carrier_to_noise in [4.2, 3.9, 4.2, 3.9, 4.2, 5.1] {
            selector.hear(carrier_to_noise);
            steps.push(selector.current.id);
        }
        assert_eq!(steps, [7, 6, 6, 6, 6, 7]);
    }
}

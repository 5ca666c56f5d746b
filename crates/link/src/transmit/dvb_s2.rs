//! The forward carrier of DVB-S2 (ETSI EN 302 307-1): BBFRAMEs of the MODCOD
//! that the sky allows, one by one or in ticks.

use std::sync::Arc;

use bentpipe_units::{Rate, Span, Time, rounded};
use rand::Rng;

use super::acm::AcmSelector;
use super::constant::Clock;
use super::encapsulate::Encapsulation;
use super::modcod::{self, S2};
use crate::counters::Cause;
use crate::random::{self, Stage};
use crate::spec::{DvbS2, Radio};
use crate::ticks::Ticks;

/// One carrier.
#[derive(Debug)]
pub struct Carrier {
    spec: Arc<DvbS2>,
    coding: Coding,
    /// Symbols take time as bits do: one symbol is one "bit" of this clock.
    symbols: Clock,
    ticks: Option<Ticks>,
    per_tick: f64,
    credit: f64,
}

#[derive(Debug)]
enum Coding {
    Fixed(&'static S2),
    Adaptive(AcmSelector),
}

fn symbol_rate(spec: &DvbS2) -> f64 {
    spec.bandwidth.hertz() as f64 / (1.0 + spec.roll_off)
}

/// Symbols that the carrier sends in `span`.
pub fn symbols_in(spec: &DvbS2, span: Span) -> f64 {
    symbol_rate(spec) * span.as_secs_f64()
}

/// Rate at the IP level in packets of 1500 bytes under a clear sky, bit/s.
pub fn ceiling(spec: &DvbS2) -> f64 {
    let modcod = match (spec.modcod.and_then(modcod::dvb_s2), spec.acm) {
        (Some(modcod), _) => modcod,
        (None, Some(acm)) => {
            let clear = Radio {
                fade: None,
                ..spec.radio.clone()
            };
            AcmSelector::new(acm, &clear).modcod(Time::ZERO, &clear)
        }
        (None, None) => &modcod::DVB_S2[0],
    };
    ip_rate(spec, modcod, 1500)
}

/// Rate at the IP level in packets of `len` bytes with one MODCOD, bit/s.
pub fn ip_rate(spec: &DvbS2, modcod: &S2, len: u32) -> f64 {
    let frames = symbol_rate(spec) / f64::from(modcod.symbols());
    let packets = Encapsulation::gse(spec.link_header).packets_per_frame(len, modcod.bytes);
    frames * packets * f64::from(len) * 8.0
}

impl Carrier {
    pub fn new(spec: &Arc<DvbS2>, seed: u64) -> Self {
        let mut random = random::stream(seed, Stage::Access);
        let symbols = Rate::from_bits_per_second(rounded(symbol_rate(spec)));
        let ticks = spec.tick.map(|period| Ticks {
            period,
            phase: Span::from_nanos(random.random_range(0..period.as_nanos())),
        });
        Self {
            coding: match (spec.modcod.and_then(modcod::dvb_s2), spec.acm) {
                (None, Some(acm)) => Coding::Adaptive(AcmSelector::new(acm, &spec.radio)),
                (fixed, _) => Coding::Fixed(fixed.unwrap_or(&modcod::DVB_S2[0])),
            },
            symbols: Clock::new(symbols),
            per_tick: spec.tick.map_or(0.0, |tick| symbols_in(spec, tick)),
            ticks,
            credit: 0.0,
            spec: Arc::clone(spec),
        }
    }

    pub fn link_header(&self) -> u8 {
        self.spec.link_header
    }

    /// When frames can be sent, from `now` on.
    pub fn chance(&self, now: Time) -> Time {
        match self.ticks {
            Some(ticks) => ticks.at_or_after(now),
            None => now.max(self.symbols.free_at()),
        }
    }

    /// Begins a tick if there are ticks, with the symbols that it may send;
    /// returns a moment's length that leads beyond it.
    pub fn begin_tick(&mut self) -> Option<Span> {
        self.ticks?;
        self.credit += self.per_tick;
        Some(Span::from_nanos(1))
    }

    /// Takes a frame's symbols from the tick, if it has them.
    pub fn spend(&mut self, symbols: u32) -> bool {
        let enough = self.credit >= f64::from(symbols);
        if enough {
            self.credit -= f64::from(symbols);
        }
        enough
    }

    /// What a tick does not use is gone, unless a frame waits for the next one.
    pub fn forget_credit(&mut self) {
        self.credit = 0.0;
    }

    /// Sends so many symbols from `at` on; returns when the last has left.
    pub fn send(&mut self, at: Time, symbols: u32) -> Time {
        self.symbols.send_bits(at, u64::from(symbols))
    }

    /// What the next frame is coded with.
    pub fn modcod(&mut self, at: Time) -> &'static S2 {
        match &mut self.coding {
            Coding::Fixed(modcod) => modcod,
            Coding::Adaptive(selector) => selector.modcod(at, &self.spec.radio),
        }
    }

    /// Whether the sky is worse than the frame's MODCOD needs.
    pub fn is_faded(&self, at: Time, modcod: &S2) -> Option<Cause> {
        (self.spec.radio.carrier_to_noise(at) < modcod.es_n0).then_some(Cause::Fade)
    }
}

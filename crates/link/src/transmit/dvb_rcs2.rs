//! The return link of DVB-RCS2 (ETSI EN 301 545-2) as one terminal sees it:
//! bursts in each superframe, as many as its capacity classes give it.
//!
//! CRA is always there. RBDC and VBDC are asked for every so many superframes
//! and can be used when the request has been up and the grant down. Where other
//! terminals ask, too, RBDC is divided in proportion; VBDC and then FCA are what
//! is left over.

use std::collections::VecDeque;
use std::sync::Arc;

use bentpipe_units::{Rate, Span, Time, truncated};
use rand::Rng;

use super::encapsulate::Encapsulation;
use super::modcod::{self, Rcs2};
use crate::counters::Cause;
use crate::on_off::OnOffPeriods;
use crate::packet::Packet;
use crate::queue::Queue;
use crate::random::{self, Stage};
use crate::spec::DvbRcs2;
use crate::ticks::Ticks;

/// Most that one request can ask for (OpenSAND, capacity request field).
const MOST_RBDC: u64 = 16_320_000;
const MOST_VBDC_BYTES: u64 = 4_080_000 / 8;

/// One terminal with its grants.
#[derive(Debug)]
pub struct Terminal {
    spec: Arc<DvbRcs2>,
    waveform: &'static Rcs2,
    ticks: Ticks,
    /// In which superframe of a request's period this terminal asks.
    turn: u64,
    /// The last superframe in which it could ask.
    asked: Option<u64>,
    admitted_then: u64,
    grants: VecDeque<Grant>,
    /// Granted RBDC and when it runs out.
    rbdc: Option<(Rate, Time)>,
    /// Granted VBDC, bytes.
    vbdc: u64,
    /// The part of a burst that is owed to this terminal by the division of RBDC.
    credit: f64,
    /// Bursts that contending terminals ask for, and when they do.
    contending: Vec<(u64, OnOffPeriods)>,
}

#[derive(Debug)]
struct Grant {
    from: Time,
    rbdc: Rate,
    vbdc: u64,
}

/// Bursts that the carrier has in each superframe.
pub fn bursts_of_carrier(spec: &DvbRcs2) -> u64 {
    let symbols =
        spec.bandwidth.hertz() as f64 / (1.0 + spec.roll_off) * spec.superframe.as_secs_f64();
    let burst = modcod::dvb_rcs2(spec.waveform).map_or(u32::MAX, |waveform| waveform.symbols);
    truncated(symbols / f64::from(burst))
}

/// Bursts that contending terminals ask for in each superframe when all of them do.
pub fn bursts_of_contending(spec: &DvbRcs2) -> u64 {
    spec.others
        .iter()
        .map(|others| bursts_for(others.rate, spec, burst_bytes(spec)))
        .fold(0, u64::saturating_add)
}

fn burst_bytes(spec: &DvbRcs2) -> u32 {
    modcod::dvb_rcs2(spec.waveform).map_or(1, |waveform| waveform.bytes)
}

/// Bursts that carry `rate`, rounded up as the allocation does.
pub fn bursts_for(rate: Rate, spec: &DvbRcs2, burst_bytes: u32) -> u64 {
    let bits = u128::from(rate.bits_per_second()) * u128::from(spec.superframe.as_nanos());
    let burst = u128::from(burst_bytes.max(1)) * 8 * 1_000_000_000;
    u64::try_from(bits.div_ceil(burst)).unwrap_or(u64::MAX)
}

/// Rate at the IP level in packets of 1500 bytes with everything granted, bit/s.
pub fn ceiling(spec: &DvbRcs2) -> f64 {
    let Some(waveform) = modcod::dvb_rcs2(spec.waveform) else {
        return 0.0;
    };
    let asked: u64 = [spec.cra, spec.rbdc, spec.fca]
        .into_iter()
        .map(|rate| bursts_for(rate, spec, waveform.bytes))
        .sum();
    let bursts = asked.max(u64::from(spec.vbdc.as_u64() > 0));
    let bursts = bursts.min(bursts_of_carrier(spec)) as f64 / spec.superframe.as_secs_f64();
    let packets = Encapsulation::rle(spec.link_header).packets_per_frame(1500, waveform.bytes);
    bursts * packets * 1500.0 * 8.0
}

impl Terminal {
    pub fn new(spec: &Arc<DvbRcs2>, seed: u64) -> Self {
        let mut random = random::stream(seed, Stage::Access);
        Self {
            waveform: modcod::dvb_rcs2(spec.waveform).unwrap_or(&modcod::DVB_RCS2[0]),
            ticks: Ticks {
                period: spec.superframe,
                phase: Span::from_nanos(random.random_range(0..spec.superframe.as_nanos().max(1))),
            },
            turn: random.random_range(0..u64::from(spec.request_every.max(1))),
            asked: None,
            admitted_then: 0,
            grants: VecDeque::new(),
            rbdc: None,
            vbdc: 0,
            credit: 0.0,
            contending: (0..)
                .zip(&spec.others)
                .map(|(number, others)| {
                    let random = random::numbered(seed, Stage::ContendingTerminals, number);
                    let bursts = bursts_for(others.rate, spec, burst_bytes(spec));
                    (bursts, OnOffPeriods::new(others.on_off(), random))
                })
                .collect(),
            spec: Arc::clone(spec),
        }
    }

    pub fn link_header(&self) -> u8 {
        self.spec.link_header
    }

    pub fn burst_bytes(&self) -> u32 {
        self.waveform.bytes
    }

    /// Just past one superframe.
    pub fn superframe(&self) -> Span {
        Span::from_nanos(1)
    }

    /// The first superframe that does not begin before `now`.
    pub fn chance(&self, now: Time) -> Time {
        self.ticks.at_or_after(now)
    }

    /// Whether the sky is worse than the waveform needs.
    pub fn is_faded(&self, at: Time) -> Option<Cause> {
        (self.spec.radio.carrier_to_noise(at) < self.waveform.es_n0).then_some(Cause::Fade)
    }

    /// The superframe at `at` begins: asks if it is the terminal's turn, and says
    /// how many bursts it has. `cut` are the bytes of a packet that has begun.
    pub fn bursts<P: Packet>(&mut self, at: Time, queue: &Queue<P>, cut: u64) -> u64 {
        self.ask(at, queue, queue.bytes() + cut);
        while let Some(grant) = self.grants.pop_front_if(|grant| grant.from <= at) {
            // RBDC is good until the next one, and one superframe more.
            let lasts = u64::from(self.spec.request_every + 1) * self.spec.superframe.as_nanos();
            self.rbdc = Some((grant.rbdc, grant.from + Span::from_nanos(lasts)));
            self.vbdc += grant.vbdc;
        }
        let of = |rate| bursts_for(rate, &self.spec, self.waveform.bytes);
        let carrier = bursts_of_carrier(&self.spec);
        let cra = of(self.spec.cra).min(carrier);
        let rbdc = match self.rbdc {
            Some((rate, until)) if at < until => of(rate),
            _ => 0,
        };
        let fca = of(self.spec.fca);
        let room = carrier - cra;
        let theirs = self.asked_by_contending(at);
        let rbdc = self.share(rbdc, theirs, room);
        let room = room.saturating_sub(rbdc + theirs);
        let burst = u64::from(self.waveform.bytes);
        let by_volume = self.vbdc.div_ceil(burst).min(room);
        self.vbdc = self.vbdc.saturating_sub(by_volume * burst);
        cra + rbdc + by_volume + fca.min(room - by_volume)
    }

    /// Bursts of RBDC that contending terminals ask for in the superframe at `at`.
    fn asked_by_contending(&mut self, at: Time) -> u64 {
        self.contending
            .iter_mut()
            .filter_map(|(bursts, periods)| (periods.next(at) == Some(at)).then_some(*bursts))
            .fold(0, u64::saturating_add)
    }

    /// What of `ours` fits into `room` beside `theirs`: all, or a share in proportion,
    /// in whole bursts whose parts are carried on (OpenSAND: fair share and credit).
    fn share(&mut self, ours: u64, theirs: u64, room: u64) -> u64 {
        let asked = ours.saturating_add(theirs);
        if asked <= room {
            self.credit = 0.0;
            return ours;
        }
        let exact = ours as f64 * (room as f64 / asked as f64) + self.credit;
        let share = truncated(exact).min(ours).min(room);
        self.credit = exact - share as f64;
        share
    }

    fn ask<P: Packet>(&mut self, at: Time, queue: &Queue<P>, backlog: u64) {
        let every = u64::from(self.spec.request_every.max(1));
        let now = self.ticks.number(at);
        // The newest turn that has come.
        let Some(newest) = (now + every)
            .checked_sub(self.turn)
            .map(|since| since / every * every + self.turn)
            .and_then(|turn| turn.checked_sub(every))
        else {
            return;
        };
        if self.asked.is_some_and(|asked| asked >= newest) {
            return;
        }
        self.asked = Some(newest);
        let superframe = self.spec.superframe.as_nanos();
        if newest != now {
            // The turn came while nothing waited: nothing was asked for.
            self.admitted_then = queue.admitted_bytes() - queue.bytes();
            return;
        }
        let arrived = queue.admitted_bytes().saturating_sub(self.admitted_then);
        self.admitted_then = queue.admitted_bytes();
        let per_second = |bytes: u64, superframes: u64| {
            let bits = u128::from(bytes) * 8 * 1_000_000_000;
            let nanos = u128::from(superframes.max(1)) * u128::from(superframe);
            u64::try_from(bits / nanos).unwrap_or(u64::MAX)
        };
        let rate = per_second(arrived, every)
            .saturating_add(per_second(backlog, u64::from(self.spec.backlog_over)));
        // However slow: what waits is asked for.
        let rate = rate.max(u64::from(backlog > 0));
        let grant = Grant {
            from: at + self.spec.grant_delay.unwrap_or_default(),
            rbdc: Rate::from_bits_per_second(
                rate.min(self.spec.rbdc.bits_per_second()).min(MOST_RBDC),
            ),
            vbdc: backlog.min(self.spec.vbdc.as_u64()).min(MOST_VBDC_BYTES),
        };
        self.grants.push_back(grant);
    }
}

//! The satellite controller: rate-based, with a standing queue of a few packets
//! as its only target.
//!
//! `docs/model.md` derives it. In short:
//!
//! - [`train`]: the first full packets leave back to back; the spacing of their
//!   acknowledgements is the capacity of the bottleneck. One round trip after the
//!   first byte the sender knows the link and need not double its way up.
//! - [`queue`]: how much of the round-trip time is standing queue.
//! - Cruise (this file): pace at the rate at which the path delivers, corrected so
//!   that the own share of the standing queue becomes [`TARGET`] times the square
//!   root of the pipe. Losses do not enter: a packet lost on the air counts as
//!   carried. Only losses with a queue before them count as what they are.
//! - [`ebb`]: now and then the queue is let run dry, which shows the base round trip, and whether
//!   what was taken for a queue is only a longer way.
//! - [`company`]: when someone else keeps the queue full, follow RFC 9438 so that
//!   neither side starves.
//!
//! Idle time changes nothing: two ends that own the bottleneck keep what they know.

mod train;
mod queue;
mod ebb;
mod company;

use bentpipe_units::{Span, Time};

use crate::delivery::AckClock;
use crate::resume::{Path, PathMemory};
use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};
use company::Company;
use ebb::Ebb;
use queue::Queue;
use train::Train;

/// Own packets in the standing queue, in units of the square root of the packets
/// that fill the pipe: 9 of 1000 on GEO at 20 Mbit/s, 2 of 50 at 10 Mbit/s and
/// 60 ms. The square root makes flows of one bottleneck equal (`docs/model.md`).
///
/// A flow that has less of the path than it saw there, because it has company, aims
/// for more by the square of that ratio: this is what makes shares equal soon.
const TARGET: f64 = 0.3;
/// And for no less than this many seconds of queue: machines tremble.
const LEAST_TARGET: f64 = 0.002;
/// But never for more than this share of its own pipe.
const MOST_TARGET: f64 = 0.12;
/// Seconds in which what the path once carried is forgotten.
const FORGET: f64 = 40.0;
/// Share of the queue's error corrected per round trip. With the measurement one
/// to two round trips old, more than about 0.4 would swing.
const CORRECTION: f64 = 0.3;
/// What is tried beyond the delivered rate while no queue stands, step by step.
/// Slow at first: a queue of 25 packets is 2.5 % of a GEO pipe.
const REACH: [f64; 7] = [0.0, 0.01, 0.03, 0.08, 0.15, 0.25, 0.5];
/// Rounds without a queue before the next step; what is tried shows after two.
const STAY: [u32; 7] = [2, 4, 2, 2, 2, 2, 2];
/// First rate after the packet train, as a share of what the train showed: the
/// train saw 20 packets, the rest may belong to others.
const FIRST: f64 = 0.75;
/// And by how much of the base the round trip is longer than at first when that is enough.
const CLIMBED: f64 = 0.1;
/// For so many rounds what a train has shown is doubted if it turns out that acknowledgements
/// come in slots, or through jitter.
const UNPROVEN: u32 = 12;
/// What the window grows by in a round without a train, of itself. A doubling would fill a queue
/// of one bandwidth-delay product before the first of it is seen.
const CLIMB: f64 = 0.75;
/// A standing queue of this share of the base round trip ends a start without a train.
const FULL: f64 = 0.25;
/// Acknowledgements that are later than the first ones by so many seconds come in slots
/// perhaps, and their spacing is not believed beyond the train's own rate.
const SMOOTH: f64 = 0.005;
/// Judged when it has been coming back for so much of a round trip.
const JUDGED: f64 = 0.05;
/// And once a round at that rate stood no queue.
const SECOND: f64 = 0.97;
/// A path remembered from an earlier connection is tried at half its rate (RFC 9959, section 4.3).
const REMEMBERED: f64 = 0.5;
/// A pause in which this share of the pipe could have left and did not: the sender had
/// too little, and what comes back a round trip later says nothing about the path.
const LULL: f64 = 0.05;
/// A shorter pause is a late timer's, seconds.
const LEAST_LULL: f64 = 0.025;
/// A flow with less than this share of what it once had, and a queue, is suspicious: the way
/// may have become longer.
const SUSPICIOUS: f64 = 0.9;
/// A standing queue of this share of the base round trip is none of ours.
const STRANGE: f64 = 0.2;
/// Whoever has no more in flight than so many times its pipe, and so many packets, has not made it.
const INNOCENT: f64 = 1.15;
const INNOCENT_PACKETS: f64 = 12.0;
/// And one of this share is beyond all plans: the path carries less than it did.
const PLANNED: f64 = 0.15;
/// What less time shows may be a gap: another satellite takes some 40 ms.
const SHORTEST: Span = Span::from_millis(100);
/// What may be in flight beyond the pipe: acknowledgements come in groups.
const SLACK: f64 = 0.10;
/// The same in packets.
const SLACK_PACKETS: f64 = 24.0;
/// Losses beyond this share of a round are congestion whatever the queue looks like.
const NOISE: f64 = 0.2;
/// Fewer lost packets than this have no share to speak of.
const FEW_LOST: f64 = 8.0;
/// And a frame that tells of so many times more lost than arrived bytes.
const BURST: u64 = 2;
/// Without any acknowledgement for so many round trips the path is dark.
const DARK: f64 = 1.1;
/// While dark, a packet leaves so many times per round trip: the first that
/// comes through ends the darkness without waiting for a backed-off timer.
const BEACONS: f64 = 8.0;
/// Most beacons in a row; then the QUIC library's probe timer is alone.
const MOST_BEACONS: u32 = 80;

/// What the controller is doing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Nothing is known yet, or only what was remembered: the train is out.
    Start,
    /// The train's rate is being tried since a moment, and has been coming back since another.
    Try {
        since: Time,
        back: Option<Time>,
        capacity: f64,
    },
    /// The train showed nothing that can be believed: the window grows until a queue stands, as
    /// in slow start (RFC 9002, section 7.3.1). The round trip is so long on average without one.
    Climb { usual: Span },
    /// The path is known.
    Cruise,
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Satellite {
    memory: PathMemory,
    packet: f64,
    initial_window: f64,
    /// Window until the train is out: it doubles, for a window may be smaller than a train.
    start_window: f64,
    initial_rtt: Span,
    phase: Phase,
    train: Train,
    clock: AckClock,
    queue: Queue,
    company: Company,
    /// Bytes per second that the path delivers to this flow.
    rate: f64,
    /// Bytes per second that the path was seen to deliver at best, forgotten slowly.
    capacity: f64,
    capacity_at: Time,
    /// When the queue grew beyond all plans.
    fall: Option<Time>,
    /// Measurements of packets sent before then are of an earlier rate.
    hold_until: Time,
    /// Rounds of cruise.
    rounds: u32,
    /// Index into [`REACH`].
    reach: usize,
    /// Rounds without a queue at this reach.
    clean: u32,
    round: Round,
    ebb: Ebb,
    last_sent: Time,
    last_acked: Time,
    smoothed_rtt: Option<Span>,
    dark: Option<Dark>,
    /// Losses told until then are of packets that left into the dark.
    dark_until: Time,
    /// Bytes acknowledged and lost by the latest ACK frame.
    frame: (u64, u64),
}

/// One round trip's account.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    /// Ends with the acknowledgement of a packet sent after this.
    started: Time,
    count: u64,
    acked: u64,
    lost: u64,
    /// Loss share of the round before.
    loss: f64,
    queued: bool,
    app_limited: bool,
}

#[derive(Debug, Clone, Copy)]
struct Dark {
    beacons: u32,
    /// Window that lets the next beacon out.
    window: u64,
}

impl Satellite {
    /// A controller for packets of `packet` bytes that starts with `initial_window`
    /// bytes and takes the round trip for `initial_rtt` until it is measured.
    pub fn new(packet: u64, initial_window: u64, initial_rtt: Span, memory: PathMemory) -> Self {
        Self {
            memory,
            packet: packet as f64,
            initial_window: initial_window as f64,
            start_window: initial_window as f64,
            initial_rtt,
            phase: Phase::Start,
            train: Train::default(),
            clock: AckClock::default(),
            queue: Queue::default(),
            company: Company::default(),
            rate: 0.0,
            capacity: 0.0,
            capacity_at: Time::ZERO,
            fall: None,
            hold_until: Time::ZERO,
            rounds: 0,
            reach: 0,
            clean: 0,
            round: Round::default(),
            ebb: Ebb::default(),
            last_sent: Time::ZERO,
            last_acked: Time::ZERO,
            smoothed_rtt: None,
            dark: None,
            dark_until: Time::ZERO,
            frame: (0, 0),
        }
    }

    /// The round trip without any queue, seconds.
    fn base(&self) -> f64 {
        self.queue.base().unwrap_or(self.initial_rtt).as_secs_f64()
    }

    /// Bytes that fill the pipe at the delivered rate.
    fn pipe(&self) -> f64 {
        (self.rate * self.base()).max(self.packet)
    }

    /// Own bytes that should stand in the queue.
    fn target(&self) -> f64 {
        let room = self.capacity.max(self.rate).max(1.0);
        let share = (self.rate / room).max(0.1);
        let pipe = (room * self.base()).max(self.packet);
        let own = TARGET * (self.packet / pipe).sqrt() / (share * share) * self.pipe();
        own.max(LEAST_TARGET * self.rate)
            .min(MOST_TARGET * self.pipe())
    }

    /// Own bytes that do stand in the queue.
    fn standing(&self) -> f64 {
        self.rate * self.queue.standing()
    }

    /// Whether losses now come from a full queue.
    fn queue_is_long(&self) -> bool {
        self.standing() > 1.6 * self.target() + 2.0 * self.packet
    }

    /// Whether this round has lost more than the air would take.
    fn loses_much(&self) -> bool {
        let Round { acked, lost, .. } = self.round;
        let lost = lost as f64;
        lost > FEW_LOST * self.packet && lost > NOISE * (acked as f64 + lost)
    }

    /// Whether so much queue stands that the path must be full.
    fn is_full(&self) -> bool {
        self.queue.standing() > FULL * self.base()
    }

    fn rtt(&self) -> Span {
        self.smoothed_rtt.unwrap_or(self.initial_rtt)
    }

    /// The path as remembered, if what is measured fits it.
    fn remembered(&self) -> Option<Path> {
        let rtt = self.queue.base()?;
        self.memory.get().filter(|path| path.fits(rtt))
    }

    fn end_round(&mut self, now: Time) {
        let Round {
            acked,
            lost,
            queued,
            app_limited,
            count,
            ..
        } = self.round;
        self.round = Round {
            started: now,
            count: count + 1,
            loss: lost as f64 / (acked + lost).max(1) as f64,
            ..Round::default()
        };
        if self.phase != Phase::Cruise || app_limited {
            return;
        }
        self.rounds += 1;
        if self.rounds <= UNPROVEN && self.queue.is_noisy() {
            self.climb();
            return;
        }
        if queued {
            self.reach = 0;
            self.clean = 0;
        } else {
            self.clean += 1;
            if self.clean >= STAY[self.reach] {
                // What was carried once is tried sooner.
                let step = if self.rate < SUSPICIOUS * self.capacity {
                    2
                } else {
                    1
                };
                self.reach = (self.reach + step).min(REACH.len() - 1);
                self.clean = 0;
            }
        }
        self.memory.save(Path {
            rate: self.rate,
            rtt: self.queue.base().unwrap_or(self.initial_rtt),
        });
        self.company.on_round(&company::Round {
            now,
            long: self.queue.standing() > STRANGE * self.base(),
            innocent: self.clock.in_flight() as f64
                <= INNOCENT * self.pipe() + INNOCENT_PACKETS * self.packet,
            in_flight: self.clock.in_flight() as f64,
            pipe: self.pipe(),
            rtt: self.rtt().as_secs_f64(),
            packet: self.packet,
        });
    }

    fn cruise_at(&mut self, now: Time, rate: f64) {
        if let Phase::Try { capacity, .. } = self.phase {
            self.capacity = capacity;
            self.capacity_at = now;
        }
        self.phase = Phase::Cruise;
        self.rate = rate.max(self.packet);
        self.reach = 1;
        self.hold(now);
    }

    /// The next measurements still show the rate of before: one round trip to arrive,
    /// one to be measured over.
    fn hold(&mut self, now: Time) {
        self.hold_until = now + self.rtt() + self.rtt();
    }

    /// The train came back, and showed so many bytes per second.
    fn on_train(&mut self, now: Time, capacity: f64) {
        self.rate = FIRST * capacity;
        self.phase = Phase::Try {
            since: now,
            back: None,
            capacity,
        };
    }

    /// Goes on from what the train has shown, or from twice the first window, which is through.
    fn climb(&mut self) {
        self.start_window = self.pipe().max(2.0 * self.initial_window);
        self.phase = Phase::Climb { usual: self.rtt() };
    }

    /// There is a queue: what it delivers is what the path carries.
    fn climbed(&mut self, now: Time) {
        self.rounds = UNPROVEN;
        let base = self.queue.base().unwrap_or(self.initial_rtt);
        let half = Span::from_nanos(base.as_nanos() / 2);
        // RFC 5681, section 3.1, when nothing could be measured yet.
        let window = self.start_window / base.as_secs_f64();
        self.cruise_at(now, self.clock.rate(half).unwrap_or(window));
    }
}

impl Controller for Satellite {
    fn on_sent(&mut self, packet: Sent) {
        let silent = packet.now.since(self.last_acked).as_secs_f64();
        let waiting = self.clock.in_flight() > 0;
        let pause = packet
            .now
            .since(std::mem::replace(&mut self.last_sent, packet.now));
        let missed = self.rate * pause.as_secs_f64() - packet.bytes as f64;
        let room = self.window().saturating_sub(self.clock.in_flight()) as f64;
        if self.phase == Phase::Cruise
            && missed.min(room) > (LULL * self.pipe()).max(LEAST_LULL * self.rate)
        {
            self.clock.pause(packet.now + self.rtt());
            self.round.app_limited = true;
        }
        self.clock.on_sent(packet.bytes);
        if self.queue.base().is_some() && self.phase == Phase::Start {
            self.train.on_sent(packet, self.packet);
        }
        if !waiting {
            // The silence before a new flight was idleness.
            self.last_acked = packet.now;
        } else if silent > DARK * self.rtt().as_secs_f64() && self.phase == Phase::Cruise {
            let beacons = self.dark.map_or(0, |dark| dark.beacons);
            if beacons < MOST_BEACONS {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a packet's length"
                )]
                let room = 2 * self.packet as u64;
                self.dark = Some(Dark {
                    beacons: beacons + 1,
                    window: self.clock.in_flight() + room,
                });
            }
        }
    }

    fn on_acked(&mut self, packet: &Acked) {
        self.clock.on_acked(packet.bytes);
        self.queue.on_acked(packet);
        self.train.on_acked(packet);
        if self.last_acked != packet.now {
            self.last_acked = packet.now;
            self.frame = (0, 0);
        }
        self.frame.0 += packet.bytes;
        self.round.acked += packet.bytes;
        let growth = match self.phase {
            Phase::Start if !self.train.is_out() => 1.0,
            Phase::Climb { .. } => CLIMB,
            _ => 0.0,
        };
        if !packet.app_limited {
            self.start_window += growth * packet.bytes as f64;
        }
        self.smoothed_rtt = Some(packet.smoothed_rtt);
        if let Phase::Try { since, back, .. } = &mut self.phase
            && packet.sent > *since
        {
            back.get_or_insert(packet.now);
        }
        if packet.sent >= self.round.started {
            self.end_round(packet.now);
        }
    }

    fn on_acks_done(&mut self, end: AcksDone) {
        let now = end.now;
        self.last_acked = now;
        if self.dark.take().is_some() {
            self.clock.restart();
            self.hold(now);
            self.dark_until = now + self.rtt() + self.rtt();
        }
        self.queue.on_acks_done(now, self.rtt());
        let rtt = self.queue.base().unwrap_or(self.initial_rtt);
        self.clock.on_acks_done(now, end.app_limited, rtt);
        self.round.app_limited |= end.app_limited;
        if self.standing() > 0.5 * self.target() {
            self.round.queued = true;
            self.reach = 0;
        }

        match self.phase {
            Phase::Start => {
                if let Some(path) = self.remembered() {
                    self.rate = REMEMBERED * path.rate;
                }
                let smooth = self.queue.standing() < SMOOTH;
                if let Some(shown) = self.train.on_acks_done(now, smooth) {
                    match shown {
                        Some(capacity) => self.on_train(now, capacity),
                        None => self.climb(),
                    }
                } else if !self.train.is_out() && self.is_full() {
                    self.climbed(now);
                }
            }
            Phase::Climb { usual } => {
                // Slots and jitter do not change the average.
                let usual = usual.min(self.rtt());
                self.phase = Phase::Climb { usual };
                let more = self.rtt().as_secs_f64() - usual.as_secs_f64();
                let full = more > (CLIMBED * self.base()).max(2.0 * self.queue.noise());
                if full || self.is_full() {
                    self.climbed(now);
                }
            }
            Phase::Try {
                back: Some(back),
                capacity,
                ..
            } if now.since(back).as_secs_f64() >= JUDGED * self.base() => {
                if self.queue_is_long() {
                    let shown = self.clock.rate(now.since(back));
                    self.cruise_at(now, shown.unwrap_or(self.rate).min(self.rate));
                } else {
                    let known = self
                        .remembered()
                        .map_or(capacity, |path| path.rate.min(capacity));
                    self.cruise_at(now, SECOND * known.max(FIRST * capacity));
                }
            }
            Phase::Try { .. } => {}
            Phase::Cruise => self.cruise(now, end.app_limited),
        }
    }

    fn on_lost(&mut self, packet: Lost) {
        self.frame.1 += packet.bytes;
        // A packet lost on the air has used the transmitter. One that found the queue
        // full, that left into the dark, or that is one of a whole burst has not.
        let congestion = self.queue_is_long()
            || matches!(self.phase, Phase::Climb { .. })
            || self.round.loss > NOISE
            || packet.now < self.dark_until
            || self.frame.1 > BURST * self.frame.0.max(1);
        self.round.lost += packet.bytes;
        self.clock.on_lost(packet.bytes, !congestion);
        self.train.on_lost();
    }

    fn on_congestion(&mut self, event: &Congestion) {
        let queue = self.queue_is_long();
        if queue || event.marked {
            self.reach = 0;
            self.round.queued = true;
        }
        self.company.on_congestion();
        let climbing = match self.phase {
            Phase::Start => self.rate == 0.0 && !self.train.is_out(),
            // A short queue shows by nothing but its losses.
            Phase::Climb { .. } => self.loses_much(),
            _ => false,
        };
        if event.persistent && matches!(self.phase, Phase::Start | Phase::Climb { .. }) {
            self.rate = 0.0;
            self.start_window = self.initial_window;
        } else if climbing {
            self.climbed(event.now);
        }
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes as f64;
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a window of bytes"
    )]
    fn window(&self) -> u64 {
        let own = match self.phase {
            Phase::Start if self.rate == 0.0 => self.start_window,
            Phase::Climb { .. } => self.start_window,
            _ => {
                self.pipe() * (1.0 + SLACK + REACH[self.reach])
                    + 2.0 * self.target()
                    + SLACK_PACKETS * self.packet
            }
        };
        let window = own.max(self.company.window()).max(2.0 * self.packet) as u64;
        self.dark.map_or(window, |dark| window.max(dark.window))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of bytes per second"
    )]
    fn pacing_rate(&self) -> Option<u64> {
        if self.dark.is_some() {
            return Some((BEACONS * self.packet / self.base()) as u64);
        }
        let own = match self.phase {
            Phase::Start if !self.train.is_out() => return Some(train::RATE),
            Phase::Start if self.rate == 0.0 => self.start_window / self.base(),
            Phase::Climb { .. } => self.start_window / self.base(),
            Phase::Start | Phase::Try { .. } => self.rate,
            Phase::Cruise => self.rate * self.gain(),
        };
        let company = self.company.window() * 1.05 / self.rtt().as_secs_f64();
        Some(own.max(company).max(2.0 * self.packet / self.base()) as u64)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

impl Satellite {
    /// What a frame of acknowledgements changes once the path is known.
    fn cruise(&mut self, now: Time, app_limited: bool) {
        let rtt = self.queue.base().unwrap_or(self.initial_rtt);
        let limit = (4.0 * self.target() / self.rate).max(PLANNED * self.base());
        let long =
            now >= self.dark_until && self.company.window() == 0.0 && self.queue.standing() > limit;
        if long {
            // The path carries less than it did. What the last quarter of a round trip (no
            // gap between two satellites) delivered is believed for half a round trip; after that we have stopped
            // sending, and what is delivered shows no more than that.
            self.rounds = UNPROVEN;
            let began = *self.fall.get_or_insert(now);
            let half = Span::from_nanos(rtt.as_nanos() / 2);
            let quarter = Span::from_nanos(rtt.as_nanos() / 4).max(SHORTEST);
            let quarter = if self.queue.is_noisy() {
                quarter.max(half)
            } else {
                quarter
            };
            if now.since(began) <= half
                && let Some(recent) = self.clock.rate(quarter)
            {
                self.rate = self.rate.min(recent).max(self.packet);
            }
            self.hold(now);
        } else if self.fall.take().is_some() {
            self.clock.restart();
            self.ebb.restart();
        }
        if !app_limited
            && now >= self.hold_until
            && let Some(rate) = self.clock.rate(rtt)
        {
            // Without a queue it was the sender that was slow: its timers were late.
            let path = self.standing() > 0.5 * self.target();
            self.rate = if path { rate } else { rate.max(self.rate) }.max(self.packet);
        }
        // What the path once carried counts less and less.
        let since = now.since(self.capacity_at).as_secs_f64();
        self.capacity_at = now;
        self.capacity += (self.rate - self.capacity) * (since / FORGET).min(1.0);
        self.capacity = self.capacity.max(self.rate);
        let verdict = self.ebb.on_acks_done(ebb::Sight {
            now,
            rtt,
            standing: self.queue.standing(),
            target: self.target() / self.rate,
            doubtful: self.round.queued && self.rate < SUSPICIOUS * self.capacity,
            urgent: self.company.is_suspected(),
            busy: !app_limited && self.company.window() == 0.0,
        });
        if let Some(verdict) = verdict {
            self.company.on_verdict(verdict == ebb::Verdict::Queue);
            if verdict == ebb::Verdict::LongerWay {
                self.queue.rebase();
                self.round.queued = false;
            }
        }
    }

    fn gain(&self) -> f64 {
        if let Some(gain) = self.ebb.gain(self.last_acked) {
            return gain;
        }
        let error = (self.target() - self.standing()) / self.pipe();
        (1.0 + CORRECTION * error).clamp(0.5, 2.0) + REACH[self.reach]
    }
}

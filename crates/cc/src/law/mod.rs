//! A window that follows the standing queue, and CUBIC's where somebody else fills it.
//!
//! One quantity is controlled: the window, bytes in flight. Pacing spreads it over a
//! round trip. Everything else is what changes the window:
//!
//! - *Start* ([`train`]): twenty packets back to back show the bottleneck's rate; or the
//!   window doubles until a queue stands.
//! - *Alone*: once per round trip, `W += 0.3 W (target - queue) / rtt`, as FAST TCP; without
//!   a queue it grows by 1, 1, 2, 4, 8, ... %.
//! - *Drain*: when a queue stands that is too long, or none has been seen to vanish for
//!   five seconds, 0.9 of the pipe is left in flight until the own queue is gone. What still
//!   stands then is somebody else's.
//! - *Competing*: somebody else's queue: CUBIC (RFC 9438), until a drain finds no queue.
//! - *Losses* ([`losses`]) with a full queue cut the window as CUBIC does, alone to no less
//!   than the pipe. Others count when they stop as less is sent.

mod constants;
mod train;
mod path;
mod losses;
mod cubic;

use bentpipe_units::{Span, Time};

use crate::delivery::AckClock;
use crate::resume::{Path, PathMemory};
use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};
use constants::*;
use cubic::Curve;
use losses::{Losses, Verdict};
use path::PathTimes;
use train::Train;

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Nothing is known yet: the train is out.
    Start,
    /// The train's rate is being tried since a moment, and has been coming back since another.
    Try {
        since: Time,
        back: Option<Time>,
        capacity: f64,
    },
    /// Slow start.
    Climb,
    Alone,
    Drain(Drain),
    Competing(Curve),
}

#[derive(Debug, Clone, Copy)]
struct Drain {
    since: Time,
    /// Window and queue before it.
    window: f64,
    queue: f64,
    /// The curve to go on with.
    curve: Option<Curve>,
    /// Since when no more is in flight than wanted; the least queue since.
    dry: Option<Time>,
    least: f64,
    seen: u32,
}

/// See the [module](self).
#[derive(Debug, Clone)]
pub struct Law {
    memory: PathMemory,
    packet: f64,
    initial_window: f64,
    initial_rtt: Span,
    phase: Phase,
    window: f64,
    train: Train,
    clock: AckClock,
    path: PathTimes,
    losses: Losses,
    /// Window before a trial of less.
    before_trial: f64,
    smoothed_rtt: Option<Span>,
    round: Round,
    /// Index into [`STEPS`].
    step: usize,
    long_rounds: u32,
    /// A larger window that fitted a short while ago, and for how many rounds more it is expected to.
    expected: (f64, u32),
    /// The longest queue of late, seconds.
    longest: f64,
    /// Bytes per second that the path was seen to carry at best, forgotten slowly.
    capacity: f64,
    recovery_from: Option<Time>,
    last_acked: Time,
    last_frame: Time,
    last_sent: Time,
    dark: Option<(u32, f64)>,
    /// Losses told until then are of packets that left into the dark.
    dark_until: Time,
    /// Losses told until then are the train's.
    blind_until: Time,
    /// Resumed from a remembered path that is not confirmed yet.
    unconfirmed: bool,
    /// What was delivered when too much was lost, bytes of window.
    ceiling: f64,
    /// Usual silence between acknowledgements, and what the longest of a round is beyond, seconds.
    usual_gap: f64,
    gap: f64,
    /// The largest window without a queue of late, and how often the rate has fallen and risen.
    fitted: f64,
    varying: f64,
    fell: bool,
    fell_to: f64,
    /// Rounds in which more may be lost again soon.
    careful: u32,
    /// Slow start ends here after persistent congestion.
    threshold: f64,
}

/// One round trip's account.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    /// Ends with the acknowledgement of a packet sent after this.
    started: Time,
    acked: u64,
    packets: u64,
    lost: u64,
    most_in_flight: f64,
    least_queue: Option<f64>,
    app_limited: bool,
    /// The longest silence between acknowledgements, seconds.
    gap: f64,
    /// Share of the window that the round before has filled.
    filled: f64,
}

impl Law {
    /// A controller for packets of `packet` bytes that starts with `initial_window`
    /// bytes and takes the round trip for `initial_rtt` until it is measured.
    pub fn new(packet: u64, initial_window: u64, initial_rtt: Span, memory: PathMemory) -> Self {
        Self {
            memory,
            packet: packet as f64,
            initial_window: initial_window as f64,
            initial_rtt,
            phase: Phase::Start,
            window: initial_window as f64,
            train: Train::default(),
            clock: AckClock::default(),
            path: PathTimes::default(),
            losses: Losses::default(),
            before_trial: 0.0,
            smoothed_rtt: None,
            round: Round {
                filled: 1.0,
                ..Round::default()
            },
            step: SOONER,
            long_rounds: 0,
            expected: (0.0, 0),
            longest: 0.0,
            capacity: 0.0,
            recovery_from: None,
            last_acked: Time::ZERO,
            last_frame: Time::ZERO,
            last_sent: Time::ZERO,
            dark: None,
            dark_until: Time::ZERO,
            unconfirmed: false,
            blind_until: Time::ZERO,
            fitted: 0.0,
            varying: 0.0,
            fell: false,
            fell_to: 0.0,
            ceiling: 0.0,
            usual_gap: 0.0,
            gap: 0.0,
            careful: 0,
            threshold: f64::INFINITY,
        }
    }

    /// The round trip without any queue, seconds.
    fn base(&self) -> f64 {
        self.path.base().unwrap_or(self.initial_rtt).as_secs_f64()
    }

    fn rtt(&self) -> Span {
        self.smoothed_rtt.unwrap_or(self.initial_rtt)
    }

    /// The round trip with the queue that stands, seconds.
    fn standing_rtt(&self) -> f64 {
        self.base() + self.path.standing()
    }

    /// Bytes per second that the window makes.
    fn rate(&self) -> f64 {
        self.window / self.standing_rtt()
    }

    /// Seconds of queue that are wanted.
    fn target(&self) -> f64 {
        let rate = self.rate().max(1.0);
        let room = self.capacity.max(rate);
        let share = (rate / room).max(0.1);
        let pipe = (room * self.base()).max(self.packet);
        let own = TARGET * (self.packet / pipe).sqrt() * self.base() / (share * share);
        own.min(MOST_TARGET * self.base())
            .max(LEAST_TARGET)
            .max((self.gap + self.waits()).min(GAP_MOST * self.base()))
            .max(LEAST_TARGET_PACKETS * self.packet / rate)
    }

    /// Seconds that packets wait for their acknowledgement, where a timer sends it and not the
    /// packet that completes the number asked for.
    fn waits(&self) -> f64 {
        let rate = self.window / self.base();
        if self.usual_gap * rate < ACK_PACKETS * self.packet {
            self.usual_gap
        } else {
            0.0
        }
    }

    /// A queue that is too long, seconds.
    fn long(&self) -> f64 {
        (LONG_TARGETS * self.target()).max(LONG * self.base())
    }

    fn set(&mut self, window: f64) {
        self.window = window.max(2.0 * self.packet);
    }

    fn remembered(&self) -> Option<Path> {
        let rtt = self.path.base()?;
        self.memory.get().filter(|path| path.fits(rtt))
    }

    /// Bytes per second that were delivered over the last round trip, or half of it.
    fn delivered(&self) -> Option<f64> {
        let base = self.path.base()?;
        let half = Span::from_nanos(base.as_nanos() / 2);
        self.clock
            .rate(half)
            .or_else(|| self.clock.rate(Span::from_nanos(1)))
    }

    // --- once per round trip ---------------------------------------------------------------

    fn end_round(&mut self, now: Time) {
        let round = self.round;
        let filled = (round.most_in_flight / self.window.max(1.0)).min(1.0);
        self.round = Round {
            started: now,
            filled: if round.app_limited { 1.0 } else { filled },
            ..Round::default()
        };
        let queue = round
            .least_queue
            .unwrap_or(0.0)
            .min(self.path.standing().max(0.0));
        self.longest = (self.longest * (1.0 - FORGET_LONGEST)).max(queue);
        self.careful = self.careful.saturating_sub(1);
        self.expected.1 = self.expected.1.saturating_sub(1);
        if matches!(self.phase, Phase::Start | Phase::Try { .. }) {
            return;
        }
        if now >= self.dark_until && now >= self.blind_until {
            self.judge_losses(now, &round);
        }
        if round.app_limited || self.losses.is_trying() {
            return;
        }
        let gap = (round.gap - GAP_USUAL * self.usual_gap - GAP_LEAST).max(0.0);
        self.gap += GAP_GAIN * (gap - self.gap);
        match self.phase {
            Phase::Alone => self.follow(now, queue),
            Phase::Competing(mut curve) => {
                let window = curve.grown(now, self.window / self.packet, self.rtt().as_secs_f64());
                self.phase = Phase::Competing(curve);
                self.set(window * self.packet);
                if now.since(self.path.near()) > BASE_MEMORY {
                    self.drain(now, Some(curve));
                }
            }
            _ => {}
        }
        if matches!(self.phase, Phase::Alone) {
            let share = (self.rtt().as_secs_f64() / CAPACITY_MEMORY).min(1.0);
            let rate = self.rate();
            self.capacity = (self.capacity + (rate - self.capacity) * share).max(rate);
            if !self.unconfirmed {
                self.memory.save(Path {
                    rate,
                    rtt: self.path.base().unwrap_or(self.initial_rtt),
                });
            }
            self.unconfirmed = false;
        }
    }

    /// Whether the rate keeps falling and rising.
    fn is_varying(&self) -> bool {
        self.varying >= VARYING_TIMES
    }

    /// Alone: towards the wanted queue.
    fn follow(&mut self, now: Time, queue: f64) {
        let target = self.target();
        self.fitted *= 1.0 - (self.rtt().as_secs_f64() / VARYING_MEMORY).min(1.0);
        self.varying *= 1.0 - (self.rtt().as_secs_f64() / VARYING_MEMORY).min(1.0);
        if queue < 0.5 * target {
            if self.fell && self.window > VARYING_AGAIN * self.fell_to {
                // The rate that fell is back.
                self.fell = false;
                self.varying += 1.0;
            }
            self.fitted = self.fitted.max(self.window);
            self.long_rounds = 0;
            if self.expected.1 > 0 && self.window < self.expected.0 {
                self.step = self.step.max(SOONER);
            }
            if self.careful > 0 && self.window > CAREFUL_FROM * self.ceiling {
                self.step = self.step.min(CAREFUL_STEP);
            }
            let packets = if self.careful > 0 { 0.1 } else { 0.5 };
            self.set(self.window * (1.0 + STEPS[self.step]) + packets * self.packet);
            self.step = (self.step + 1).min(STEPS.len() - 1);
        } else {
            self.step = 0;
            let error = (target - queue) / (self.base() + queue);
            let least = if self.is_varying() {
                VARYING_KEEPS * self.fitted
            } else {
                0.0
            };
            let window = self.window * (1.0 + CORRECTION * error);
            if error > 0.0 || self.window > least {
                self.set(window.max(least.min(self.window)));
            }
        }
        if queue > self.long() {
            self.long_rounds += 1;
            if self.long_rounds >= LONG_ROUNDS && !self.is_varying() {
                self.drain(now, None);
            }
        } else {
            self.long_rounds = 0;
            if now.since(self.path.near()) > DRAIN_INTERVAL {
                self.drain(now, None);
            }
        }
    }

    fn judge_losses(&mut self, now: Time, round: &Round) {
        match self.losses.on_round(round.lost, round.packets + round.lost) {
            Verdict::None => {}
            Verdict::Try(share) => {
                self.ceiling = share * self.window;
                if matches!(self.phase, Phase::Climb) {
                    // Slow start overshoots; that is no question.
                    self.losses.restart();
                    self.phase = Phase::Alone;
                    self.careful = CAREFUL_ROUNDS;
                    self.step = SOONER;
                    self.set(
                        (BETA * self.window)
                            .min(self.ceiling)
                            .max(0.5 * self.window),
                    );
                    return;
                }
                self.before_trial = self.window;
                self.step = 0;
                self.set(self.ceiling);
            }
            Verdict::Air => self.set(self.before_trial),
            Verdict::Full => {
                self.step = 0;
                self.careful = CAREFUL_ROUNDS;
                self.expected = (0.0, 0);
                self.capacity = self.rate();
                if let Phase::Competing(curve) = &mut self.phase {
                    *curve = Curve::new(
                        now,
                        self.window / self.packet,
                        self.before_trial / self.packet,
                    );
                }
            }
        }
    }

    // --- drain ---------------------------------------------------------------------------------

    fn drain(&mut self, now: Time, curve: Option<Curve>) {
        let queue = self.path.standing().max(0.0);
        let mut pipe = self.window * self.base() / self.standing_rtt();
        if queue > self.long()
            && let Some(delivered) = self.delivered()
        {
            pipe = pipe.min(delivered * self.base());
        }
        self.phase = Phase::Drain(Drain {
            since: now,
            window: self.window,
            queue,
            curve,
            dry: None,
            least: f64::INFINITY,
            seen: 0,
        });
        self.set(DRAIN * pipe);
    }

    fn draining(&mut self, mut drain: Drain, now: Time, sample: Option<Span>) {
        let slack = 2.0 * self.packet;
        if drain.dry.is_none() && self.clock.in_flight() as f64 <= self.window + slack {
            drain.dry = Some(now);
        }
        let late = now.since(drain.since).as_secs_f64() > DRAIN_ROUNDS * self.base() + drain.queue;
        let base = self.base();
        if let (Some(dry), Some(sample)) = (drain.dry, sample) {
            let sent = now.as_nanos().saturating_sub(sample.as_nanos());
            if sent >= dry.as_nanos() {
                drain.least = drain.least.min(sample.as_secs_f64() - base);
                drain.seen += 1;
            }
            let watched = now.since(dry).as_secs_f64() > 1.25 * base + drain.least.min(1.0);
            if drain.seen >= 3 && watched {
                self.drained(drain, now);
                return;
            }
        }
        self.phase = Phase::Drain(drain);
        if late {
            drain.least = drain.least.min(self.path.standing());
            self.drained(drain, now);
        }
    }

    fn drained(&mut self, drain: Drain, now: Time) {
        self.path.drained(now);
        self.long_rounds = 0;
        self.step = 0;
        let pipe = self.window / DRAIN;
        let gone = drain.least < self.target().max(OTHERS * drain.queue);
        if gone {
            self.phase = Phase::Alone;
            self.longest = drain.least.max(0.0);
            self.set(pipe * (1.0 + self.target() / self.base()).min(1.5));
            if drain.window > 1.2 * self.window {
                self.expected = (drain.window, EXPECTED_ROUNDS);
                self.fell = true;
                self.fell_to = self.window;
            }
            self.capacity = self.capacity.max(self.rate());
        } else {
            let window = drain.window / self.packet;
            let most = (self.capacity * self.base() / self.packet).max(window);
            self.phase =
                Phase::Competing(drain.curve.unwrap_or_else(|| Curve::new(now, window, most)));
            self.set(drain.window);
        }
    }

    // --- start ---------------------------------------------------------------------------------

    /// There is a queue: what it delivers is what the path carries.
    fn climbed(&mut self) {
        let base = self.base();
        let measured = self
            .delivered()
            .map_or(0.5 * self.window, |rate| rate * base);
        self.phase = Phase::Alone;
        self.step = SOONER;
        let window = measured.min(self.window).max(0.25 * self.window);
        self.set(window);
    }

    fn cruise_at(&mut self, rate: f64) {
        self.phase = Phase::Alone;
        self.step = SOONER;
        let base = self.base();
        self.set(rate * base + 4.0 * self.packet);
        self.capacity = self.capacity.max(rate);
    }

    fn starting(&mut self, now: Time) {
        match self.phase {
            Phase::Start => {
                let smooth = self.path.standing() < SMOOTH;
                if let Some(shown) = self.train.on_acks_done(now, smooth) {
                    match shown {
                        Some(capacity) => {
                            self.phase = Phase::Try {
                                since: now,
                                back: None,
                                capacity,
                            };
                            self.set(FIRST * capacity * self.base() + 4.0 * self.packet);
                        }
                        None => self.phase = Phase::Climb,
                    }
                    // What the train has lost, it has lost as a burst.
                    self.round.lost = 0;
                    self.round.packets = 0;
                    self.blind_until = now + self.rtt() + self.rtt();
                } else if let Some(path) = self.remembered() {
                    self.unconfirmed = true;
                    let window = REMEMBERED * path.rate * self.base();
                    self.set(self.window.max(window));
                } else if self.path.standing() > CLIMB_QUEUE * self.base() && !self.train.is_out() {
                    self.climbed();
                }
            }
            Phase::Climb => {
                let full =
                    self.path.standing() > (CLIMB_QUEUE * self.base()).max(2.0 * self.target());
                if full || self.window >= self.threshold {
                    self.threshold = f64::INFINITY;
                    if full {
                        self.climbed();
                    } else {
                        self.phase = Phase::Alone;
                    }
                }
            }
            Phase::Try {
                back: Some(back),
                capacity,
                ..
            } if now.since(back).as_secs_f64() >= JUDGED * self.base() => {
                if self.path.standing() > 2.0 * self.target() {
                    let rate = self.clock.rate(now.since(back)).unwrap_or(FIRST * capacity);
                    self.cruise_at(rate.min(FIRST * capacity));
                } else {
                    let known = self
                        .remembered()
                        .map_or(capacity, |path| path.rate.min(capacity));
                    self.cruise_at(SECOND * known.max(FIRST * capacity));
                }
            }
            _ => {}
        }
    }

    /// Whether losses now come from a full queue.
    fn queue_is_full(&self) -> bool {
        let queue = self.path.standing();
        queue > LOSS_TARGETS * self.target() && queue >= LOSS_FULL * self.longest
    }
}

impl Controller for Law {
    fn on_sent(&mut self, packet: Sent) {
        let silent = packet.now.since(self.last_acked).as_secs_f64();
        let waiting = self.clock.in_flight() > 0;
        self.last_sent = packet.now;
        self.clock.on_sent(packet.bytes);
        self.round.most_in_flight = self.round.most_in_flight.max(self.clock.in_flight() as f64);
        if self.path.base().is_some() && matches!(self.phase, Phase::Start) {
            self.train.on_sent(packet, self.packet);
        }
        if !waiting {
            // The silence before a new flight was idleness.
            self.last_acked = packet.now;
            self.last_frame = packet.now + self.rtt();
        } else if silent > DARK * self.rtt().as_secs_f64() && self.path.base().is_some() {
            let packets = self.dark.map_or(0, |(packets, _)| packets);
            if packets < DARK_MOST {
                self.dark = Some((
                    packets + 1,
                    self.clock.in_flight() as f64 + 2.0 * self.packet,
                ));
            }
        }
    }

    fn on_acked(&mut self, packet: &Acked) {
        self.clock.on_acked(packet.bytes);
        self.path.on_acked(packet);
        self.train.on_acked(packet);
        self.last_acked = packet.now;
        self.round.acked += packet.bytes;
        self.round.packets += 1;
        self.round.app_limited |= packet.app_limited;
        let grows = match self.phase {
            Phase::Start => !self.train.is_out(),
            Phase::Climb => true,
            _ => false,
        };
        if grows && !packet.app_limited {
            self.window += CLIMB * packet.bytes as f64;
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
        let silence = now.since(self.last_frame).as_secs_f64();
        self.last_frame = now;
        self.round.gap = self.round.gap.max(silence);
        self.usual_gap += 0.02 * (silence.min(self.base()) - self.usual_gap);
        self.last_acked = now;
        if self.dark.take().is_some() {
            self.round.gap = 0.0;
            self.clock.restart();
            self.dark_until = now + self.rtt() + self.rtt();
        }
        let near = 0.5 * self.target();
        let sample = self.path.on_acks_done(now, near);
        let base = self.path.base().unwrap_or(self.initial_rtt);
        self.clock.on_acks_done(now, end.app_limited, base);
        self.round.app_limited |= end.app_limited;
        let queue = self.path.standing();
        self.round.least_queue = Some(
            self.round
                .least_queue
                .map_or(queue, |least| least.max(queue)),
        );
        match self.phase {
            Phase::Drain(drain) => self.draining(drain, now, sample),
            _ => self.starting(now),
        }
    }

    fn on_lost(&mut self, packet: Lost) {
        self.round.lost += 1;
        let much = self.round.lost as f64 > 2.0 * self.losses.limit() * self.round.packets as f64;
        let starting = matches!(self.phase, Phase::Start | Phase::Climb | Phase::Try { .. });
        let served = packet.now >= self.dark_until && !starting && !much && !self.queue_is_full();
        self.clock.on_lost(packet.bytes, served);
        self.train.on_lost();
    }

    fn on_congestion(&mut self, event: &Congestion) {
        if event.persistent {
            self.threshold = (0.5 * self.window).max(2.0 * self.packet);
            self.set(2.0 * self.packet);
            self.phase = Phase::Climb;
            self.losses.restart();
            self.recovery_from = Some(event.now);
            return;
        }
        if self.recovery_from.is_some_and(|from| event.sent <= from) || event.now < self.dark_until
        {
            return;
        }
        if !event.marked && !self.queue_is_full() {
            return;
        }
        self.recovery_from = Some(event.now);
        if self.unconfirmed {
            self.memory.forget();
            self.unconfirmed = false;
        }
        self.step = 0;
        let share = if event.marked { BETA_MARK } else { BETA };
        match &mut self.phase {
            Phase::Competing(curve) => {
                let window = curve.cut(event.now, self.window / self.packet, share);
                self.set(window * self.packet);
            }
            Phase::Alone => {
                let pipe = self.window * self.base() / self.standing_rtt();
                self.set((share * self.window).max(pipe));
            }
            Phase::Climb => self.climbed(),
            // What the train meets, it meets as a burst.
            Phase::Start | Phase::Try { .. } | Phase::Drain(_) => {}
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
        let window = self
            .dark
            .map_or(self.window, |(_, window)| window.max(self.window));
        window.max(2.0 * self.packet) as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of bytes per second"
    )]
    fn pacing_rate(&self) -> Option<u64> {
        if self.dark.is_some() {
            return Some((DARK_PACKETS * self.packet / self.base()) as u64);
        }
        let rate = match self.phase {
            Phase::Start if !self.train.is_out() => return Some(train::RATE),
            Phase::Start => self.window / self.base(),
            Phase::Try { capacity, .. } => FIRST * capacity,
            Phase::Climb => CLIMB_PACE * self.window / self.rtt().as_secs_f64(),
            Phase::Alone | Phase::Drain(_) => {
                let gain = (PACE / self.round.filled.max(0.1)).min(PACE_MOST);
                gain * self.rate()
            }
            Phase::Competing(_) => 1.25 * self.window / self.rtt().as_secs_f64(),
        };
        Some(rate.max(2.0 * self.packet / self.standing_rtt()) as u64)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

//! The satellite controller: rate-based, with a standing queue of a few packets
//! as its only target.
//!
//! `docs/model.md` derives it. In short:
//!
//! - [`train`]: the first full packets leave back to back; the spacing of their
//!   acknowledgements is the capacity of the bottleneck. One round trip after the
//!   first byte the sender knows the link and need not double its window up to it.
//! - [`queue`]: how much of the round-trip time is standing queue.
//! - [`start`]: what the train has shown is tried, then believed; where it shows nothing, and
//!   wherever the path has room for more than is known, slow start.
//! - [`cruise`]: pace at the rate at which the path delivers, corrected so
//!   that the own share of the standing queue becomes [`TARGET`] times the square
//!   root of the pipe, and raised while no queue stands.
//! - [`losses`]: a packet lost by the radio counts as carried; what is lost less often when less
//!   is sent was lost for want of room.
//! - [`interruption`]: blackouts, and packets that were held.
//! - [`drain_probe`]: now and then the queue is let run dry, which shows the base round trip, and
//!   whether what was taken for a queue is only a longer path.
//! - [`competitive_mode`]: when someone else keeps the queue full, follow RFC 9438 so that
//!   neither side starves.
//!
//! Idle time changes nothing: two ends that own the bottleneck keep what they know. [`constants`]
//! has every number, with its unit and what it rests on.

mod constants;
mod train;
mod queue;
mod drain_probe;
mod losses;
mod start;
mod cruise;
mod interruption;
mod competitive_mode;

use bentpipe_units::{Span, Time};

use crate::convert::whole;
use crate::delivery::DeliveryRate;
use crate::resume::PathMemory;
use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};
use competitive_mode::CompetitiveMode;
use constants::*;
use drain_probe::DrainProbe;
use losses::Losses;
use queue::Queue;
use train::Train;

/// What the controller is doing.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Nothing is known yet, or only what was remembered: the train is out.
    Start,
    /// The train's rate is being tried since a moment, and has been coming back since another.
    Trial {
        since: Time,
        back: Option<Time>,
        capacity: f64,
    },
    /// The train showed nothing that can be believed: the window grows until a queue stands, as
    /// in slow start (RFC 9002, section 7.3.1). The round trip is so long on average without one.
    SlowStart { average: Span },
    /// Nothing came through for long: two packets, until something does. Then what the path
    /// carried before is tried again.
    Reopen { capacity: f64 },
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
    clock: DeliveryRate,
    queue: Queue,
    competitive: CompetitiveMode,
    /// Bytes per second that the path delivers to this flow.
    rate: f64,
    /// Bytes per second that the path was seen to deliver at best, forgotten slowly.
    capacity: f64,
    capacity_at: Time,
    /// When the queue grew beyond what the controller makes itself.
    rate_fall_since: Option<Time>,
    /// Measurements of packets sent before then are of an earlier rate.
    hold_until: Time,
    /// Rounds of cruise.
    rounds: u32,
    /// Index into [`PROBE_GAINS`].
    probe_step: usize,
    /// Rounds without a queue at this probe_step.
    rounds_without_queue: u32,
    /// Whether a queue, a mark or losses have shown that the path carries no more.
    limit_seen: bool,
    round: Round,
    drain_probe: DrainProbe,
    last_sent: Time,
    last_acked: Time,
    smoothed_rtt: Option<Span>,
    blackout: Option<Blackout>,
    /// Losses told until then are of packets that left in a blackout.
    blackout_losses_until: Time,
    /// Bytes acknowledged and lost by the latest ACK frame.
    frame: (u64, u64),
    /// Packets sent until then left before slow start.
    slow_start_from: Time,
    losses: Losses,
    /// Rate before a trial of less.
    untried: f64,
    /// Rounds in which the rate is raised by the first steps only.
    careful: u32,
    /// The rate was remembered, and has not been confirmed yet.
    resumed: bool,
    /// Congestion of packets sent until then has been answered.
    recovery_from: Option<Time>,
    /// Mean time between ACK frames, seconds.
    ack_interval: f64,
    last_frame: Time,
    /// When acknowledgements came again after a silence, and how long that was.
    silence_end: Time,
    silence: Span,
    /// Packets that were held, or left behind them, are told of until then.
    held_until: Time,
    /// Share of the target that marks have left.
    marked_target: f64,
}

/// One round trip's account.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    /// Ends with the acknowledgement of a packet sent after this.
    started: Time,
    acked: u64,
    lost: u64,
    acked_packets: u64,
    lost_packets: u64,
    /// Bytes acknowledged in the round before.
    acked_before: u64,
    /// Loss share of the round before.
    loss: f64,
    queued: bool,
    app_limited: bool,
}

#[derive(Debug, Clone, Copy)]
struct Blackout {
    probes: u32,
    /// Window that lets the next probe out.
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
            clock: DeliveryRate::default(),
            queue: Queue::default(),
            competitive: CompetitiveMode::default(),
            rate: 0.0,
            capacity: 0.0,
            capacity_at: Time::ZERO,
            rate_fall_since: None,
            hold_until: Time::ZERO,
            rounds: 0,
            probe_step: 0,
            rounds_without_queue: 0,
            limit_seen: false,
            round: Round::default(),
            drain_probe: DrainProbe::default(),
            last_sent: Time::ZERO,
            last_acked: Time::ZERO,
            smoothed_rtt: None,
            blackout: None,
            blackout_losses_until: Time::ZERO,
            frame: (0, 0),
            slow_start_from: Time::ZERO,
            losses: Losses::default(),
            untried: 0.0,
            careful: 0,
            resumed: false,
            recovery_from: None,
            ack_interval: 0.0,
            last_frame: Time::ZERO,
            silence_end: Time::ZERO,
            silence: Span::ZERO,
            held_until: Time::ZERO,
            marked_target: 1.0,
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
        let own = self.marked_target * TARGET * (self.packet / pipe).sqrt() / (share * share)
            * self.pipe();
        own.max(MIN_TARGET * self.rate)
            .min(MAX_TARGET * self.pipe())
            .max(self.ack_wait() * self.rate)
    }

    /// Seconds that packets wait for their acknowledgement where a timer sends it, not the
    /// packet that completes the number asked for: no sample is without it.
    fn ack_wait(&self) -> f64 {
        let few = self.pipe() < 2.0 * ACK_PACKETS * self.packet;
        if few && self.ack_interval * self.rate < ACK_PACKETS * self.packet {
            self.ack_interval.min(0.5 * self.base())
        } else {
            0.0
        }
    }

    /// Own bytes that do stand in the queue.
    fn standing(&self) -> f64 {
        self.rate * self.queue.standing()
    }

    /// Whether losses now come from a full queue.
    fn queue_is_long(&self) -> bool {
        self.standing() > 1.6 * self.target() + 2.0 * self.packet
    }

    fn rtt(&self) -> Span {
        self.smoothed_rtt.unwrap_or(self.initial_rtt)
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
            && missed.min(room) > (PAUSE * self.pipe()).max(MIN_PAUSE * self.rate)
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
            self.last_frame = packet.now + self.rtt();
        } else if silent > BLACKOUT_ROUND_TRIPS * self.rtt().as_secs_f64()
            && self.queue.base().is_some()
        {
            self.probe_blackout();
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
        self.round.acked_packets += 1;
        self.round.acked += packet.bytes;
        let growth = match self.phase {
            Phase::Start if !self.train.is_out() => 1.0,
            Phase::SlowStart { .. } => SLOW_START_GROWTH,
            _ => 0.0,
        };
        if !packet.app_limited
            && 2.0 * self.clock.in_flight() as f64 >= self.start_window - 2.0 * self.packet
        {
            self.start_window += growth * packet.bytes as f64;
        }
        self.smoothed_rtt = Some(packet.smoothed_rtt);
        if let Phase::Trial { since, back, .. } = &mut self.phase
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
        if self.blackout.take().is_some() {
            self.clock.restart();
            self.hold(now);
            self.blackout_losses_until = now + self.rtt() + self.rtt();
        }
        self.notice_silence(now);
        self.last_frame = now;
        self.queue.on_acks_done(now, self.rtt());
        let rtt = self.queue.base().unwrap_or(self.initial_rtt);
        self.clock.on_acks_done(now, end.app_limited, rtt);
        self.round.app_limited |= end.app_limited;
        self.notice_held_packets(now);
        if self.standing() > 0.5 * self.target() {
            self.round.queued = true;
            self.probe_step = 0;
        }
        self.limit_seen |= self.phase == Phase::Cruise && self.queue_is_long();

        if self.phase == Phase::Cruise {
            self.cruise(now, end.app_limited);
        } else {
            self.start(now);
        }
    }

    fn on_lost(&mut self, packet: Lost) {
        self.frame.1 += packet.bytes;
        // What a long queue drops, the queue itself answers for.
        self.round.lost_packets += u64::from(!self.queue_is_long());
        // A packet lost by the radio has used the transmitter. One that found the queue
        // full, that left in a blackout, or that is one of a whole burst has not.
        let congestion = self.queue_is_long()
            || matches!(self.phase, Phase::SlowStart { .. })
            || self.round.loss > HIGH_LOSS.min(2.0 * self.losses.limit())
            || self.losses.is_trying()
            || packet.now < self.blackout_losses_until
            || self.frame.1 > BURST * self.frame.0.max(1);
        self.round.lost += packet.bytes;
        self.clock.on_lost(packet.bytes, !congestion);
        self.train.on_lost();
    }

    fn on_congestion(&mut self, event: &Congestion) {
        let queue = self.queue_is_long();
        if queue || event.marked {
            self.limit_seen = true;
            self.probe_step = 0;
            self.round.queued = true;
        }
        self.competitive.on_congestion();
        let starting = match self.phase {
            Phase::Start => self.rate == 0.0 && !self.train.is_out(),
            // A short queue shows by nothing but its losses.
            Phase::SlowStart { .. } => self.loses_much(),
            _ => false,
        };
        let answered = (self.recovery_from).is_some_and(|from| event.sent <= from);
        if event.persistent && !answered {
            self.recovery_from = Some(event.now);
            self.on_persistent_congestion(event.now);
        } else if starting {
            self.leave_slow_start(event.now);
        }
        if event.marked && !answered && self.phase == Phase::Cruise {
            self.recovery_from = Some(event.now);
            if queue {
                self.rate = (MARK_SHARE * self.rate).max(self.packet);
                self.hold(event.now);
            }
            self.marked_target = (MARK_TARGET * self.marked_target).max(LEAST_MARKED_TARGET);
        }
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes as f64;
    }

    fn window(&self) -> u64 {
        let own = match self.phase {
            Phase::Start if self.rate == 0.0 => self.start_window,
            Phase::SlowStart { .. } => self.start_window,
            Phase::Reopen { .. } => 0.0,
            _ => {
                self.pipe() * (1.0 + WINDOW_MARGIN + self.probe())
                    + 2.0 * self.target()
                    + WINDOW_MARGIN_PACKETS * self.packet
            }
        };
        let window = whole(own.max(self.competitive.window()).max(2.0 * self.packet));
        self.blackout
            .map_or(window, |blackout| window.max(blackout.window))
    }

    fn pacing_rate(&self) -> Option<u64> {
        if self.blackout.is_some() {
            return Some(whole(BLACKOUT_PROBES * self.packet / self.base()));
        }
        let own = match self.phase {
            Phase::Start if !self.train.is_out() => return Some(TRAIN_RATE),
            Phase::Start if self.rate == 0.0 => self.start_window / self.base(),
            Phase::SlowStart { .. } => self.start_window / self.base(),
            Phase::Start | Phase::Trial { .. } | Phase::Reopen { .. } => self.rate,
            Phase::Cruise => self.rate * self.gain(),
        };
        let competitive = self.competitive.window() * 1.05 / self.rtt().as_secs_f64();
        let least = 2.0 * self.packet / self.base();
        Some(whole(own.max(competitive).max(least)))
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

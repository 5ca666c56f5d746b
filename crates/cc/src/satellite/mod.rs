//! The satellite controller: rate-based, with a standing queue of a few packets
//! as its only target.
//!
//! `docs/model.md` derives it. In short:
//!
//! - [`train`]: the first full packets leave back to back; the spacing of their
//!   acknowledgements is the capacity of the bottleneck. One round trip after the
//!   first byte the sender knows the link and need not double its window up to it.
//! - [`queue`]: how much of the round-trip time is standing queue.
//! - Cruise (this file): pace at the rate at which the path delivers, corrected so
//!   that the own share of the standing queue becomes [`TARGET`] times the square
//!   root of the pipe. Losses do not enter: a packet lost by the radio counts as
//!   carried. Only losses with a queue before them count as what they are.
//! - [`drain_probe`]: now and then the queue is let run dry, which shows the base round trip, and
//!   whether what was taken for a queue is only a longer path.
//! - [`competitive_mode`]: when someone else keeps the queue full, follow RFC 9438 so that
//!   neither side starves.
//!
//! Idle time changes nothing: two ends that own the bottleneck keep what they know.

mod train;
mod queue;
mod drain_probe;
mod losses;
mod competitive_mode;

use bentpipe_units::{Span, Time};

use crate::convert::whole;
use crate::delivery::DeliveryRate;
use crate::resume::{Path, PathMemory};
use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};
use competitive_mode::CompetitiveMode;
use drain_probe::DrainProbe;
use losses::{Losses, Verdict};
use queue::Queue;
use train::{Shown, Train};

/// Own packets in the standing queue, in units of the square root of the packets
/// that fill the pipe: 9 of 1000 on GEO at 20 Mbit/s, 2 of 50 at 10 Mbit/s and
/// 60 ms. The square root makes flows of one bottleneck equal (`docs/model.md`).
///
/// A flow that has less of the path than it saw there, because others share it, aims
/// for more by the square of that ratio: this is what makes shares equal soon.
const TARGET: f64 = 0.3;
/// Least target, seconds of queue: timestamps of a busy machine are off by as much.
const MIN_TARGET: f64 = 0.002;
/// Largest target, share of the own pipe.
const MAX_TARGET: f64 = 0.12;
/// Time constant with which the highest rate seen is forgotten, seconds. From the runs of
/// `docs/model.md`.
const CAPACITY_DECAY: f64 = 40.0;
/// Share of the queue's error corrected per round trip. With the measurement one
/// to two round trips old, more than about 0.4 would oscillate.
const QUEUE_GAIN: f64 = 0.3;
/// Shares of the delivered rate that are tried beyond it while no queue stands, step by step.
/// Slow at first: a queue of 25 packets is 2.5 % of a GEO pipe (Endres et al.).
const PROBE_GAINS: [f64; 7] = [0.0, 0.01, 0.03, 0.08, 0.15, 0.25, 0.5];
/// Rounds without a queue before the next of these steps; what is tried shows after two.
const PROBE_ROUNDS: [u32; 7] = [2, 4, 2, 2, 2, 2, 2];
/// First rate after the packet train, share of what the train showed: the
/// train saw 20 packets, the rest may belong to others.
const TRIAL_SHARE: f64 = 0.75;
/// Rate after a trial that made no queue, share of what the train showed.
const CRUISE_SHARE: f64 = 0.97;
/// How long the trial rate must have been coming back before it is judged, share of a round trip.
const TRIAL_TIME: f64 = 0.05;
/// Rounds without a queue until another train asks whether the path carries more, and most of
/// them: each train that shows no more doubles them.
const TRAIN_ROUNDS: u32 = 6;
const MOST_TRAIN_ROUNDS: u32 = 48;
/// No train is sent to a pipe of fewer packets, nor beyond this share of the train's own rate.
const TRAIN_PIPE: f64 = 40.0;
const TRAIN_MOST_SHARE: f64 = 0.5;
/// A train that shows so much more than the rate is tried.
const TRAIN_MORE: f64 = 1.25;
/// A base round trip that falls by more seconds than this with a train was not known before it.
const BASE_NOISE: f64 = 0.001;
/// Rounds in which the rate that a train has shown is given up when acknowledgements turn out
/// to come in slots, or through jitter. From the runs of `docs/model.md`.
const TRAIN_DOUBT_ROUNDS: u32 = 12;
/// Growth of the window in a round of slow start, share of itself. Doubling would fill a queue
/// of one bandwidth-delay product before the first of it is seen.
const SLOW_START_GROWTH: f64 = 0.75;
/// Standing queue that ends slow start, share of the base round trip.
const FULL_QUEUE: f64 = 0.25;
/// Growth of the average round trip that ends slow start, share of the base round trip.
const EXIT_RTT_GROWTH: f64 = 0.1;
/// A path remembered from an earlier connection is tried at half its rate (RFC 9959, section 4.3).
const RESUME_SHARE: f64 = 0.5;
/// A pause in which this share of the pipe could have left and did not: the sender had
/// too little, and what comes back a round trip later says nothing about the path.
const PAUSE: f64 = 0.125;
/// Shortest pause of a sender, seconds; a shorter one is a late timer's.
const MIN_PAUSE: f64 = 0.025;
/// Share of its pipe that a round must have carried for the rate to be remembered.
const USED: f64 = 0.5;
/// Share of its rate that a round must have carried to confirm it: a tenth is the round's own measure's error.
const CONFIRMED: f64 = 0.9;
/// A flow with less than this share of the highest rate that it had, and a queue, checks whether
/// the path has become longer.
const REDUCED_RATE: f64 = 0.9;
/// A standing queue of this share of the base round trip is beyond the own target: others fill it.
const FOREIGN_QUEUE: f64 = 0.2;
/// Whoever has no more in flight than so many times its pipe ...
const OWN_QUEUE_GONE: f64 = 1.15;
/// ... and so many packets, for acknowledgements come in groups, has no share in a foreign queue.
const OWN_QUEUE_GONE_PACKETS: f64 = 12.0;
/// A standing queue of this share of the base round trip is beyond what the controller itself
/// makes: the path carries less than it did.
const RATE_FALL_QUEUE: f64 = 0.15;
/// Shortest interval over which a fallen rate is measured. Less may be the gap between two
/// satellites, of some 40 ms.
const MIN_RATE_INTERVAL: Span = Span::from_millis(100);
/// Window beyond the pipe, share of the pipe: acknowledgements come in groups.
const WINDOW_MARGIN: f64 = 0.10;
/// The same in packets: two groups of ten, and some.
const WINDOW_MARGIN_PACKETS: f64 = 24.0;
/// And for a train on its way.
const TRAIN_ROOM: f64 = 20.0;
/// Losses beyond this share of a round are congestion whatever the queue looks like.
const HIGH_LOSS: f64 = 0.2;
/// Fewer lost packets than this have no share to speak of.
const MIN_HIGH_LOSS_PACKETS: f64 = 8.0;
/// Losses told by one ACK frame are a burst when they are so many times the bytes that arrived.
const BURST: u64 = 2;
/// Packets that the peer acknowledges at once, less a few: ten are asked for at most.
const ACK_PACKETS: f64 = 8.0;
/// Share of a round trip without an acknowledgement that is a silence: packets are held.
const SILENCE: f64 = 0.25;
/// Share of the rate that is kept after a mark (RFC 8511).
const MARK_SHARE: f64 = 0.85;
/// And of the wanted queue: a mark says that the queue management wants a shorter one. At least
/// the second is left, and a round without a mark gives back the third.
const MARK_TARGET: f64 = 0.7;
const LEAST_MARKED_TARGET: f64 = 0.2;
const MARK_FORGOTTEN: f64 = 0.02;
/// Rounds in which a rate that was too high is not tried again but by the first step.
const CAREFUL_ROUNDS: u32 = 20;
/// From this share of it on.
const CAREFUL_FROM: f64 = 0.8;
/// The path is in a blackout after so many round trips without any acknowledgement.
const BLACKOUT_ROUND_TRIPS: f64 = 1.1;
/// Packets per round trip in a blackout: the first that comes through ends it without waiting
/// for a backed-off timer.
const BLACKOUT_PROBES: f64 = 8.0;
/// Most of these in a row: ten round trips. Then the probe timer (RFC 9002, section 6.2) is alone.
const MAX_BLACKOUT_PROBES: u32 = 80;

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
    /// It began at a moment, and has been coming back since another.
    SlowStart {
        average: Span,
        since: Time,
        back: Option<Time>,
    },
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
    /// Another train is on its way.
    training: bool,
    /// Rounds in a row without a queue, and after how many another train leaves.
    idle_queue_rounds: u32,
    train_after: u32,
    /// Whether the fall of the rate that is under way has been measured.
    fall_measured: bool,
    /// Whether the base round trip has stayed what it was since the train left.
    base_steady: bool,
    /// Congestion of packets sent until then has been answered.
    recovery_from: Option<Time>,
    /// Mean time between ACK frames, seconds.
    ack_interval: f64,
    last_frame: Time,
    /// When acknowledgements came again after a silence.
    silence_end: Time,
    /// Share of the target that marks have left.
    marked_target: f64,
}

/// One round trip's account.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    /// Ends with the acknowledgement of a packet sent after this.
    started: Time,
    count: u64,
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
            training: false,
            idle_queue_rounds: 0,
            train_after: TRAIN_ROUNDS,
            fall_measured: false,
            base_steady: true,
            recovery_from: None,
            ack_interval: 0.0,
            last_frame: Time::ZERO,
            silence_end: Time::ZERO,
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
        // Where the way is shorter than hosts are quick, what they do in one go is no queue of the path's.
        own.min(MAX_TARGET * self.pipe())
            .max(MIN_TARGET * self.rate)
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

    /// Whether this round has lost more than the radio would.
    fn loses_much(&self) -> bool {
        let Round { acked, lost, .. } = self.round;
        let lost = lost as f64;
        self.round.started > self.slow_start_from
            && lost > MIN_HIGH_LOSS_PACKETS * self.packet
            && lost > HIGH_LOSS * (acked as f64 + lost)
    }

    /// Whether so much queue stands that the path must be full.
    fn is_full(&self) -> bool {
        self.queue.standing() > FULL_QUEUE * self.base()
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
            acked_packets,
            lost_packets,
            started,
            ..
        } = self.round;
        self.round = Round {
            started: now,
            count: count + 1,
            acked_before: acked,
            loss: lost as f64 / (acked + lost).max(1) as f64,
            ..Round::default()
        };
        self.careful = self.careful.saturating_sub(1);
        self.marked_target = (self.marked_target + MARK_FORGOTTEN).min(1.0);
        if self.phase == Phase::Cruise
            && now >= self.blackout_losses_until.max(self.hold_until)
            && self.competitive.window() == 0.0
        {
            self.judge_losses(now, lost_packets, acked_packets + lost_packets);
        }
        if self.phase != Phase::Cruise {
            return;
        }
        self.remember(acked, now.since(started), app_limited);
        if app_limited {
            return;
        }
        self.rounds += 1;
        if self.rounds <= TRAIN_DOUBT_ROUNDS && self.queue.is_noisy() {
            self.start_slow_start(now, 2.0 * self.initial_window);
            return;
        }
        if queued {
            self.probe_step = 0;
            self.rounds_without_queue = 0;
        } else {
            self.rounds_without_queue += 1;
            if self.rounds_without_queue >= PROBE_ROUNDS[self.probe_step] {
                // What was carried once is tried sooner.
                let step = if self.rate < REDUCED_RATE * self.capacity {
                    2
                } else {
                    1
                };
                let near = self.rate > CAREFUL_FROM * self.untried;
                let most = if self.careful > 0 && near {
                    1
                } else {
                    PROBE_GAINS.len() - 1
                };
                self.probe_step = (self.probe_step + step).min(most);
                self.rounds_without_queue = 0;
            }
        }
        self.send_train(queued);
        self.competitive.on_round(&competitive_mode::Round {
            now,
            long_queue: self.queue.standing() > FOREIGN_QUEUE * self.base(),
            own_queue_gone: self.clock.in_flight() as f64
                <= OWN_QUEUE_GONE * self.pipe() + OWN_QUEUE_GONE_PACKETS * self.packet,
            in_flight: self.clock.in_flight() as f64,
            pipe: self.pipe(),
            rtt: self.rtt().as_secs_f64(),
            packet: self.packet,
        });
    }

    /// A round that carried most of the rate confirms it. Of one that carried less, what it carried is known;
    /// without more to send that is a floor.
    fn remember(&self, acked: u64, over: Span, app_limited: bool) {
        let carried = acked as f64 / over.as_secs_f64();
        let rate = if (acked as f64) < USED * self.pipe() {
            return;
        } else if carried >= CONFIRMED * self.rate {
            self.rate
        } else {
            let known = self.memory.get().filter(|_| app_limited);
            carried
                .max(known.map_or(0.0, |path| path.rate))
                .min(self.rate)
        };
        self.memory.save(Path {
            rate,
            rtt: self.queue.base().unwrap_or(self.initial_rtt),
        });
    }

    /// A round has ended; after some without a queue another train asks for more.
    fn send_train(&mut self, queued: bool) {
        let calm = !queued
            && self.careful == 0
            && !self.losses.is_trying()
            && self.competitive.window() == 0.0;
        if !calm {
            self.idle_queue_rounds = 0;
            if queued {
                self.train_after = TRAIN_ROUNDS;
            }
            return;
        }
        self.idle_queue_rounds += 1;
        if self.idle_queue_rounds >= self.train_after
            && self.pipe() >= TRAIN_PIPE * self.packet
            && self.rate < TRAIN_MOST_SHARE * train::RATE as f64
        {
            self.idle_queue_rounds = 0;
            self.training = true;
            self.train = Train::default();
        }
    }

    /// A later train has come back.
    fn on_later_train(&mut self, now: Time, shown: Option<Shown>) {
        self.training = false;
        if self.train.lost_share() > HIGH_LOSS {
            self.careful = CAREFUL_ROUNDS;
        } else if let Some(shown) = shown.filter(|shown| shown.rate > TRAIN_MORE * self.rate) {
            self.train_after = TRAIN_ROUNDS;
            self.on_train(now, shown);
            return;
        }
        self.train_after = (2 * self.train_after).min(MOST_TRAIN_ROUNDS);
    }

    /// Losses without a queue: the radio's, or those of a link that is full all the same?
    fn judge_losses(&mut self, now: Time, lost: u64, sent: u64) {
        match self.losses.on_round(lost, sent) {
            Verdict::None => {}
            Verdict::Try(share) => {
                self.untried = self.rate;
                self.probe_step = 0;
                self.rate = (share * self.rate).max(self.packet);
            }
            Verdict::Radio => self.rate = self.rate.max(self.untried),
            Verdict::Full => {
                self.probe_step = 0;
                self.careful = CAREFUL_ROUNDS;
                self.hold(now);
            }
        }
    }

    fn cruise_at(&mut self, now: Time, rate: f64) {
        if let Phase::Trial { capacity, .. } = self.phase {
            self.capacity = capacity;
            self.capacity_at = now;
        }
        self.phase = Phase::Cruise;
        self.rate = rate.max(self.packet);
        self.probe_step = 1;
        self.hold(now);
    }

    /// The next measurements still show the rate of before: one round trip to arrive,
    /// one to be measured over.
    fn hold(&mut self, now: Time) {
        self.hold_until = now + self.rtt() + self.rtt();
    }

    /// The train came back, and showed so much.
    fn on_train(&mut self, now: Time, shown: Shown) {
        if shown.doubtful {
            self.rate = shown.rate;
            self.start_slow_start(now, self.initial_window);
            return;
        }
        self.rate = self.confirmed().max(TRIAL_SHARE * shown.rate);
        self.phase = Phase::Trial {
            since: now,
            back: None,
            capacity: shown.rate,
        };
    }

    /// Bytes per second that the path has carried.
    fn confirmed(&self) -> f64 {
        match self.phase {
            Phase::Cruise => self.rate,
            _ => 0.0,
        }
    }

    /// Slow start, from the rate as it is known, or from a window of `least` bytes.
    fn start_slow_start(&mut self, now: Time, least: f64) {
        self.training = false;
        self.start_window = self.pipe().max(least);
        self.phase = Phase::SlowStart {
            average: self.rtt(),
            since: now,
            back: None,
        };
    }

    /// Nothing came through for long (RFC 9002, section 7.6).
    fn on_persistent_congestion(&mut self, now: Time) {
        if std::mem::take(&mut self.resumed) {
            self.memory.forget();
        }
        self.losses.restart();
        self.training = false;
        if self.phase == Phase::Cruise {
            // What came through before is tried as what a train has shown.
            self.probe_step = 0;
            let capacity = self.rate;
            self.rate = 0.0;
            self.on_train(
                now,
                Shown {
                    rate: capacity,
                    doubtful: false,
                },
            );
        } else {
            self.rate = 0.0;
            self.start_window = self.initial_window;
        }
    }

    /// There is a queue: what it delivers is what the path carries.
    fn leave_slow_start(&mut self, now: Time) {
        self.rounds = TRAIN_DOUBT_ROUNDS;
        let base = self.queue.base().unwrap_or(self.initial_rtt);
        let half = Span::from_nanos(base.as_nanos() / 2);
        // Before that less was sent than the path carries.
        let over = match self.phase {
            Phase::SlowStart {
                back: Some(back), ..
            } if now.since(back).as_secs_f64() >= TRIAL_TIME * self.base() => {
                half.min(now.since(back))
            }
            _ => half,
        };
        // When nothing could be measured yet: what this round has brought.
        let acked = self.round.acked.max(self.round.acked_before) as f64;
        let round = acked.max(2.0 * self.packet) / self.rtt().as_secs_f64();
        // Without losses all of the window was through (RFC 5681, section 3.1).
        let window = self.start_window / base.as_secs_f64();
        let unmeasured = if self.loses_much() { round } else { window };
        self.cruise_at(now, self.clock.rate(over).unwrap_or(unmeasured));
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
        if self.queue.base().is_some() && (self.phase == Phase::Start || self.training) {
            self.base_steady |= !self.train.has_begun();
            self.train.on_sent(packet, self.packet);
        }
        if !waiting {
            // The silence before a new flight was idleness.
            self.last_acked = packet.now;
            self.last_frame = packet.now + self.rtt();
        } else if silent > BLACKOUT_ROUND_TRIPS * self.rtt().as_secs_f64()
            && self.queue.base().is_some()
        {
            let probes = self.blackout.map_or(0, |blackout| blackout.probes);
            if probes < MAX_BLACKOUT_PROBES {
                let room = 2 * whole(self.packet);
                self.blackout = Some(Blackout {
                    probes: probes + 1,
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
        self.round.acked_packets += 1;
        self.round.acked += packet.bytes;
        let growth = match self.phase {
            Phase::Start if !self.train.is_out() => 1.0,
            Phase::SlowStart { .. } => SLOW_START_GROWTH,
            _ => 0.0,
        };
        if !packet.app_limited {
            self.start_window += growth * packet.bytes as f64;
        }
        self.smoothed_rtt = Some(packet.smoothed_rtt);
        if let Phase::Trial { since, back, .. } | Phase::SlowStart { since, back, .. } =
            &mut self.phase
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
        if now > self.last_frame {
            let interval = now.since(self.last_frame).as_secs_f64();
            if interval > (SILENCE * self.base()).max(MIN_RATE_INTERVAL.as_secs_f64()) {
                self.silence_end = now;
            }
            let interval = interval.min(self.base());
            self.ack_interval += 0.02 * (interval - self.ack_interval);
        }
        self.last_frame = now;
        let base_before = self.base();
        self.queue.on_acks_done(now, self.rtt());
        let rtt = self.queue.base().unwrap_or(self.initial_rtt);
        let busy = self.phase == Phase::Cruise && self.is_full();
        self.clock.on_acks_done(now, end.app_limited, busy, rtt);
        self.base_steady &= base_before - self.base() < BASE_NOISE;
        self.round.app_limited |= end.app_limited;
        if self.standing() > 0.5 * self.target() {
            self.round.queued = true;
            self.probe_step = 0;
        }

        match self.phase {
            Phase::Start => {
                if let Some(path) = self.remembered() {
                    self.rate = RESUME_SHARE * path.rate;
                    self.resumed = true;
                }
                if let Some(shown) = self.train.on_acks_done(now, rtt, self.base_steady) {
                    match shown {
                        Some(shown) => self.on_train(now, shown),
                        None => {
                            // What the train has lost, it has lost as a burst.
                            self.slow_start_from = self.last_sent;
                            self.round = Round {
                                started: self.last_sent,
                                count: self.round.count + 1,
                                ..Round::default()
                            };
                            self.start_slow_start(now, 2.0 * self.initial_window);
                        }
                    }
                } else if !self.train.is_out() && self.is_full() {
                    self.leave_slow_start(now);
                }
            }
            Phase::SlowStart {
                average,
                since,
                back,
            } => {
                // Slots and jitter do not change the average.
                let average = average.min(self.rtt());
                self.phase = Phase::SlowStart {
                    average,
                    since,
                    back,
                };
                let more = self.rtt().as_secs_f64() - average.as_secs_f64();
                let full = more > (EXIT_RTT_GROWTH * self.base()).max(2.0 * self.queue.noise());
                if full || self.is_full() {
                    self.leave_slow_start(now);
                }
            }
            Phase::Trial {
                back: Some(back),
                capacity,
                ..
            } if now.since(back).as_secs_f64() >= TRIAL_TIME * self.base() => {
                if self.queue_is_long() {
                    // Safe retreat (RFC 9959, section 4.4).
                    if std::mem::take(&mut self.resumed) {
                        self.memory.forget();
                    }
                    let shown = self.clock.rate(now.since(back));
                    self.cruise_at(now, shown.unwrap_or(self.rate).min(self.rate));
                } else {
                    let resumed = std::mem::take(&mut self.resumed);
                    let known = self
                        .remembered()
                        .filter(|_| resumed)
                        .map_or(capacity, |path| path.rate.min(capacity));
                    self.cruise_at(now, CRUISE_SHARE * known.max(TRIAL_SHARE * capacity));
                }
            }
            Phase::Trial { .. } => {}
            Phase::Cruise => {
                if self.training
                    && let Some(shown) = self.train.on_acks_done(now, rtt, self.base_steady)
                {
                    self.on_later_train(now, shown);
                }
                self.cruise(now, end.app_limited);
            }
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
        if event.persistent {
            self.on_persistent_congestion(event.now);
        } else if starting {
            self.leave_slow_start(event.now);
        }
        let answered = (self.recovery_from).is_some_and(|from| event.sent <= from);
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
            _ => {
                self.pipe() * (1.0 + WINDOW_MARGIN + PROBE_GAINS[self.probe_step])
                    + 2.0 * self.target()
                    + WINDOW_MARGIN_PACKETS * self.packet
                    + if self.training {
                        TRAIN_ROOM * self.packet
                    } else {
                        0.0
                    }
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
            Phase::Start if !self.train.is_out() => return Some(train::RATE),
            Phase::Start if self.rate == 0.0 => self.start_window / self.base(),
            Phase::SlowStart { .. } => self.start_window / self.base(),
            Phase::Start | Phase::Trial { .. } => self.rate,
            Phase::Cruise if self.training && !self.train.is_out() => train::RATE as f64,
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

impl Satellite {
    /// What a frame of acknowledgements changes once the path is known.
    fn cruise(&mut self, now: Time, app_limited: bool) {
        let rtt = self.queue.base().unwrap_or(self.initial_rtt);
        let long = now >= self.blackout_losses_until
            && self.competitive.window() == 0.0
            && self.queue.standing() > self.long_queue();
        if long {
            // The path carries less than it did. What the last quarter of a round trip (no gap
            // between two satellites) delivered is believed for half a round trip; after that we
            // have stopped sending, and what is delivered shows no more than that. Behind a
            // silence packets may have been held: then only what has come since is believed.
            self.rounds = TRAIN_DOUBT_ROUNDS;
            let began = *self.rate_fall_since.get_or_insert_with(|| {
                self.fall_measured = false;
                now
            });
            let half = Span::from_nanos(rtt.as_nanos() / 2);
            let quarter = Span::from_nanos(rtt.as_nanos() / 4).max(MIN_RATE_INTERVAL);
            let silent = self.silence_end + rtt + half >= now && self.silence_end > Time::ZERO;
            let (from, until, over) = if silent {
                let half = half.max(MIN_RATE_INTERVAL);
                (half, half + half, half)
            } else if self.queue.is_noisy() {
                (Span::ZERO, half, quarter.max(half))
            } else {
                (Span::ZERO, half, quarter)
            };
            let since = now.since(began);
            if since >= from
                && (since <= until || !self.fall_measured)
                && let Some(recent) = self.clock.rate(over)
            {
                self.fall_measured = true;
                self.rate = self.rate.min(recent).max(self.packet);
            }
            self.hold(now);
        } else if self.rate_fall_since.take().is_some() {
            self.clock.restart();
            self.drain_probe.restart();
        }
        if !app_limited
            && now >= self.hold_until
            && !self.losses.is_trying()
            && let Some(rate) = self.clock.rate(rtt)
        {
            // Without a queue it was the sender that was slow: its timers were late.
            let path = self.standing() > 0.5 * self.target();
            self.rate = if path { rate } else { rate.max(self.rate) }.max(self.packet);
        }
        // What the path once carried counts less and less.
        let since = now.since(self.capacity_at).as_secs_f64();
        self.capacity_at = now;
        self.capacity += (self.rate - self.capacity) * (since / CAPACITY_DECAY).min(1.0);
        self.capacity = self.capacity.max(self.rate);
        let verdict = self.drain_probe.on_acks_done(drain_probe::Observation {
            now,
            rtt,
            standing: self.queue.standing(),
            target: self.target() / self.rate,
            doubtful: self.round.queued && self.rate < REDUCED_RATE * self.capacity,
            urgent: self.competitive.suspects_competitor(),
            busy: !app_limited && self.competitive.window() == 0.0,
        });
        if let Some(verdict) = verdict {
            self.competitive
                .on_drain_probe(verdict == drain_probe::Verdict::Queue);
            if verdict == drain_probe::Verdict::LongerPath {
                self.queue.rebase();
                self.round.queued = false;
            }
        }
    }

    /// Seconds of queue beyond what the controller makes itself.
    fn long_queue(&self) -> f64 {
        (4.0 * self.target() / self.rate).max(RATE_FALL_QUEUE * self.base())
    }

    fn gain(&self) -> f64 {
        if let Some(gain) = self.drain_probe.gain(self.last_acked) {
            return gain;
        }
        let error = (self.target() - self.standing()) / self.pipe();
        (1.0 + QUEUE_GAIN * error).clamp(0.5, 2.0) + PROBE_GAINS[self.probe_step]
    }
}

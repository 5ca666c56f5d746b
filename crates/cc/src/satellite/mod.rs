//! The satellite controller: rate-based, with a standing queue of a few packets
//! as its only target.
//!
//! `docs/model.md` derives it. In short:
//!
//! - [`train`]: the first full packets leave back to back; the spacing of their
//!   acknowledgements is the capacity of the bottleneck. One round trip after the
//!   first byte the sender knows the link and need not double its window up to it.
//! - [`start`]: what the train has shown is tried; where it shows nothing, slow start.
//! - [`trial`]: whether the path carries what a train has shown, and, beside marks, whether anybody shares it.
//! - [`queue`]: how much of the round-trip time is standing queue, and what [`lasting_jitter`] is none.
//! - [`cruise`]: pace at the rate at which the path delivers, corrected so
//!   that the own share of the standing queue becomes [`TARGET`](constants::TARGET) times the square
//!   root of the pipe. A packet lost by the radio counts as carried; one that a long
//!   queue has dropped does not.
//! - [`rate_fall`]: what is believed where a longer queue stands than that.
//! - [`rate_steps`]: where the rate comes back within some round trips, what stays in flight for it.
//! - [`drain_probe`]: now and then the queue is let run dry, which shows the base round trip, and
//!   whether what was taken for a queue is only a longer path.
//! - [`raise_probe`]: where growth has stopped, a little more is sent for a moment, which shows whether what stands is a queue or jitter.
//! - [`on_demand`]: where the path gives what was asked for a while ago, it is asked for more.
//! - [`losses`]: whether losses without a queue are the radio's, by a trial of less.
//! - [`congestion`]: what losses, marks and long queues are answered with.
//! - [`stalls`]: hosts that stand still now and then.
//! - [`silence`]: when the acknowledgements stop for a while, and why.
//! - [`competitive_mode`]: when someone else keeps the queue full, follow RFC 9438 so that
//!   neither side starves.
//! - [`queue_losses`]: whether losses come when the queue stands high.
//! - [`marked_window`]: where a queue marks, or drops beside others, no more is in flight than CUBIC would have.
//! - [`window`]: what may be in flight by the rate, and by the marks.
//! - [`limits`]: window and pacing rate as the sender is told them.
//!
//! Idle time changes nothing: two ends that own the bottleneck keep what they know.

mod constants;
mod train;
mod start;
mod trial;
mod target;
mod stalls;
mod queue;
mod lasting_jitter;
mod brief_queue;
mod cruise;
mod rate_fall;
mod rate_steps;
mod drain_probe;
mod raise_probe;
mod on_demand;
mod losses;
mod congestion;
mod silence;
mod competitive_mode;
mod marked_window;
mod queue_losses;
mod window;
mod limits;

use bentpipe_units::{Span, Time};

use crate::convert::whole;
use crate::delivery::DeliveryRate;
use crate::resume::{Path, PathMemory};
use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};
use brief_queue::BriefQueue;
use competitive_mode::CompetitiveMode;
use constants::*;
use drain_probe::DrainProbe;
use limits::Limits;
use losses::Losses;
use marked_window::MarkedWindow;
use on_demand::OnDemand;
use queue::Queue;
use queue_losses::QueueLosses;
use raise_probe::RaiseProbe;
use rate_fall::RateFall;
use rate_steps::RateSteps;
use silence::Silence;
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
        /// The rate before, where marks leave less than is tried.
        before: Option<f64>,
    },
    /// The train showed nothing that can be believed: the window grows until a queue stands, as
    /// in slow start (RFC 9002, section 7.3.1). The round trip is so long on average without one.
    /// It began at a moment, and has been coming back since another. It may begin again because most of a window was lost: what stands until
    /// it comes back is of that.
    SlowStart {
        average: Span,
        since: Time,
        back: Option<Time>,
        again: bool,
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
    delivery: DeliveryRate,
    queue: Queue,
    brief_queue: BriefQueue,
    competitive: CompetitiveMode,
    /// Bytes per second that the path delivers to this flow.
    rate: f64,
    /// Bytes per second that the path was seen to deliver at best, forgotten slowly.
    capacity: f64,
    capacity_at: Time,
    rate_fall: Option<RateFall>,
    rate_steps: RateSteps,
    /// Measurements until then are of an earlier rate.
    hold_until: Time,
    /// What was sent until then was sent at it, on a short pipe.
    held_from: Option<Time>,
    /// Measurements until then have a stall of the own host in them.
    stalled_until: Time,
    /// Rounds of cruise.
    rounds: u32,
    /// Index into [`PROBE_GAINS`].
    probe_step: usize,
    /// Rounds without a queue at this step.
    rounds_at_step: u32,
    round: Round,
    drain_probe: DrainProbe,
    raise_probe: RaiseProbe,
    on_demand: OnDemand,
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
    /// Share of the packets that is lost, on average over [`LOSS_ROUNDS`] rounds.
    lost_share: f64,
    /// Bytes per second before the latest trial of less ([`losses`]).
    rate_before_trial: f64,
    /// Bytes per second that came through before it.
    delivered_before_trial: f64,
    /// Bytes per second that came through in the best round of slow start.
    most_delivered: f64,
    /// Rounds in which the rate is raised by the first steps only.
    careful_rounds: u32,
    /// The rate was remembered, and has not been confirmed yet.
    resumed: bool,
    /// Another train is on its way.
    training: bool,
    /// Trains that may still ask in slow start.
    start_trains: u32,
    /// Rounds in a row without a queue, and after how many another train leaves.
    rounds_without_queue: u32,
    train_after: u32,
    /// Slow start has ended for something that stood, and it is not known yet whether that was jitter.
    left_for_queue: bool,
    /// Slow start has ended with what its window was, and no measurement has come since: the path may carry less.
    unmeasured: bool,
    /// Congestion of packets sent until then has been answered.
    recovery_from: Option<Time>,
    silence: Silence,
    /// Share of the target that marks have left.
    marked_target: f64,
    marked: MarkedWindow,
    queue_losses: QueueLosses,
    /// What the sender is told, unless something has come that may change it.
    limits: Option<Limits>,
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
    /// Bytes in flight when it began: what is acknowledged in it met a queue of them.
    in_flight: u64,
    /// Loss share of the round before.
    loss: f64,
    queued: bool,
    /// Whether the path was full at some time of it, though the peer's window, or the application, was the limit.
    full: bool,
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
            delivery: DeliveryRate::default(),
            queue: Queue::default(),
            brief_queue: BriefQueue::default(),
            competitive: CompetitiveMode::default(),
            rate: 0.0,
            capacity: 0.0,
            capacity_at: Time::ZERO,
            rate_fall: None,
            rate_steps: RateSteps::default(),
            hold_until: Time::ZERO,
            held_from: None,
            stalled_until: Time::ZERO,
            rounds: 0,
            probe_step: 0,
            rounds_at_step: 0,
            round: Round::default(),
            drain_probe: DrainProbe::default(),
            raise_probe: RaiseProbe::new(),
            on_demand: OnDemand::default(),
            last_sent: Time::ZERO,
            last_acked: Time::ZERO,
            smoothed_rtt: None,
            blackout: None,
            blackout_losses_until: Time::ZERO,
            frame: (0, 0),
            slow_start_from: Time::ZERO,
            losses: Losses::default(),
            lost_share: 0.0,
            rate_before_trial: 0.0,
            delivered_before_trial: 0.0,
            most_delivered: 0.0,
            careful_rounds: 0,
            resumed: false,
            training: false,
            start_trains: START_TRAINS,
            rounds_without_queue: 0,
            train_after: TRAIN_ROUNDS,
            left_for_queue: false,
            unmeasured: false,
            recovery_from: None,
            silence: Silence::new(),
            marked_target: 1.0,
            marked: MarkedWindow::default(),
            queue_losses: QueueLosses::new(),
            limits: None,
        }
    }

    /// The round trip without any queue, seconds.
    fn base(&self) -> f64 {
        self.queue.base().unwrap_or(self.initial_rtt).as_secs_f64()
    }

    /// Seconds that a byte takes at the rate at which the path delivers; 0 as long as that is not known.
    fn per_byte(&self) -> f64 {
        if self.rate > 0.0 {
            1.0 / self.rate
        } else {
            0.0
        }
    }

    /// Whether the path brings less than it was seen to: it has become slower, or others share it.
    fn has_less_than_it_had(&self) -> bool {
        self.rate < REDUCED_RATE * self.capacity
    }

    /// Bytes that fill the pipe at the delivered rate.
    fn pipe(&self) -> f64 {
        (self.rate * self.base()).max(self.packet)
    }

    /// Own bytes that do stand in the queue.
    fn standing(&self) -> f64 {
        self.rate * self.queue.standing()
    }

    /// Whether losses now come from a full queue.
    fn queue_is_long(&self) -> bool {
        self.standing() > 1.6 * self.target() + 2.0 * self.packet
    }

    /// Whether so much queue stands, some of it ours, that the path must be full.
    fn is_full(&self) -> bool {
        let (standing, base) = (self.queue.standing(), self.base());
        // Of what is in flight, the share of the round trip that the queue takes waits in it.
        let own = self.delivery.in_flight() as f64 * standing / (base + standing);
        standing > FULL_QUEUE * base && own > FULL_QUEUE_PACKETS * self.packet
    }

    fn rtt(&self) -> Span {
        self.smoothed_rtt.unwrap_or(self.initial_rtt)
    }

    /// The path as remembered, if what is measured fits it.
    fn remembered(&self) -> Option<Path> {
        let rtt = self.queue.base()?;
        self.memory.like(rtt)
    }

    fn end_round(&mut self, now: Time) {
        let Round {
            acked,
            lost,
            queued,
            full,
            app_limited,
            count,
            acked_packets,
            lost_packets,
            started,
            in_flight,
            ..
        } = self.round;
        let delivered = acked as f64 / now.since(started).as_secs_f64().max(self.base());
        self.round = Round {
            started: now,
            count: count + 1,
            acked_before: acked,
            in_flight: self.delivery.in_flight(),
            loss: lost as f64 / (acked + lost).max(1) as f64,
            ..Round::default()
        };
        self.lost_share += (self.round.loss - self.lost_share) / LOSS_ROUNDS;
        self.most_delivered = self.most_delivered.max(delivered);
        self.brief_queue.on_round(self.pipe(), app_limited);
        let own = self.own_window();
        (self.marked).on_round(now, self.rtt().as_secs_f64(), self.packet, own);
        self.careful_rounds = self.careful_rounds.saturating_sub(1);
        (self.queue_losses).on_round(self.queue.standing_with_jitter());
        self.marked_target = (self.marked_target + MARK_FORGOTTEN).min(1.0);
        if self.phase == Phase::Cruise
            && now >= self.blackout_losses_until.max(self.hold_until)
            && self.competitive.window() == 0.0
        {
            self.judge_losses(now, lost_packets, acked_packets + lost_packets, delivered);
        }
        self.follow_steps(now, delivered, app_limited);
        if self.phase != Phase::Cruise {
            return;
        }
        if full && lost as f64 > MIN_HIGH_LOSS_PACKETS * self.packet {
            self.disprove_rate(now, delivered);
        }
        self.remember(acked, now.since(started), app_limited);
        self.ask_for_more(now, queued, app_limited || (lost > 0 && self.loses_few()));
        if app_limited {
            return;
        }
        self.rounds += 1;
        if self.is_train_in_doubt() || self.has_left_for_jitter(lost > 0) {
            self.start_slow_start(now, self.twice_arrived(acked as f64));
            return;
        }
        if queued {
            self.probe_step = 0;
            self.rounds_at_step = 0;
        } else {
            self.rounds_at_step += 1;
            if self.rounds_at_step >= PROBE_ROUNDS[self.probe_step] {
                // What was carried once is tried sooner.
                let step = if self.has_less_than_it_had() { 2 } else { 1 };
                let near = self.rate > CAREFUL_FROM * self.rate_before_trial;
                let most = if self.careful_rounds > 0 && near {
                    1
                } else {
                    PROBE_GAINS.len() - 1
                };
                self.probe_step = (self.probe_step + step).min(most);
                self.rounds_at_step = 0;
            }
        }
        self.send_train(queued);
        self.competitive.on_round(&competitive_mode::Round {
            now,
            long_queue: self.is_queue_foreign(in_flight),
            own_queue_gone: self.is_own_queue_gone(),
            in_flight: self.delivery.in_flight() as f64,
            pipe: self.pipe(),
            rtt: self.rtt().as_secs_f64(),
            packet: self.packet,
        });
        self.ask_when_held_back(now, queued, self.is_alone(lost > 0));
    }
}

impl Controller for Satellite {
    fn on_sent(&mut self, packet: Sent) {
        let silent = packet.now.since(self.last_acked).as_secs_f64();
        let waiting = self.delivery.in_flight() > 0;
        let pause = packet
            .now
            .since(std::mem::replace(&mut self.last_sent, packet.now));
        if !self.is_steady(pause) {
            self.limits = None;
        }
        self.silence.on_sent(packet.now, pause);
        if self.phase == Phase::Cruise {
            self.on_pause(packet.now, pause, packet.bytes as f64);
        }
        if !waiting && pause > LONG_PAUSE && self.phase == Phase::Cruise && self.may_send_train() {
            self.begin_train();
        }
        self.delivery.on_sent(packet.bytes);
        let begins = self.phase == Phase::Start || self.training;
        if let Some(base) = self.queue.base().filter(|_| begins) {
            self.train.on_sent(packet, self.packet, base);
        }
        if !waiting {
            // The silence before a new flight was idleness.
            self.last_acked = packet.now;
            self.silence.on_idle(packet.now + self.rtt());
            self.ask_behind_pause(packet.now, pause);
        } else if silent > BLACKOUT_ROUND_TRIPS * self.rtt().as_secs_f64()
            && self.queue.base().is_some()
        {
            let probes = self.blackout.map_or(0, |blackout| blackout.probes);
            if probes < MAX_BLACKOUT_PROBES {
                let room = 2 * whole(self.packet);
                self.blackout = Some(Blackout {
                    probes: probes + 1,
                    window: self.delivery.in_flight() + room,
                });
                self.limits = None;
            }
        }
        self.keep_limits();
    }

    fn on_acked(&mut self, packet: &Acked) {
        self.limits = None;
        self.silence.on_acked(packet.sent);
        self.delivery.on_acked(packet.bytes);
        self.queue.on_acked(packet);
        self.train.on_acked(packet);
        if self.last_acked != packet.now {
            self.last_acked = packet.now;
            self.frame = (0, 0);
        }
        self.frame.0 += packet.bytes;
        self.round.acked_packets += 1;
        self.round.acked += packet.bytes;
        self.brief_queue.on_acked(packet.bytes);
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
        self.follow_hold(packet);
        if packet.sent >= self.round.started {
            self.end_round(packet.now);
        }
    }

    fn on_acks_done(&mut self, end: AcksDone) {
        self.limits = None;
        let now = end.now;
        self.last_acked = now;
        if self.blackout.take().is_some() {
            self.delivery.restart();
            self.hold(now);
            self.blackout_losses_until = now + self.rtt() + self.rtt();
            match &mut self.phase {
                // What came back of a trial were the probes of the blackout: it begins again.
                Phase::Trial { since, back, .. } => (*since, *back) = (now, None),
                // A train across a blackout shows the blackout.
                Phase::Start if self.train.has_stopped(now) => {
                    let least = self.behind_cut_train(self.rtt());
                    self.start_slow_start_behind(now, least);
                }
                _ => {}
            }
        }
        if self.silence.on_acks_done(now, self.base(), self.rtt()) {
            self.hold_until_at_least(now + self.rtt() + MIN_RATE_INTERVAL);
        }
        // A queue grows by a packet at a time, which shows where few fill the pipe, and by the train.
        let grain = if self.rate == 0.0 {
            constants::queue::MAX_STEP
        } else if self.pipe() < TRAIN_PIPE * self.packet {
            Span::from_nanos(whole(2e9 * self.packet / self.rate))
        } else {
            Span::ZERO
        };
        let (per_byte, capacity) = (self.per_byte(), self.capacity.max(self.rate));
        (self.queue).on_acks_done(now, self.rtt(), grain, self.packet, per_byte, capacity);
        if let Some((sample, standing)) = self.queue.latest() {
            self.raise_probe.on_sample(now, sample, standing);
        }
        self.queue.set_jitter(self.raise_probe.floor());
        let rtt = self.queue.base().unwrap_or(self.initial_rtt);
        let busy = self.phase == Phase::Cruise && self.is_full();
        self.round.full |= busy && end.app_limited;
        let app_limited = end.app_limited && !self.overflows();
        self.delivery.on_acks_done(now, app_limited, busy, rtt);
        self.round.app_limited |= app_limited;
        let (standing, target, pipe) = (self.standing(), self.target(), self.pipe());
        let reduced = self.has_less_than_it_had();
        if (self.brief_queue).on_acks_done(standing, target, pipe, reduced) {
            self.round.queued = true;
            self.probe_step = 0;
        }

        match self.phase {
            Phase::Start => {
                if let Some(path) = self.remembered() {
                    self.rate = RESUME_SHARE * path.rate;
                    self.resumed = true;
                }
                // While nothing is known, what was held is tried all the same.
                let train = self.train.on_acks_done(now, rtt, None);
                if let Some(rate) = self.train.was_given_more(rtt) {
                    self.ask_on_demand(now, rate);
                } else if let Some(shown) = train {
                    match shown {
                        Some(mut shown) => {
                            shown.doubtful |= self.train.contradicts_itself(rtt);
                            self.on_train(now, shown);
                        }
                        None => {
                            let least = match self.train.is_whole() {
                                true => 2.0 * self.initial_window,
                                false => self.behind_cut_train(rtt),
                            };
                            self.start_slow_start_behind(now, least);
                        }
                    }
                    self.ask_in_slow_start();
                } else if !self.train.is_out() && self.is_full() && !self.is_held(now) {
                    self.leave_slow_start_for_queue(now);
                }
            }
            Phase::SlowStart { .. } => self.slow_start(now, app_limited),
            Phase::Trial { back: Some(_), .. } if self.others_show_in_trial() => {
                self.end_trial_beside_marks(now);
            }
            Phase::Trial {
                back: Some(back),
                capacity,
                ..
            } if now.since(back).as_secs_f64() >= self.trial_time() => {
                self.judge_trial(now, now.since(back), capacity);
            }
            Phase::Trial { .. } => {}
            Phase::Cruise => {
                if self.training
                    && let Some(shown) = (self.train).on_acks_done(now, rtt, self.silence.end())
                {
                    self.on_later_train(now, shown);
                }
                self.cruise(now, app_limited);
            }
        }
        self.keep_limits();
    }

    fn on_lost(&mut self, packet: Lost) {
        self.limits = None;
        self.frame.1 += packet.bytes;
        // A packet lost by the radio has used the transmitter. One that found the queue
        // full, that left in a blackout, or that is one of a whole burst has not; where jitter hides queues none counts.
        let congestion = self.queue_is_long()
            || matches!(self.phase, Phase::SlowStart { .. })
            || self.round.loss > HIGH_LOSS.min(2.0 * self.losses.limit())
            || self.losses.is_trying()
            || self.queue.has_lasting_jitter()
            || packet.now < self.blackout_losses_until
            || self.frame.1 > BURST * self.frame.0.max(1);
        // What a silence has taken along does not say how much the path carries.
        if !self.silence.explains_congestion(packet.now) {
            self.round.lost += packet.bytes;
            // What a long queue drops, the queue itself answers for.
            self.round.lost_packets += u64::from(!self.queue_is_long());
        }
        self.delivery.on_lost(packet.bytes, !congestion);
        self.train.on_lost();
    }

    fn on_forgotten(&mut self, bytes: u64) {
        self.limits = None;
        self.delivery.on_lost(bytes, false);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.limits = None;
        let queue = self.queue_is_long();
        if queue || event.marked {
            self.probe_step = 0;
            self.round.queued = true;
            self.rate_steps.on_congestion(event);
        }
        self.competitive.on_congestion(event.now, event.sent);
        let starting = match self.phase {
            // One by one the radio loses.
            Phase::Start => {
                let many = self.is_full() || self.loses_much();
                many && self.rate == 0.0 && !self.train.is_out()
            }
            Phase::SlowStart { .. } => self.ends_slow_start(event),
            _ => false,
        };
        if event.persistent {
            self.on_persistent_congestion(event.now);
        } else if starting {
            self.leave_slow_start(event.now);
        } else if event.marked || self.loses_few() {
            self.end_trial_beside_marks(event.now);
        }
        if self.phase == Phase::Cruise && !event.persistent {
            if event.marked {
                self.on_mark(event, queue);
            } else {
                self.on_queue_loss(event);
            }
        }
        self.keep_limits();
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.limits = None;
        self.packet = bytes as f64;
    }

    fn window(&self) -> u64 {
        self.limits().window
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.limits().rate)
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }
}

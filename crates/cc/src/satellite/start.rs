//! The start: what the packet train shows is tried; where it shows nothing, slow start.

use bentpipe_units::{Span, Time};

use super::constants::brief_queue::HIGH as HIGH_SAMPLE;
use super::constants::*;
use super::train::{Shown, Train};
use super::{Phase, Round, Satellite, constants};
use crate::Congestion;

impl Satellite {
    /// A round has ended; after some without a queue another train asks for more, sooner where the rate steps. Behind the stalls of hosts queues come and go; one that
    /// is gone when the round ends is none, for a flow that has what it had.
    pub(super) fn send_train(&mut self, queued: bool) {
        let stall = self.hosts_stall()
            && !self.has_less_than_it_had()
            && self.standing() <= HIGH_SAMPLE * self.target();
        let queued = queued && !stall;
        let calm = !queued
            && self.careful_rounds == 0
            && !self.losses.is_trying()
            && self.competitive.window() == 0.0;
        if !calm {
            self.rounds_without_queue = 0;
            if queued && self.marked.bytes().is_none() {
                self.train_after = TRAIN_ROUNDS;
            }
            return;
        }
        self.rounds_without_queue += 1;
        let after = match self.rate_steps.are_expected() {
            true => self.train_after.min(rate_steps::TRAIN_ROUNDS),
            false => self.train_after,
        };
        if self.rounds_without_queue >= after && self.may_send_train() {
            self.begin_train();
        }
    }

    /// Whether a train is no burden to the path, and could show more than is known.
    pub(super) fn may_send_train(&self) -> bool {
        self.pipe() >= TRAIN_PIPE * self.packet
            && self.rate < TRAIN_MOST_SHARE * constants::train::RATE as f64
    }

    pub(super) fn begin_train(&mut self) {
        self.rounds_without_queue = 0;
        self.training = true;
        self.train = Train::default();
    }

    /// Whether a later train is leaving.
    pub(super) fn sends_train(&self) -> bool {
        self.training && !self.train.is_out()
    }

    /// In slow start on a long path, behind a train of which nothing was lost, of which a round trip carries two, and that has shown nothing
    /// to be believed, as where acknowledgements are read late: another one asks, as long as less goes out than later trains ask for.
    pub(super) fn ask_in_slow_start(&mut self) {
        let base = self.queue.base().unwrap_or(self.initial_rtt);
        let slow =
            self.start_window < TRAIN_MOST_SHARE * constants::train::RATE as f64 * self.base();
        let starts = matches!(self.phase, Phase::SlowStart { .. }) && self.start_trains > 0;
        let fits = self.train.is_whole() && self.train.fits_twice(base);
        if starts && slow && self.is_long() && fits {
            self.start_trains -= 1;
            self.begin_train();
        }
    }

    /// It has come back: whether what it shows is tried, and slow start has ended. One that is in doubt shows the least that the path carries.
    pub(super) fn on_train_in_slow_start(&mut self, now: Time, shown: Option<Shown>) -> bool {
        self.training = false;
        let base = self.queue.base().unwrap_or(self.initial_rtt);
        let more = |shown: &Shown| shown.rate * self.base() > TRAIN_MORE * self.start_window;
        if let Some(shown) = shown.filter(more).filter(|_| self.train.is_whole()) {
            if !shown.doubtful && !self.train.contradicts_itself(base) {
                self.on_train(now, shown);
                return true;
            }
            self.start_window = self.start_window.max(shown.rate * self.base());
        }
        self.ask_in_slow_start();
        false
    }

    /// A later train has come back.
    pub(super) fn on_later_train(&mut self, now: Time, shown: Option<Shown>) {
        self.training = false;
        // Of a window in others' interest slow start is not the end.
        let marked = self.marked.bytes().is_some();
        let more =
            |shown: &Shown| shown.rate > TRAIN_MORE * self.rate && !(marked && shown.doubtful);
        if self.train.lost_share() > HIGH_LOSS {
            self.careful_rounds = CAREFUL_ROUNDS;
        } else if let Some(shown) = shown.filter(more) {
            if !marked {
                self.train_after = TRAIN_ROUNDS;
            }
            self.on_train(now, shown);
            return;
        }
        self.wait_for_train();
    }

    /// A train has shown nothing more: the next waits for twice as long.
    pub(super) fn wait_for_train(&mut self) {
        self.train_after = (2 * self.train_after).min(MOST_TRAIN_ROUNDS);
    }

    /// The train came back, and showed so much.
    pub(super) fn on_train(&mut self, now: Time, shown: Shown) {
        if shown.doubtful {
            self.rate = shown.rate;
            // What a short queue has dropped of it is told later.
            match self.is_full() {
                true => self.start_slow_start(now, self.initial_window),
                false => self.start_slow_start_behind(now, self.initial_window),
            }
            return;
        }
        let share = match self.train.is_sure() && self.phase != Phase::Cruise {
            true => SURE_TRIAL_SHARE,
            false => TRIAL_SHARE,
        };
        let marked = self.marked.bytes().is_some() && self.confirmed() > 0.0;
        let (share, before) = match marked {
            true => (MARKED_TRIAL_SHARE, Some(self.rate)),
            false => (share, None),
        };
        self.rate = self.confirmed().max(share * shown.rate);
        self.phase = Phase::Trial {
            since: now,
            back: None,
            capacity: shown.rate,
            before,
        };
    }

    /// Whether the train that has shown the rate was too short for the path's jitter, or came in a return link's slots.
    pub(super) fn is_train_in_doubt(&self) -> bool {
        let train = f64::from(constants::train::PACKETS) * self.packet / self.rate;
        let spread = self.raise_probe.spread() > TRAIN_JITTER * train;
        self.rounds <= TRAIN_DOUBT_ROUNDS && (spread || self.queue.is_noisy())
    }

    /// Bytes per second that the path has carried.
    pub(super) fn confirmed(&self) -> f64 {
        match self.phase {
            Phase::Cruise => self.rate,
            _ => 0.0,
        }
    }

    /// Twice what has arrived in a round trip: the first window of a slow start behind losses.
    pub(super) fn twice_arrived(&self, arrived: f64) -> f64 {
        (2.0 * arrived).clamp(2.0 * self.packet, 2.0 * self.initial_window)
    }

    /// First window behind a train that a short queue has cut: what a round trip carries of what is known to have come through, three
    /// initial windows at most; where nothing is known, twice that. What came within the time for which acknowledgements may wait does
    /// not say how fast the path is; so the initial window, once more.
    pub(super) fn behind_cut_train(&self, rtt: Span) -> f64 {
        let twice = self.twice_arrived(self.train.arrived());
        let after = self.train.arrived_after(rtt);
        let unknown = if after <= MAX_ACK_DELAY {
            self.initial_window.max(twice)
        } else {
            let of_round_trip = rtt.as_secs_f64() / after.as_secs_f64();
            (twice * of_round_trip).min(self.initial_window).max(twice)
        };
        let base = self.queue.base().unwrap_or(rtt);
        let known = self.train.came_at_least(base).unwrap_or(0.0) * base.as_secs_f64();
        unknown.max(known.min(CUT_WINDOWS * self.initial_window))
    }

    /// Slow start, from the rate as it is known, or from a window of `least` bytes.
    pub(super) fn start_slow_start(&mut self, now: Time, least: f64) {
        self.training = false;
        self.most_delivered = 0.0;
        self.start_window = self.pipe().max(least);
        self.phase = Phase::SlowStart {
            average: self.rtt(),
            since: now,
            back: None,
            again: false,
        };
    }

    /// The same behind a burst or an outage: what was lost of the packets sent until now says nothing against it.
    pub(super) fn start_slow_start_behind(&mut self, now: Time, least: f64) {
        self.slow_start_from = self.last_sent;
        self.round = Round {
            started: self.last_sent,
            count: self.round.count + 1,
            ..Round::default()
        };
        self.start_slow_start(now, least);
    }

    /// Whether congestion in slow start says that the path is full: a short queue shows by nothing but its losses, and one that marks
    /// by its marks, but for those of the burst that went before.
    pub(super) fn ends_slow_start(&self, event: &Congestion) -> bool {
        self.loses_much() || event.marked && event.sent > self.slow_start_from
    }

    /// Acknowledgements have come in slow start: a train may end it, and a path that is full.
    pub(super) fn slow_start(&mut self, now: Time, app_limited: bool) {
        let base = self.queue.base().unwrap_or(self.initial_rtt);
        if self.training
            && let Some(shown) = (self.train).on_acks_done(now, base, self.silence.end())
            && self.on_train_in_slow_start(now, shown)
        {
            return;
        }
        let rtt = self.rtt();
        // Slots and jitter do not change the average.
        let Phase::SlowStart {
            average,
            back,
            again,
            ..
        } = &mut self.phase
        else {
            return;
        };
        let shows = back.is_some() || !*again;
        *average = rtt.min(*average);
        let more = rtt.as_secs_f64() - average.as_secs_f64();
        let full = more > (EXIT_RTT_GROWTH * self.base()).max(2.0 * self.queue.noise());
        // What was held, or read late, stays in the average for some round trips more.
        let average_holds = self.is_behind_silence_by(now, SILENCE_IN_AVERAGE)
            || self.is_behind(self.silence.late_read(), now, SILENCE_IN_AVERAGE);
        let full = full && !average_holds;
        if !self.may_be_given_more(now, app_limited)
            && !self.is_held(now)
            && shows
            && (full || self.is_full())
        {
            self.leave_slow_start_for_queue(now);
        }
    }

    /// Something stands, which may be a queue, or jitter that lasts.
    pub(super) fn leave_slow_start_for_queue(&mut self, now: Time) {
        self.left_for_queue = true;
        self.leave_slow_start(now);
    }

    /// Once, whether it is known by now to have been jitter, in a round that has `lost` some packets, or none.
    pub(super) fn has_left_for_jitter(&mut self, lost: bool) -> bool {
        let bound = self.competitive.window() > 0.0 || self.marked.bytes().is_some();
        let jitter = self.left_for_queue && self.queue.has_lasting_jitter();
        jitter && !lost && !bound && std::mem::take(&mut self.left_for_queue)
    }

    /// There is a queue: what it delivers is what the path carries.
    pub(super) fn leave_slow_start(&mut self, now: Time) {
        self.training = false;
        let base = self.queue.base().unwrap_or(self.initial_rtt);
        let half = Span::from_nanos(base.as_nanos() / 2);
        let acked = self.round.acked.max(self.round.acked_before) as f64;
        // A stall has broken the train up, or others had filled the queue, and of a window all but a few packets are lost, which show no rate, or
        // less than a train has shown at least.
        let few = match self.delivery.rate(half) {
            Some(rate) => rate < self.rate && acked < TRIAL_PACKETS * self.packet,
            None => true,
        };
        if self.loses_much() && few {
            self.start_slow_start_behind(now, self.twice_arrived(acked));
            if let Phase::SlowStart { again, .. } = &mut self.phase {
                *again = true;
            }
            return;
        }
        self.rounds = TRAIN_DOUBT_ROUNDS;
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
        let round = acked.max(2.0 * self.packet) / self.rtt().as_secs_f64();
        // Without losses all of the window was through (RFC 5681, section 3.1).
        let window = self.start_window / base.as_secs_f64();
        let since_silence = self.without_silence(now, over);
        // What was held comes all at once.
        let held = since_silence.as_secs_f64() < MEASURED_BEHIND_SILENCE * over.as_secs_f64();
        let unmeasured = if held || self.loses_much() {
            round
        } else {
            window
        };
        let measured = (self.delivery.rate(since_silence)).filter(|_| !held);
        self.unmeasured = measured.is_none();
        let measured = measured.unwrap_or(unmeasured);
        // Acknowledgements that pause say nothing against what a whole round has brought.
        // While packets were held, for a round trip or more, a short queue was full, and no round has shown what the path carries. Half of the window
        // is what any controller keeps (RFC 9002, section 7.3.2), once it has grown by what arrived.
        let grown = self.start_window > 2.0 * self.initial_window;
        let half = match grown
            && !self.on_demand.seen
            && self.silence.length() >= base
            && self.is_behind_silence_by(now, SILENCE_IN_AVERAGE)
        {
            true => 0.5 * window,
            false => 0.0,
        };
        self.cruise_at(now, measured.max(self.most_delivered).max(half));
    }
}

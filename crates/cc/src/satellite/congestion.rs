//! What losses, marks and long queues are answered with: whose they are, and what is left of rate and window.

use bentpipe_units::Time;

use super::constants::*;
use super::train::Shown;
use super::{Congestion, Phase, RateSteps, Round, Satellite, constants};

impl Satellite {
    /// Whether this round has lost more than the radio would: so many packets, and a large share of what was sent.
    pub(super) fn loses_much(&self) -> bool {
        let Round { acked, lost, .. } = self.round;
        let (acked, lost) = (acked as f64, lost as f64);
        self.round.started > self.slow_start_from
            && lost > MIN_HIGH_LOSS_PACKETS * self.packet
            && lost > HIGH_LOSS * (acked + lost)
    }

    /// Whether a full path drops much of what is sent: then the path limits the flow, and neither the application nor the peer's window.
    pub(super) fn overflows(&self) -> bool {
        self.is_full() && (self.round.loss > HIGH_LOSS || self.loses_much())
    }

    /// A round has ended that the peer's window seemed to limit, and yet the path was full, many packets were lost, and so many bytes per second
    /// came through, `delivered`. If that is less than half of the rate, and a fifth was lost, the rate was never the path's.
    pub(super) fn disprove_rate(&mut self, now: Time, delivered: f64) {
        let lossy = self.round.loss > HIGH_LOSS && now >= self.blackout_losses_until;
        if lossy && self.rate > OVERESTIMATE * delivered {
            self.rate = delivered.max(self.packet);
            self.capacity = self.capacity.min(MAY_CARRY * self.rate);
            self.hold(now);
        }
    }

    /// Whether the path loses so few packets that a loss is a queue's.
    pub(super) fn loses_few(&self) -> bool {
        self.lost_share < constants::losses::LOSS_THRESH
    }

    /// Whether nothing says that others share the queue, or that packets do not fit into it, of which a round has `lost` some.
    pub(super) fn is_alone(&self, lost: bool) -> bool {
        let fit = !lost && self.loses_few() && !self.losses.is_trying();
        fit && self.competitive.window() == 0.0
    }

    /// Whether a queue stands that is longer than this controller makes, and, on a short pipe, holds more than was in flight a round ago.
    pub(super) fn is_queue_foreign(&self, in_flight: u64) -> bool {
        let standing = self.queue.standing();
        // Few packets fill a short pipe: those that are in flight, or were, are a long queue there.
        let ours = in_flight.max(self.delivery.in_flight()) as f64;
        let holds = !self.is_short_pipe() || self.capacity * standing > ours + self.packet;
        let own = FOREIGN_STALLS * self.stalls();
        standing > own.max(FOREIGN_QUEUE * self.base()) && holds
    }

    /// Whether no more is in flight than the pipe, and what comes in one go: of a long queue that stands all the same nothing is ours.
    pub(super) fn is_own_queue_gone(&self) -> bool {
        let at_once =
            OWN_QUEUE_GONE_PACKETS.min(2.0 + OWN_QUEUE_GONE_TIME * self.rate / self.packet);
        self.delivery.in_flight() as f64 <= OWN_QUEUE_GONE * self.pipe() + at_once * self.packet
    }

    /// A queue has marked; it may be `long`.
    pub(super) fn on_mark(&mut self, event: &Congestion, long: bool) {
        // Of packets that were held and come at once a short queue marks some.
        let held = self.silence.explains_congestion(event.now);
        if held || (self.recovery_from).is_some_and(|from| event.sent <= from) {
            return;
        }
        self.recovery_from = Some(event.now);
        self.raise_probe.on_mark(event.now, event.sent);
        if self.has_window() {
            let in_flight = self.was_in_flight();
            self.marked
                .on_mark(event.now, in_flight, constants::marked_window::SHARE);
        }
        if long {
            self.rate = (MARK_SHARE * self.rate).max(self.packet);
            self.hold(event.now);
        }
        self.marked_target = (MARK_TARGET * self.marked_target).max(LEAST_MARKED_TARGET);
    }

    /// Bytes in flight before what is being read: a host that stood still reads many acknowledgements in one go, and what these leave
    /// is less than was there; so it is where a round's packets are told at once, come or lost: a pipe of them was there, if the round began
    /// with one. Where the flow has less than it had, and the rate does not step, others are there: it leaves them that (decision
    /// 0005, *Rules taken out*).
    fn was_in_flight(&self) -> f64 {
        let left = self.delivery.in_flight();
        if self.has_less_than_it_had() && !self.rate_steps.are_expected() {
            return left as f64;
        }
        let read = match self.hosts_stall() {
            true => self.frame.0,
            false => 0,
        };
        ((left + read) as f64).max(self.pipe().min(self.round.in_flight as f64))
    }

    /// Packets were lost: if a queue that others share has dropped them, they count as a mark does.
    pub(super) fn on_queue_loss(&mut self, event: &Congestion) {
        // While packets are held any queue overflows.
        if self.silence.explains_congestion(event.now) {
            return;
        }
        if self.loses_few() {
            self.raise_probe.on_loss(event.now, event.sent);
        }
        // A window that holds more than the rate asks for is lowered by every loss, as CUBIC's is.
        let holds_more = (self.marked.bytes()).is_some_and(|window| window > self.own_window());
        if holds_more && (self.recovery_from).is_none_or(|from| event.sent > from) {
            self.recovery_from = Some(event.now);
            let in_flight = self.was_in_flight();
            self.marked
                .on_mark(event.now, in_flight, constants::competitive_mode::BETA);
            return;
        }
        let standing = self.queue.standing_with_jitter();
        let jitter = self.queue.has_lasting_jitter();
        let queues = (self.queue_losses).on_loss(event.now, event.sent, standing, jitter);
        let few = self.losses.are_few() && !self.losses.is_trying();
        // What hides in jitter takes from others without a sign of them.
        let others = self.marked.bytes().is_some() || self.has_less_than_it_had() || jitter;
        if queues && few && others && self.has_window() {
            let in_flight = self.was_in_flight();
            self.marked
                .on_mark(event.now, in_flight, constants::competitive_mode::BETA);
            self.raise_probe.on_mark(event.now, event.sent);
        }
    }

    /// Whether a queue may bound what is in flight: not without one to speak of, where it is a burst that met a threshold of some
    /// packets, nor on a path for which a window says little, nor where another window holds.
    pub(super) fn has_window(&self) -> bool {
        self.queue.standing_with_jitter() > MIN_TARGET
            && !self.is_short_pipe()
            && self.competitive.window() == 0.0
    }

    /// Nothing came through for long (RFC 9002, section 7.6).
    pub(super) fn on_persistent_congestion(&mut self, now: Time) {
        if std::mem::take(&mut self.resumed) {
            self.memory.forget();
        }
        self.losses.restart();
        self.rate_steps = RateSteps::default();
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
            // A trial or a slow start whose packets are gone shows nothing any more; a train that is out may still come back.
            if self.phase != Phase::Start {
                self.start_slow_start_behind(now, self.initial_window);
            }
        }
    }
}

//! The packet train: the first full packets leave back to back, and the bottleneck
//! spreads them to its own rate.

use bentpipe_units::{Span, Time};

use super::constants::train::*;
use super::constants::{BASE_NOISE, MAX_ACK_DELAY, MIN_RATE_INTERVAL};
use crate::{Acked, Sent};

/// What a train has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shown {
    /// Bytes per second that the path carries.
    pub(super) rate: f64,
    /// Whether acknowledgements were late, and the rate is the least that it may be.
    pub(super) doubtful: bool,
}

/// A train: the first that is long enough.
#[derive(Debug, Clone, Default)]
pub(super) struct Train {
    sent: u32,
    /// Bytes of it, without the first packet.
    bytes: u64,
    first: Option<Time>,
    last: Time,
    /// The round trip without a queue, as it was known when the first left.
    base: Span,
    /// Packets and bytes acknowledged in this frame.
    frame: (u64, u64),
    /// Acknowledgements: when, and the packets and bytes of it that had arrived by then.
    points: Vec<(Time, (u64, u64))>,
    /// How late the first acknowledgement was, seconds.
    late: f64,
    /// The steepest slope from the moment at which the first packet's acknowledgement was due:
    /// as it is, and with [`LATE`] seconds more.
    delayed: (f64, f64),
    /// The steepest slope from the first acknowledgement: one that was delayed for want
    /// of packets shows less than the path carries.
    shown: Option<f64>,
    /// How many slopes there were.
    slopes: u32,
    lost: u32,
    later: bool,
    done: bool,
}

impl Train {
    /// Whether all of it has left.
    pub(super) fn is_out(&self) -> bool {
        self.sent >= PACKETS
    }

    pub(super) fn on_sent(&mut self, packet: Sent, full: f64, base: Span) {
        if self.is_out() || (packet.bytes as f64) < 0.9 * full {
            return;
        }
        if self.sent > 0 && packet.now.since(self.last) > GAP {
            *self = Self::default();
        }
        if self.first.is_some() {
            self.bytes += packet.bytes;
        } else {
            (self.first, self.base) = (Some(packet.now), base);
        }
        self.last = packet.now;
        self.sent += 1;
    }

    pub(super) fn on_acked(&mut self, packet: &Acked) {
        let Some(first) = self.first.filter(|_| self.is_out()) else {
            return;
        };
        if packet.sent > self.last {
            self.later = true;
        } else if packet.sent >= first {
            self.frame.0 += 1;
            self.frame.1 += packet.bytes;
        }
    }

    pub(super) fn on_lost(&mut self) {
        self.lost += 1;
    }

    /// Bytes per second at which it left.
    fn left_at(&self) -> f64 {
        let over = (self.first).map_or(0.0, |first| self.last.since(first).as_secs_f64());
        if over > 0.0 {
            self.bytes as f64 / over
        } else {
            f64::INFINITY
        }
    }

    /// Packets and bytes of it that have arrived, and how many of them with the first acknowledgement.
    fn arrivals(&self) -> ((u64, u64), (u64, u64)) {
        let all = self.points.last().map_or((0, 0), |(_, arrived)| *arrived);
        let first = self.points.first().map_or((0, 0), |(_, arrived)| *arrived);
        (all, first)
    }

    /// When the first of it was acknowledged, and the last.
    fn acknowledged(&self) -> Option<(Time, Time)> {
        Some((self.points.first()?.0, self.points.last()?.0))
    }

    /// Whether all of it has arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.arrivals().0.0 >= u64::from(PACKETS)
    }

    /// Bytes of it that have arrived.
    pub(super) fn arrived(&self) -> f64 {
        self.arrivals().0.1 as f64
    }

    /// How long after its first acknowledgement the last came.
    fn took(&self) -> Span {
        self.acknowledged()
            .map_or(Span::ZERO, |(from, to)| to.since(from))
    }

    /// Whether it came so fast that a round trip of `base` carries two of it at least.
    pub(super) fn fits_twice(&self, base: Span) -> bool {
        2 * self.took().as_nanos() <= base.as_nanos()
    }

    /// Longest time between two of its acknowledgements.
    fn gap(&self) -> Span {
        (self.points.windows(2))
            .map(|pair| pair[1].0.since(pair[0].0))
            .max()
            .unwrap_or(Span::ZERO)
    }

    /// Whether it came over a longer time than acknowledgements wait, and none of them made half of that: a stall does.
    pub(super) fn is_sure(&self) -> bool {
        let took = self.took();
        took > MAX_ACK_DELAY && 2 * self.gap().as_nanos() <= took.as_nanos()
    }

    /// How long after the first of it was due, with a round trip of `base`, the last of it was acknowledged.
    pub(super) fn arrived_after(&self, base: Span) -> Span {
        let to = self.acknowledged().map_or(Time::ZERO, |(_, to)| to);
        self.first
            .map_or(Span::ZERO, |first| to.since(first + base))
    }

    /// Bytes per second at which what has arrived of it came at least, where the round trip without a queue, `base` now, was known before
    /// it: that of a handshake is too long where the way back is slow, for there its acknowledgements are padded to whole packets.
    pub(super) fn came_at_least(&self, base: Span) -> Option<f64> {
        let fell = self.base.as_secs_f64() - base.as_secs_f64();
        if fell > BASE_NOISE.max(BASE_FALL * base.as_secs_f64()) {
            return None;
        }
        let over = UNSEEN * self.arrived_after(base).as_secs_f64() + LATE;
        let rate = self.arrived() / over;
        let apart = self.took();
        let ((_, all), (_, first)) = self.arrivals();
        if all > first && apart < MAX_ACK_DELAY {
            let spaced = (all - first) as f64 / apart.as_secs_f64();
            return Some(rate.min(SPACED * spaced));
        }
        Some(rate)
    }

    /// Whether some of it was acknowledged, and then nothing for [`STOPPED`] times as long as its packets are apart: a slow link keeps their spacing.
    pub(super) fn has_stopped(&self, now: Time) -> bool {
        let Some((from, to)) = self.acknowledged() else {
            return false;
        };
        let ((all, _), (first, _)) = self.arrivals();
        let apart = if all > first {
            to.since(from).as_secs_f64() / (all - first) as f64
        } else if first > 1 {
            // They arrived within the time for which their acknowledgement may wait.
            MAX_ACK_DELAY.as_secs_f64() / (first - 1) as f64
        } else {
            return false;
        };
        now.since(to).as_secs_f64() > STOPPED * apart
    }

    /// Whether two acknowledgements are all that has shown a rate, at which far more than the train fits into a round trip of `base`, and the
    /// first came sooner than its packets do at that rate: then the second was late, or the base came with the first.
    pub(super) fn contradicts_itself(&self, base: Span) -> bool {
        let Some(shown) = self.shown.filter(|_| self.slopes == 1) else {
            return false;
        };
        let ((packets, bytes), (_, first)) = self.arrivals();
        let packet = bytes as f64 / packets as f64;
        let soon = self.late * shown < SOON * (first as f64 - packet);
        soon && shown * base.as_secs_f64() > self.bytes as f64
    }

    /// Bytes per second at which the last packets came, if that is more than [`MORE_LATER`] times what those of the first half round trip
    /// of `base` came at, and no gap explains it: what waited has asked the path for more.
    pub(super) fn was_given_more(&self, base: Span) -> Option<f64> {
        let (last, (packets, bytes)) = *self.points.last()?;
        let (from, (_, before)) = *self.points.first()?;
        let half = Span::from_nanos(base.as_nanos() / 2);
        let (until, (_, early)) = *(self.points.iter()).find(|(at, _)| at.since(from) >= half)?;
        if half < MIN_RATE_INTERVAL || self.gap() > Span::from_nanos(half.as_nanos() / 2) {
            return None;
        }
        let first = (early - before) as f64 / until.since(from).as_secs_f64();
        let (since, (_, then)) = *self.points.iter().rev().find(|(at, (count, _))| {
            packets - count >= MIN_ACKED && last.since(*at).as_nanos() >= half.as_nanos() / 4
        })?;
        let rate = (bytes - then) as f64 / last.since(since).as_secs_f64();
        (since >= until && rate > MORE_LATER * first).then_some(rate)
    }

    /// Share of its packets that were lost.
    pub(super) fn lost_share(&self) -> f64 {
        f64::from(self.lost) / f64::from(PACKETS)
    }

    /// Once, when the train has arrived: what it shows, if it shows anything. One that only shows
    /// how slowly it left does not count; another one is waited for. `base` is the round trip
    /// without a queue, `silence` the latest moment at which acknowledgements came again behind a silence.
    pub(super) fn on_acks_done(
        &mut self,
        now: Time,
        base: Span,
        silence: Option<Time>,
    ) -> Option<Option<Shown>> {
        if !self.is_out() || self.done {
            return None;
        }
        let (packets, bytes) = std::mem::take(&mut self.frame);
        if packets > 0 {
            let (before, _) = self.arrivals();
            let arrived = (before.0 + packets, before.1 + bytes);
            self.points.push((now, arrived));
            let due = self.first.map_or(now, |first| first + base);
            let delay = now.since(due).as_secs_f64();
            let bytes_after = arrived.1 as f64 * (1.0 - 1.0 / arrived.0 as f64);
            let (exact, late) = &mut self.delayed;
            if delay > 0.0 {
                *exact = exact.max(bytes_after / delay);
            }
            *late = late.max(bytes_after / (delay + LATE));
            if self.points.len() == 1 {
                self.late = delay;
            }
            let (from, first) = self.points[0];
            let over = now.since(from).as_secs_f64();
            if arrived.0 - first.0 >= MIN_ACKED && over > 0.0 {
                let slope = (arrived.1 - first.1) as f64 / over;
                self.slopes += 1;
                self.shown = Some(self.shown.map_or(slope, |shown| shown.max(slope)));
            }
        }
        if !self.is_whole() && !self.later {
            return None;
        }
        let left_at = self.left_at();
        let brisk = left_at >= FAST_SENDING * RATE as f64;
        if !brisk
            && self
                .shown
                .is_none_or(|shown| shown > SPREAD_SHARE * left_at)
        {
            *self = Self::default();
            return None;
        }
        self.done = true;
        Some(self.read(silence.is_some_and(|end| self.was_held(base, end))))
    }

    /// Whether its acknowledgements were due, with a round trip of `base`, in a silence that ended then, and the first came no sooner.
    fn was_held(&self, base: Span, silence_end: Time) -> bool {
        let due = self.first.is_some_and(|first| first + base < silence_end);
        due && (self.points.first()).is_some_and(|(at, _)| *at >= silence_end)
    }

    /// What its acknowledgements show, and what its delay does where they came late: each of them, or all, because they were `held`.
    fn read(&self, held: bool) -> Option<Shown> {
        let doubtful = |rate: f64| Shown {
            rate: rate.min(RATE as f64),
            doubtful: true,
        };
        let (most, least) = self.delayed;
        let whole = self.arrivals().0.0 >= WHOLE;
        let Some(shown) = self.shown else {
            return (whole && least > 0.0).then(|| doubtful(least));
        };
        let fast = held || shown > FAST_SENDING * RATE as f64;
        let lump = fast && shown > LUMP * most && self.late > LATE;
        if whole && most > 0.0 && lump {
            return Some(doubtful(most));
        }
        Some(Shown {
            rate: shown.min(PRESSED * self.left_at()),
            doubtful: false,
        })
    }
}

//! Silences of the acknowledgements: packets are held, or the link is dark, or this end has sent nothing.
//!
//! Shorter ones show by what ends them. Acknowledgements that are told at one moment have come together or were read
//! together: a host that stood still reads all that came meanwhile in one go, and all of it looks as if it had waited in a queue.

use bentpipe_units::{Span, Time};

use super::Satellite;
use super::constants::{LATE_READ, MIN_SILENCE, SILENCE, SILENT_INTERVALS};
use crate::convert::whole;

#[derive(Debug, Clone)]
pub(super) struct Silence {
    /// Mean time between ACK frames, seconds.
    interval: f64,
    last_frame: Time,
    /// How long none had come before those that are told now, and whether these are several.
    waited: Span,
    several: bool,
    /// When several were told last that had waited.
    late_read: Time,
    /// When acknowledgements came again after a silence, and after that or a pause of the sender.
    silence_end: Time,
    gap_end: Time,
    /// How long the latest silence was.
    silence_length: Span,
    /// Losses and marks told until then are of packets that a silence has taken along or held, unless silences follow
    /// each other within two round trips.
    explained_until: Time,
    /// The latest pause of the sender as long as a silence: its end and length.
    pause: (Time, Span),
    /// When the newest packet left that is acknowledged, and that of the frames before.
    newest: (Time, Time),
}

impl Silence {
    pub(super) fn new() -> Self {
        Self {
            interval: 0.0,
            last_frame: Time::ZERO,
            waited: Span::ZERO,
            several: false,
            late_read: Time::ZERO,
            silence_end: Time::ZERO,
            gap_end: Time::ZERO,
            silence_length: Span::ZERO,
            explained_until: Time::ZERO,
            pause: (Time::ZERO, Span::ZERO),
            newest: (Time::ZERO, Time::ZERO),
        }
    }

    /// A packet leaves after a `pause` of the sender.
    pub(super) fn on_sent(&mut self, now: Time, pause: Span) {
        if pause.as_secs_f64() > MIN_SILENCE {
            self.pause = (now, pause);
        }
    }

    /// Nothing was under way: no acknowledgement is due before `until`.
    pub(super) fn on_idle(&mut self, until: Time) {
        self.last_frame = until;
    }

    /// A packet that left at `sent` is acknowledged.
    pub(super) fn on_acked(&mut self, sent: Time) {
        self.newest.0 = self.newest.0.max(sent);
    }

    /// An ACK frame has been told, with a round trip of `base` seconds at least and `rtt` on average: whether
    /// it ends a gap. What is measured across that shows the gap, not the path.
    pub(super) fn on_acks_done(&mut self, now: Time, base: f64, rtt: Span) -> bool {
        let mut across = false;
        self.several = now <= self.last_frame;
        if self.is_read_late() {
            self.late_read = now;
        }
        if now > self.last_frame {
            self.waited = now.since(self.last_frame);
            let interval = self.waited.as_secs_f64();
            let usual = SILENT_INTERVALS * self.interval;
            let longest = (SILENCE * base).max(MIN_SILENCE).max(usual);
            if interval > longest {
                let silent = interval - self.own_pause() > longest;
                let before = if silent {
                    self.silence_end
                } else {
                    self.gap_end
                };
                across = now.since(before) > rtt + rtt;
                if silent {
                    if across {
                        self.explained_until = now + rtt;
                    }
                    self.silence_end = now;
                    self.silence_length = self.waited;
                }
                self.gap_end = now;
            }
            self.interval += 0.02 * (interval.min(base) - self.interval);
        }
        self.last_frame = now;
        self.newest.1 = self.newest.0;
        across
    }

    /// Whether what is told now had waited, for this host or on the way: its round trips are longer than the path's.
    pub(super) fn is_read_late(&self) -> bool {
        let usual = SILENT_INTERVALS * self.interval;
        self.several && self.waited.as_secs_f64() > usual.max(LATE_READ)
    }

    /// When that was so last.
    pub(super) fn late_read(&self) -> Option<Time> {
        (self.late_read > Time::ZERO).then_some(self.late_read)
    }

    /// Mean time between ACK frames, seconds.
    pub(super) fn interval(&self) -> f64 {
        self.interval
    }

    /// When acknowledgements came again after the latest silence.
    pub(super) fn end(&self) -> Option<Time> {
        (self.silence_end > Time::ZERO).then_some(self.silence_end)
    }

    /// How long that was.
    pub(super) fn length(&self) -> Span {
        self.silence_length
    }

    /// Whether losses and marks that are told `now` come of a silence: what it has taken along, and what came at once when it ended.
    pub(super) fn explains_congestion(&self, now: Time) -> bool {
        now < self.explained_until
    }

    /// Seconds for which nothing was sent between what the frames before have acknowledged and this one.
    fn own_pause(&self) -> f64 {
        let (end, length) = self.pause;
        let (newest, before) = self.newest;
        if before < end && end <= newest {
            length.as_secs_f64()
        } else {
            0.0
        }
    }
}

impl Satellite {
    /// Whether acknowledgements were held until a round trip ago: what waited with them looks like a queue,
    /// and the time that they waited like a slow path.
    pub(super) fn is_behind_silence(&self, now: Time) -> bool {
        self.is_behind_silence_by(now, 1.0)
    }

    /// The same, until so many round trips ago.
    pub(super) fn is_behind_silence_by(&self, now: Time, round_trips: f64) -> bool {
        self.is_behind(self.silence.end(), now, round_trips)
    }

    /// Whether so many round trips have not passed since a moment, if there was one.
    pub(super) fn is_behind(&self, moment: Option<Time>, now: Time, round_trips: f64) -> bool {
        let over = Span::from_nanos(whole(1e9 * round_trips * self.rtt().as_secs_f64()));
        moment.is_some_and(|moment| now < moment + over)
    }

    /// As much of the time before `now` as has no silence in it.
    pub(super) fn without_silence(&self, now: Time, over: Span) -> Span {
        (self.silence.end()).map_or(over, |end| over.min(now.since(end)))
    }

    /// Whether what looks like a queue was held on the way, or read late.
    pub(super) fn is_held(&self, now: Time) -> bool {
        self.is_behind_silence(now) || self.silence.is_read_late()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledgements at these milliseconds, over 14 ms: for each, whether it was read late.
    fn read_late(at: &[u64]) -> Vec<bool> {
        let mut silence = Silence::new();
        let rtt = Span::from_millis(14);
        let tell = |at: &u64| {
            silence.on_acks_done(Time::ZERO + Span::from_millis(*at), 0.014, rtt);
            silence.is_read_late()
        };
        at.iter().map(tell).collect()
    }

    #[test]
    fn several_at_one_moment_behind_a_pause_were_read_late() {
        let told = read_late(&[1, 2, 3, 4, 30, 30, 30, 31]);
        assert_eq!(told, [false, false, false, false, false, true, true, false]);
    }

    #[test]
    fn one_behind_a_pause_was_not_and_several_without_one_were_not() {
        assert_eq!(read_late(&[1, 2, 30, 31, 31, 32]), [false; 6]);
    }
}

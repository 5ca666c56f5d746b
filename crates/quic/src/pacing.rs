//! Burst limit of 2 ms, or of a packet and the next where a packet takes longer; and
//! what late timers kept back is made up for.
//!
//! The QUIC library's pacer is a token bucket of 2 ms at the controller's rate, but of
//! ten packets at least as long as these take no more than 10 ms: at 20 Mbit/s a pause
//! is followed by ten packets back to back, 6 ms of the link. The bucket cannot be set.
//! It is cut, however, to one packet whenever the rate is told as a packet in 10 ms. So
//! the bucket is followed from outside, and when a burst has used up its 2 ms but for
//! one packet, that rate is told until this packet has left.
//!
//! Telling it to a bucket that is empty would stop the sender for 10 ms. The estimate
//! is therefore from below: between bursts the bucket is taken for empty, and it is cut
//! only if two packets would follow.
//!
//! A timer that fires late finds a full bucket and loses what did not fit in: on a busy
//! machine, with timers 10 ms late, four fifths of the rate. By how much they are late is
//! seen from the pauses that pacing alone explains: not those in which the window was full, or
//! there was nothing to send, as in a handshake. Bursts may be longer by that, and
//! what was lost is a deficit: the rate is higher until it has been sent. No burst is longer
//! than the library's bucket: what that does not hold is lost too.

use bentpipe_units::Time;

/// What may leave back to back, seconds at the pacing rate.
const BURST: f64 = 0.002;
/// Longest delay of a timer, seconds. Longer pauses are a stopped machine, or a sender without
/// data that looks like one.
const MAX_TIMER_DELAY: f64 = 0.050;
/// How much longer than 2 ms bursts may become, seconds.
const MAX_BURST_EXTENSION: f64 = 0.020;
/// Seconds in which punctual timers are believed again.
const LATENESS_DECAY: f64 = 1.0;
/// The deficit is made up for in this time, seconds; what is more of it than leaves in that, later, so
/// that the rate at most doubles.
const CATCH_UP: f64 = 0.020;
/// The library's: TARGET_BURST_INTERVAL and MAX_BURST_INTERVAL, seconds; MIN_BURST_SIZE
/// and MAX_BURST_SIZE, packets.
const TARGET_INTERVAL: f64 = 0.002;
const MAX_INTERVAL: f64 = 0.010;
const MIN_PACKETS: f64 = 10.0;
const MAX_PACKETS: f64 = 256.0;

/// The library's token bucket, and the one that bursts are limited to; bytes.
#[derive(Debug, Clone)]
pub(crate) struct BurstLimiter {
    packet: f64,
    library: f64,
    limited: f64,
    /// When the latest packet left.
    sent: Time,
    cut: bool,
    /// How late timers have been, seconds.
    late: f64,
    /// Bytes that late timers have kept back.
    deficit: f64,
    /// Whether something else than pacing holds the next packet back: the window, or that there is none.
    held: bool,
}

impl BurstLimiter {
    pub(crate) fn new(packet: u64) -> Self {
        Self {
            packet: packet as f64,
            library: 0.0,
            limited: 0.0,
            sent: Time::ZERO,
            cut: false,
            late: 0.0,
            deficit: 0.0,
            held: false,
        }
    }

    pub(crate) fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes as f64;
    }

    /// Whether ten packets at `rate`, which the library sends in a row anyway, are more than a burst.
    pub(crate) fn matter(&self, rate: u64) -> bool {
        BURST * (rate as f64) < MIN_PACKETS * self.packet
    }

    /// The window is full: what follows is not late.
    pub(crate) fn on_window_limited(&mut self) {
        self.held = true;
    }

    fn pause(&self, now: Time) -> f64 {
        now.since(self.sent).as_secs_f64()
    }

    /// Bytes per second with which the deficit is made up for.
    fn caught_up(&self, rate: f64) -> f64 {
        rate + self.deficit.min(CATCH_UP * rate) / CATCH_UP
    }

    /// The longest burst, bytes: no longer than the library's.
    fn longest_burst(&self, rate: f64) -> f64 {
        let late = (BURST + self.late) * rate;
        late.min(self.capacity(self.caught_up(rate)))
            .max(self.packet)
    }

    /// Both buckets at `now`, if it is later than the latest packet; not yet cut to the
    /// longest burst.
    fn filled(&self, now: Time, rate: f64) -> (f64, f64) {
        let rate = self.caught_up(rate);
        let earned = rate * self.pause(now);
        if earned <= 0.0 {
            return (self.library, self.limited);
        }
        (earned.min(self.capacity(rate)), self.limited + earned)
    }

    /// What the library's bucket holds at `rate`, bytes.
    fn capacity(&self, rate: f64) -> f64 {
        let most = (MAX_INTERVAL * rate).max(self.packet);
        let target =
            (TARGET_INTERVAL * rate).clamp(MIN_PACKETS * self.packet, MAX_PACKETS * self.packet);
        most.min(target)
    }

    /// Learns from the pause that ends now how late timers are, and what that costs.
    fn learn(&mut self, now: Time, rate: f64, limited: f64) {
        let pause = self.pause(now);
        let caught_up = self.caught_up(rate);
        let short = self.packet - self.limited;
        let paced = !std::mem::take(&mut self.held) && short > 0.0 && pause <= MAX_TIMER_DELAY;
        self.deficit = (self.deficit - (caught_up - rate) * pause).max(0.0);
        self.late *= (1.0 - pause / LATENESS_DECAY).max(0.0);
        if paced {
            self.late = self
                .late
                .max(pause - short / caught_up)
                .min(MAX_BURST_EXTENSION);
            let lost = (limited - self.longest_burst(rate)).max(0.0);
            self.deficit += lost;
        }
        // Of a rate that has fallen no more is owed than of this one.
        self.deficit = self.deficit.min(MAX_TIMER_DELAY * rate);
    }

    /// Whether the library would go on after the one packet that is left.
    fn update_cut(&mut self, library: f64, limited: f64) {
        self.cut = limited < 2.0 * self.packet && library >= 2.0 * self.packet;
    }

    /// A packet leaves at `rate` bytes per second.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64, rate: u64) {
        let rate = rate as f64;
        let (mut library, limited) = self.filled(now, rate);
        if now > self.sent {
            self.learn(now, rate, limited);
        }
        if self.cut {
            library = library.min(self.packet);
        }
        let limited = limited.min(self.longest_burst(rate));
        self.library = (library - bytes as f64).max(0.0);
        self.limited = (limited - bytes as f64).max(0.0);
        self.sent = now;
        self.update_cut(self.library, self.limited);
    }

    /// Acknowledgements may let packets out; `idle` where there was nothing to send when they came.
    pub(crate) fn on_acks_done(&mut self, now: Time, rate: u64, idle: bool) {
        self.held |= idle;
        let (library, limited) = self.filled(now, rate as f64);
        self.update_cut(library, limited.min(self.longest_burst(rate as f64)));
    }

    /// What to tell the library for `rate`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate of bytes per second"
    )]
    pub(crate) fn rate(&self, rate: u64) -> u64 {
        if self.cut {
            rate.min((self.packet / MAX_INTERVAL) as u64)
        } else {
            self.caught_up(rate as f64) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::Span;

    use super::*;

    const PACKET: u64 = 1_472;
    /// A packet a millisecond.
    const RATE: u64 = 1_000 * PACKET;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Behind packets that left in time.
    fn sender() -> BurstLimiter {
        let mut bursts = BurstLimiter::new(PACKET);
        for number in 0..10 {
            bursts.on_sent(at(number), PACKET, RATE);
        }
        assert_eq!((bursts.late, bursts.deficit), (0.0, 0.0));
        bursts
    }

    #[test]
    fn a_late_timer_makes_bursts_longer_and_is_made_up_for() {
        let mut bursts = sender();
        bursts.on_sent(at(29), PACKET, RATE);
        assert!((bursts.late - 0.019).abs() < 1e-6, "{}", bursts.late);
        // Of twenty packets' time the library's bucket has kept ten.
        assert!((bursts.deficit - 10.0 * PACKET as f64).abs() < 1.0);
        assert!(bursts.rate(RATE) > RATE);
    }

    /// As in a handshake: then bursts of ten packets would begin each connection whose round trip is below 50 ms.
    #[test]
    fn who_had_nothing_to_send_was_not_late() {
        let mut waited = sender();
        waited.on_acks_done(at(29), RATE, true);
        let mut full = sender();
        full.on_window_limited();
        for mut bursts in [waited, full] {
            bursts.on_sent(at(29), PACKET, RATE);
            assert_eq!((bursts.late, bursts.deficit), (0.0, 0.0));
        }
    }

    #[test]
    fn what_held_a_packet_back_says_nothing_of_the_next() {
        let mut bursts = sender();
        bursts.on_window_limited();
        bursts.on_sent(at(29), PACKET, RATE);
        for millis in [30, 30, 31, 32] {
            bursts.on_sent(at(millis), PACKET, RATE);
        }
        bursts.on_sent(at(42), PACKET, RATE);
        assert!(bursts.late > 0.005, "{}", bursts.late);
    }
}

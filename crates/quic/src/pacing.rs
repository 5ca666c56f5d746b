//! Bursts of at most 2 ms, or of a packet and the next where a packet takes longer; and
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
//! seen from the pauses that pacing alone explains. Bursts may be longer by that, and
//! what was lost is owed: the rate is raised until it has been sent.

use bentpipe_units::Time;

/// What may leave back to back, seconds at the pacing rate.
const BURST: f64 = 0.002;
/// Pauses up to this long are timers' doing; longer ones are a stopped machine, or a
/// sender without data that looks like one. Seconds.
const LATEST: f64 = 0.050;
/// How much longer than 2 ms bursts may become, seconds.
const MOST_LATE: f64 = 0.020;
/// Seconds in which punctual timers are believed again.
const FORGIVE: f64 = 1.0;
/// What is owed is made up for in this time, seconds; no more than this is owed, so
/// that the rate at most doubles.
const MAKE_UP: f64 = 0.020;
/// The library's: TARGET_BURST_INTERVAL and MAX_BURST_INTERVAL, seconds; MIN_BURST_SIZE
/// and MAX_BURST_SIZE, packets.
const TARGET_INTERVAL: f64 = 0.002;
const MAX_INTERVAL: f64 = 0.010;
const MIN_PACKETS: f64 = 10.0;
const MAX_PACKETS: f64 = 256.0;

/// The library's bucket, and the one wanted; bytes.
#[derive(Debug, Clone)]
pub(crate) struct Bursts {
    packet: f64,
    library: f64,
    wanted: f64,
    /// When the latest packet left.
    sent: Time,
    cut: bool,
    /// How late timers have been, seconds.
    late: f64,
    /// Bytes that late timers have kept back.
    owed: f64,
    /// Whether the window, not pacing, holds the next packet back.
    window: bool,
}

impl Bursts {
    pub(crate) fn new(packet: u64) -> Self {
        Self {
            packet: packet as f64,
            library: 0.0,
            wanted: 0.0,
            sent: Time::ZERO,
            cut: false,
            late: 0.0,
            owed: 0.0,
            window: false,
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
        self.window = true;
    }

    fn pause(&self, now: Time) -> f64 {
        now.since(self.sent).as_secs_f64()
    }

    /// Bytes per second with what is owed.
    fn raised(&self, rate: f64) -> f64 {
        rate + self.owed.min(MAKE_UP * rate) / MAKE_UP
    }

    /// The longest burst, bytes.
    fn most(&self, rate: f64) -> f64 {
        ((BURST + self.late) * rate).max(self.packet)
    }

    /// Both buckets at `now`, if it is later than the latest packet; not yet cut to the
    /// longest burst.
    fn filled(&self, now: Time, rate: f64) -> (f64, f64) {
        let rate = self.raised(rate);
        let earned = rate * self.pause(now);
        if earned <= 0.0 {
            return (self.library, self.wanted);
        }
        let most = (MAX_INTERVAL * rate).max(self.packet);
        let target =
            (TARGET_INTERVAL * rate).clamp(MIN_PACKETS * self.packet, MAX_PACKETS * self.packet);
        (earned.min(most.min(target)), self.wanted + earned)
    }

    /// Learns from the pause that ends now how late timers are, and what that costs.
    fn learn(&mut self, now: Time, rate: f64, wanted: f64) {
        let pause = self.pause(now);
        let raised = self.raised(rate);
        let short = self.packet - self.wanted;
        let paced = !std::mem::take(&mut self.window) && short > 0.0 && pause <= LATEST;
        self.owed = (self.owed - (raised - rate) * pause).max(0.0);
        self.late *= (1.0 - pause / FORGIVE).max(0.0);
        if paced {
            self.late = self.late.max(pause - short / raised).min(MOST_LATE);
            let lost = (wanted - self.most(rate)).max(0.0);
            self.owed = (self.owed + lost).min(MAKE_UP * rate);
        }
    }

    /// Whether the library would go on after the one packet that is left.
    fn judge(&mut self, library: f64, wanted: f64) {
        self.cut = wanted < 2.0 * self.packet && library >= 2.0 * self.packet;
    }

    /// A packet leaves at `rate` bytes per second.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64, rate: u64) {
        let rate = rate as f64;
        let (mut library, wanted) = self.filled(now, rate);
        if now > self.sent {
            self.learn(now, rate, wanted);
        }
        if self.cut {
            library = library.min(self.packet);
        }
        let wanted = wanted.min(self.most(rate));
        self.library = (library - bytes as f64).max(0.0);
        self.wanted = (wanted - bytes as f64).max(0.0);
        self.sent = now;
        self.judge(self.library, self.wanted);
    }

    /// Acknowledgements may let packets out.
    pub(crate) fn on_acks_done(&mut self, now: Time, rate: u64) {
        let (library, wanted) = self.filled(now, rate as f64);
        self.judge(library, wanted.min(self.most(rate as f64)));
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
            self.raised(rate as f64) as u64
        }
    }
}

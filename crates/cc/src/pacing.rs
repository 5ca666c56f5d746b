//! Bursts of at most 2 ms, or of a packet and the next where a packet takes longer.
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

use bentpipe_units::Time;

/// What may leave back to back, seconds at the pacing rate.
const BURST: f64 = 0.002;
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
}

impl Bursts {
    pub(crate) fn new(packet: u64) -> Self {
        Self {
            packet: packet as f64,
            library: 0.0,
            wanted: 0.0,
            sent: Time::ZERO,
            cut: false,
        }
    }

    pub(crate) fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes as f64;
    }

    /// Both buckets at `now`, if it is later than the latest packet.
    fn filled(&self, now: Time, rate: f64) -> (f64, f64) {
        let earned = rate * now.since(self.sent).as_secs_f64();
        if earned <= 0.0 {
            return (self.library, self.wanted);
        }
        let most = (MAX_INTERVAL * rate).max(self.packet);
        let target =
            (TARGET_INTERVAL * rate).clamp(MIN_PACKETS * self.packet, MAX_PACKETS * self.packet);
        let library = earned.min(most.min(target));
        let wanted = (self.wanted + earned).min((BURST * rate).max(self.packet));
        (library, wanted)
    }

    /// Whether the library would go on after the one packet that is left.
    fn judge(&mut self, library: f64, wanted: f64) {
        self.cut = wanted < 2.0 * self.packet && library >= 2.0 * self.packet;
    }

    /// A packet leaves at `rate` bytes per second.
    pub(crate) fn on_sent(&mut self, now: Time, bytes: u64, rate: u64) {
        let (mut library, wanted) = self.filled(now, rate as f64);
        if self.cut {
            library = library.min(self.packet);
        }
        self.library = (library - bytes as f64).max(0.0);
        self.wanted = (wanted - bytes as f64).max(0.0);
        self.sent = now;
        self.judge(self.library, self.wanted);
    }

    /// Acknowledgements may let packets out.
    pub(crate) fn on_acks_done(&mut self, now: Time, rate: u64) {
        let (library, wanted) = self.filled(now, rate as f64);
        self.judge(library, wanted);
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
            rate
        }
    }
}

//! Jitter that lasts: it holds packets for some time, and looks like a queue meanwhile.
//!
//! What a queue holds comes out at the rate of the path, so a round trip cannot fall faster than that. Packets that jitter has held and that
//! do not overtake each other come in one go when it ends. So where acknowledgements come much faster than the path carries what they
//! acknowledge, and behind them less stands than stood before, for as long as a queue has to stand to be taken for one, that was jitter.
//!
//! A host that reads late makes such acknowledgements, too: behind a gap as long as the time for which it stood still.

use std::collections::VecDeque;

use bentpipe_units::{Span, Time};

use super::constants::lasting_jitter::*;

/// One ACK frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub(super) now: Time,
    /// When its newest packet left.
    pub(super) sent: Time,
    /// Bytes that it acknowledges.
    pub(super) bytes: u64,
    /// Bytes per second that the path was seen to carry.
    pub(super) capacity: f64,
    /// Seconds by which its round trip is above the base.
    pub(super) above: f64,
    /// Seconds that stood until it came.
    pub(super) stood: f64,
    pub(super) rtt: Span,
}

/// See the [module](self).
#[derive(Debug, Clone, Default)]
pub(super) struct LastingJitter {
    /// When the latest frame came, and when its newest packet left.
    last: Option<(Time, Time)>,
    /// Seconds for which nothing came before it, beyond what the path takes for its bytes.
    gap: f64,
    /// Frames that come too fast, at the moment.
    fall: Option<Fall>,
    /// What falls have shown, seconds, and when.
    falls: VecDeque<(Time, f64)>,
}

#[derive(Debug, Clone, Copy)]
struct Fall {
    /// Seconds that stood before it.
    stood: f64,
    /// By how much the round trip has fallen, and what is above the base now, seconds.
    fallen: f64,
    above: f64,
}

impl LastingJitter {
    pub(super) fn on_frame(&mut self, frame: &Frame) {
        let Frame { now, sent, .. } = *frame;
        let (before, sent_before) = self.last.unwrap_or((now, sent));
        // A packet that others have overtaken says nothing of the queue.
        if sent < sent_before {
            return;
        }
        self.last = Some((now, sent));
        let apart = now.since(before).as_secs_f64();
        let sent_apart = sent.since(sent_before).as_secs_f64();
        let at_capacity = frame.bytes as f64 / frame.capacity.max(1.0);
        if apart < FAST * sent_apart.min(at_capacity) {
            let fall = self.fall.get_or_insert(Fall {
                stood: frame.stood,
                fallen: 0.0,
                above: 0.0,
            });
            fall.fallen += sent_apart - apart;
            fall.above = frame.above;
        } else {
            if let Some(fall) = self.fall.take() {
                let jitter = (fall.stood - fall.above).min(fall.fallen);
                if jitter >= LEAST && self.gap < HOST * fall.fallen {
                    self.falls.push_back((now, jitter));
                }
            }
            self.gap = apart - at_capacity;
        }
        let memory = Span::from_nanos(ROUND_TRIPS * frame.rtt.as_nanos());
        while (self.falls.front()).is_some_and(|(at, _)| now.since(*at) > memory)
            || self.falls.len() > MOST
        {
            self.falls.pop_front();
        }
    }

    /// Mean of what falls have shown, seconds; 0 where they were too few.
    pub(super) fn mean(&self) -> f64 {
        if self.falls.len() < FEWEST {
            return 0.0;
        }
        let sum: f64 = self.falls.iter().map(|(_, jitter)| jitter).sum();
        sum / self.falls.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::whole;

    const BASE: f64 = 0.03;
    /// Seconds between two frames, and bytes of each: 80 Mbit/s.
    const APART: f64 = 0.001;
    const BYTES: u64 = 10_000;

    fn at(seconds: f64) -> Time {
        Time::ZERO + Span::from_nanos(whole(1e9 * seconds))
    }

    /// What is seen of frames whose packets left a millisecond apart, `delay` seconds later than on an empty path or when the one before
    /// came; `stood` seconds are taken to stand until then, and the path to carry `capacity`.
    fn seen(count: u32, capacity: f64, delay: fn(f64) -> f64, stood: fn(f64) -> f64) -> f64 {
        let (mut jitter, mut came) = (LastingJitter::default(), 0.0_f64);
        for index in 0..count {
            let left = f64::from(index) * APART;
            came = came.max(left + BASE + delay(left));
            jitter.on_frame(&Frame {
                now: at(came),
                sent: at(left),
                bytes: BYTES,
                capacity,
                above: came - left - BASE,
                stood: stood(left),
                rtt: Span::from_millis(30),
            });
        }
        jitter.mean()
    }

    /// 8 ms for 20 ms, then none for 20.
    fn lasts(left: f64) -> f64 {
        if left % 0.04 < 0.02 { 0.008 } else { 0.0 }
    }

    #[test]
    fn jitter_that_ends_is_seen_by_how_fast_it_does() {
        let mean = seen(200, 1e7, lasts, |_| 0.008);
        assert!((0.006..=0.008).contains(&mean), "{mean}");
    }

    #[test]
    fn what_did_not_stand_before_was_no_queue_to_be_doubted() {
        assert_eq!(seen(200, 1e7, lasts, |_| 0.0), 0.0);
    }

    /// A queue grows to 16 ms in 20 and runs off in 40: then acknowledgements come 0.6 ms apart, of packets that left a millisecond apart.
    #[test]
    fn a_queue_falls_no_faster_than_it_drains() {
        let queue = |left: f64| {
            let into = left % 0.06;
            (0.8 * into).min(0.4 * (0.06 - into))
        };
        assert_eq!(seen(200, 1.2e7, queue, |_| 0.016), 0.0);
    }

    /// Every 40 ms a host reads nothing for 10 ms, and then all in one go.
    #[test]
    fn a_host_that_reads_late_is_no_jitter() {
        let stall = |left: f64| {
            let into = left % 0.04;
            if into < 0.01 { 0.01 - into } else { 0.0 }
        };
        assert_eq!(seen(200, 1e7, stall, |_| 0.008), 0.0);
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let ends = |left: f64| if left < 0.2 { lasts(left) } else { 0.0 };
        assert!(seen(200, 1e7, ends, |_| 0.008) > 0.0);
        assert_eq!(seen(1200, 1e7, ends, |_| 0.008), 0.0);
    }
}

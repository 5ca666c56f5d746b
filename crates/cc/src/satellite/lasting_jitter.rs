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
        // Others may overtake a packet: its round trip says nothing.
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

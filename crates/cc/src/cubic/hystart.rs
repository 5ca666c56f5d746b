//! HyStart++ (RFC 9406): leave slow start when the round-trip time grows, in two steps.

use bentpipe_units::{Span, Time};

use super::least;
use crate::Acked;

/// Least growth of the round trip that counts (this constant and the others: section 4.3).
const MIN_RTT_THRESH: Span = Span::from_millis(4);
/// Most growth of the round trip that is waited for.
const MAX_RTT_THRESH: Span = Span::from_millis(16);
/// In between it is the round trip divided by this.
const MIN_RTT_DIVISOR: u64 = 8;
/// Samples of a round before it is judged.
const N_RTT_SAMPLE: u32 = 8;
/// The window grows so many times slower in conservative slow start.
const CSS_GROWTH_DIVISOR: f64 = 4.0;
/// Rounds of conservative slow start.
const CSS_ROUNDS: u32 = 5;

/// Only for the first slow start (section 4.2). L is unlimited: the sender paces.
#[derive(Debug, Clone, Default)]
pub struct HyStart {
    round_from: Time,
    /// lastRoundMinRTT and currentRoundMinRTT.
    last: Option<Span>,
    current: Option<Span>,
    samples: u32,
    /// Conservative slow start: cssBaselineMinRtt, and rounds spent in it.
    conservative: Option<(Span, u32)>,
    done: bool,
}

impl HyStart {
    /// Whether slow start is over.
    pub(super) fn done(&self) -> bool {
        self.done
    }

    /// What to divide the growth for this packet by.
    pub(super) fn on_acked(&mut self, packet: &Acked) -> f64 {
        if packet.sent >= self.round_from {
            self.round_from = packet.now;
            self.last = self.current.take().or(self.last);
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                self.done |= *rounds >= CSS_ROUNDS;
            }
        }
        self.current = least(self.current, packet.rtt());
        self.samples += 1;
        if self.samples >= N_RTT_SAMPLE
            && let (Some(current), Some(last)) = (self.current, self.last)
        {
            match self.conservative {
                None => {
                    let eighth = Span::from_nanos(last.as_nanos() / MIN_RTT_DIVISOR);
                    if current >= last + eighth.clamp(MIN_RTT_THRESH, MAX_RTT_THRESH) {
                        self.conservative = Some((current, 0));
                    }
                }
                // The growth was jitter: back to slow start.
                Some((baseline, _)) if current < baseline => self.conservative = None,
                Some(_) => {}
            }
        }
        self.conservative.map_or(1.0, |_| CSS_GROWTH_DIVISOR)
    }
}

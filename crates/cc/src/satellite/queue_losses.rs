//! Losses of a shared queue, told from the radio's by how much of it stands when they come.
//!
//! A queue that is kept short, or that somebody else fills, drops a packet now and then, too few for a trial of
//! less. But it drops them while more stands than usual. So each loss is ranked among what has stood in the
//! rounds before, and losses whose ranks are high on average are answered as marks are.

use std::collections::VecDeque;

use bentpipe_units::Time;

use super::constants::queue_losses::*;

/// See the [module](self).
#[derive(Debug, Clone)]
pub(super) struct QueueLosses {
    /// Seconds of queue in the rounds before, in order of time.
    stood: VecDeque<f64>,
    /// Mean rank of losses, 0 to 1.
    rank: f64,
    /// Losses of packets sent until then have been ranked.
    recovery_from: Option<Time>,
}

impl QueueLosses {
    pub(super) fn new() -> Self {
        Self {
            stood: VecDeque::new(),
            rank: CHANCE,
            recovery_from: None,
        }
    }

    /// A round ends with so many seconds of queue.
    pub(super) fn on_round(&mut self, standing: f64) {
        self.stood.push_back(standing);
        if self.stood.len() > ROUNDS {
            self.stood.pop_front();
        }
    }

    /// Packets are lost, the newest of which left at `sent`, while so many seconds of queue stand. Whether this is
    /// the first loss of a recovery period (RFC 9002, section 7.3.2), and a queue's. In jitter that lasts ranks say less.
    pub(super) fn on_loss(
        &mut self,
        now: Time,
        sent: Time,
        standing: f64,
        in_jitter: bool,
    ) -> bool {
        if self.recovery_from.is_some_and(|from| sent <= from) {
            return false;
        }
        self.recovery_from = Some(now);
        let count = |is: fn(f64, f64) -> bool| {
            self.stood
                .iter()
                .filter(|stood| is(**stood, standing))
                .count() as f64
        };
        let (below, same) = (
            count(|stood, now| stood < now),
            count(|stood, now| stood == now),
        );
        let rank = (below + CHANCE * (same + 1.0)) / (self.stood.len() as f64 + 1.0);
        self.rank += GAIN * (rank - self.rank);
        self.rank > if in_jitter { HIGH_IN_JITTER } else { HIGH }
    }
}

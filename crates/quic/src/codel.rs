//! Controlled delay (RFC 8289) for a queue of packets that are sent one after the other.
//!
//! A queue may hold a burst; one that has stood above the target for an interval loses
//! packets, ever more often, until it is below. The names are those of the pseudo-code in
//! section 5.

use std::time::Duration;

use tokio::time::Instant;

/// What a packet may wait while the queue stands: so long, or this part of a round trip. A sender that halves its
/// window (RFC 9002, section 7.3.2) leaves the link idle unless about as much waits as is on its way, and what waits
/// delays its own request alone.
const TARGET: Duration = Duration::from_millis(20);
const OF_ROUND_TRIP: u32 = 2;
/// Time for senders to react: a round trip on the ground behind the satellite's.
const INTERVAL: Duration = Duration::from_millis(700);
/// A queue of less is never dropped from: one full packet (section 5.1), bytes.
const MAX_PACKET: usize = 1500;

/// The state of one queue.
#[derive(Debug, Default)]
pub(crate) struct CoDel {
    first_above_time: Option<Instant>,
    /// While dropping: when the next packet is dropped.
    drop_next: Option<Instant>,
    count: u32,
}

impl CoDel {
    /// Whether the packet that entered at `entered` and is to be sent `now`, over a path of this
    /// `round_trip`, is dropped instead, with `left` bytes in the queue behind it.
    pub(crate) fn drops(
        &mut self,
        now: Instant,
        entered: Instant,
        round_trip: Duration,
        left: usize,
    ) -> bool {
        if now.saturating_duration_since(entered) < TARGET.max(round_trip / OF_ROUND_TRIP)
            || left <= MAX_PACKET
        {
            self.first_above_time = None;
            self.drop_next = None;
            return false;
        }
        let above = *self.first_above_time.get_or_insert(now + INTERVAL);
        if now < above {
            return false;
        }
        match self.drop_next {
            None => {
                // Section 5.4: the rate that controlled the queue last time is a good guess.
                self.count = (self.count / 2).max(1);
                self.drop_next = Some(self.control_law(now));
            }
            Some(at) if now >= at => {
                self.count += 1;
                self.drop_next = Some(self.control_law(at));
            }
            Some(_) => return false,
        }
        true
    }

    /// Section 5.3: the next drop comes after interval / sqrt(count).
    fn control_law(&self, from: Instant) -> Instant {
        from + INTERVAL.div_f64(f64::from(self.count).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(100);

    #[test]
    fn a_burst_is_kept_and_a_standing_queue_is_not() {
        #[expect(clippy::disallowed_methods, reason = "any moment will do")]
        let start = Instant::now();
        let dropped_in = |codel: &mut CoDel, from: u64, to: u64, waited: u64| {
            let drops = (from..to).filter(|&ms| {
                let now = start + Duration::from_millis(1000 + ms);
                codel.drops(
                    now,
                    now - Duration::from_millis(waited),
                    ROUND_TRIP,
                    100_000,
                )
            });
            drops.count()
        };
        let mut codel = CoDel::default();
        assert_eq!(dropped_in(&mut codel, 0, 600, 200), 0, "a burst");
        assert_eq!(dropped_in(&mut codel, 600, 2000, 49), 0, "below the target");
        let slowly = dropped_in(&mut codel, 2000, 5000, 51);
        let faster = dropped_in(&mut codel, 5000, 8000, 51);
        assert!(slowly > 1 && faster > slowly, "{slowly}, {faster}");
    }
}

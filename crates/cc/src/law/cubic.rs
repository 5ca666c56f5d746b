//! CUBIC's window (RFC 9438, section 4), once per round trip, for company that follows it.

use bentpipe_units::Time;

use super::constants::*;

#[derive(Debug, Clone, Copy)]
pub(super) struct Curve {
    /// W_max and cwnd_epoch, packets.
    most: f64,
    from: f64,
    /// cwnd_prior and W_est, packets.
    prior: f64,
    reno: f64,
    since: Time,
}

impl Curve {
    /// Begins at `now` with a window of `window` packets that was `most` before.
    pub(super) fn new(now: Time, window: f64, most: f64) -> Self {
        let most = most.max(window);
        Self {
            most,
            from: window,
            prior: most,
            reno: window,
            since: now,
        }
    }

    /// Section 4.6 and 4.7: the window after a decrease to `share`.
    pub(super) fn cut(&mut self, now: Time, window: f64, share: f64) -> f64 {
        let most = if window < self.most {
            window * (1.0 + share) / 2.0
        } else {
            window
        };
        let after = (window * share).max(2.0);
        *self = Self::new(now, after, most);
        self.prior = window;
        after
    }

    /// Sections 4.2 to 4.5: the window a round trip of `rtt` seconds later.
    pub(super) fn grown(&mut self, now: Time, window: f64, rtt: f64) -> f64 {
        let alpha = if self.reno >= self.prior { 1.0 } else { ALPHA };
        self.reno += alpha;
        let k = ((self.most - self.from) / C).max(0.0).cbrt();
        let t = now.since(self.since).as_secs_f64() + rtt;
        let target = C * (t - k).powi(3) + self.most;
        target.clamp(window, 1.5 * window).max(self.reno)
    }
}

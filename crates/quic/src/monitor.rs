//! A watch over a connection's congestion controller: its window, pacing and losses, now and at
//! each change.
//!
//! The controller that the library calls is wrapped in one that passes every call on and notes
//! what came of it. It works for every controller, the library's own too.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerMetrics};

/// Changes that are kept until somebody takes them: 20 s of GEO at 170 acknowledgements per second.
const MOST_CHANGES: usize = 1 << 12;

/// A sender's state; counts are since the connection began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderState {
    /// When it was so.
    pub at: Instant,
    /// Congestion window, bytes.
    pub window: u64,
    /// Slow-start threshold in bytes, where there is one.
    pub threshold: Option<u64>,
    /// Pacing rate, bytes per second, where the controller has one.
    pub pacing: Option<u64>,
    /// Bytes sent and neither acknowledged nor given up.
    pub in_flight: u64,
    /// Smoothed round-trip time (RFC 9002, section 5.3), once there is one.
    pub smoothed_rtt: Option<Duration>,
    /// Least time from a packet to its acknowledgement, the peer's delay included.
    pub least_rtt: Option<Duration>,
    /// Bytes acknowledged, UDP payload of packets.
    pub acknowledged: u64,
    /// Packets given up, and their bytes.
    pub lost_packets: u64,
    /// UDP payload of the packets given up.
    pub lost_bytes: u64,
    /// Times that the controller was told of congestion, by loss or mark.
    pub congestion_events: u64,
    /// Of these, those by a mark (RFC 3168).
    pub marks: u64,
}

impl SenderState {
    /// Whether `other` differs in what a controller decides or what it is told of congestion.
    fn changes(&self, other: &Self) -> bool {
        self.window != other.window
            || self.threshold != other.threshold
            || self.pacing != other.pacing
            || self.lost_packets != other.lost_packets
            || self.congestion_events != other.congestion_events
    }
}

/// The watch over one connection's controller. Clones are the same watch.
#[derive(Debug, Clone)]
pub struct Monitor(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    state: SenderState,
    changes: Vec<SenderState>,
    /// Changes for which there was no room.
    omitted: u64,
    /// Whether changes are kept at all.
    keeps: bool,
}

impl Monitor {
    /// `controller`, watched from `now` on.
    pub(crate) fn watch(controller: Box<dyn Controller>, now: Instant) -> Box<dyn Controller> {
        let metrics = controller.metrics();
        let state = SenderState {
            at: now,
            window: controller.window(),
            threshold: metrics.ssthresh,
            pacing: metrics.pacing_rate,
            in_flight: 0,
            smoothed_rtt: None,
            least_rtt: None,
            acknowledged: 0,
            lost_packets: 0,
            lost_bytes: 0,
            congestion_events: 0,
            marks: 0,
        };
        Box::new(Watched {
            inner: controller,
            monitor: Self(Arc::new(Mutex::new(Inner {
                state,
                changes: Vec::new(),
                omitted: 0,
                keeps: false,
            }))),
        })
    }

    /// The watch over the controller that a connection's path has now, if there is one.
    pub fn of(controller: Box<dyn Controller>) -> Option<Self> {
        let watched = controller.into_any().downcast::<Watched>().ok()?;
        Some(watched.monitor)
    }

    /// The state.
    pub fn state(&self) -> SenderState {
        self.lock().state
    }

    /// Changes are kept from now on.
    pub fn keep_changes(&self) {
        self.lock().keeps = true;
    }

    /// The changes since the last call, and how many more there were no room for.
    pub fn take_changes(&self) -> (Vec<SenderState>, u64) {
        let mut inner = self.lock();
        let changes = std::mem::take(&mut inner.changes);
        (changes, std::mem::take(&mut inner.omitted))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Watched {
    inner: Box<dyn Controller>,
    monitor: Monitor,
}

impl Watched {
    /// Notes what `told` changes and what the controller makes of it.
    fn note(&self, now: Instant, told: impl FnOnce(&mut SenderState)) {
        let inner = &mut *self.monitor.lock();
        let before = inner.state;
        let metrics = self.inner.metrics();
        let state = &mut inner.state;
        told(state);
        state.at = now;
        state.window = self.inner.window();
        state.threshold = metrics.ssthresh;
        state.pacing = metrics.pacing_rate;
        if !inner.keeps || !state.changes(&before) {
            return;
        }
        if inner.changes.len() < MOST_CHANGES {
            inner.changes.push(*state);
        } else {
            inner.omitted += 1;
        }
    }
}

impl Controller for Watched {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest: u64) {
        self.inner.on_sent(now, bytes, largest);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, number: u64) {
        self.inner.on_packet_sent(now, bytes, number);
        self.monitor.lock().state.in_flight += u64::from(bytes);
    }

    fn on_cwnd_limited(&mut self) {
        self.inner.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        number: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner
            .on_ack(now, sent, bytes, number, app_limited, rtt);
        let sample = now.saturating_duration_since(sent);
        let state = &mut self.monitor.lock().state;
        state.acknowledged += bytes;
        state.smoothed_rtt = Some(rtt.get());
        state.least_rtt = Some(state.least_rtt.map_or(sample, |least| least.min(sample)));
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest: Option<u64>,
    ) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
        self.note(now, |state| state.in_flight = in_flight);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        marked: bool,
        lost: u64,
        largest: u64,
    ) {
        self.inner
            .on_congestion_event(now, sent, persistent, marked, lost, largest);
        self.note(now, |state| {
            state.congestion_events += 1;
            state.marks += u64::from(marked);
        });
    }

    fn on_packet_lost(&mut self, bytes: u16, number: u64, now: Instant) {
        self.inner.on_packet_lost(bytes, number, now);
        let bytes = u64::from(bytes);
        self.note(now, |state| {
            state.in_flight = state.in_flight.saturating_sub(bytes);
            state.lost_packets += 1;
            state.lost_bytes += bytes;
        });
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.inner.on_mtu_update(mtu);
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, delay: Duration) {
        self.inner.on_ack_frequency_update(threshold, delay);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            monitor: self.monitor.clone(),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

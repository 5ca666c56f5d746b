//! Our controllers behind the QUIC library's trait. Nothing else implements it, but
//! [`monitor`](crate::monitor), which only watches.
//!
//! What the library does that the controllers need not know: its round-trip
//! estimate is updated after the acknowledgements are told; it counts time in
//! [`Instant`]s; its metrics type can only be built from the default; packets of
//! all packet number spaces are told alike, and what of the handshake it no longer waits
//! for (RFC 9001, section 4.9) is given up without a word.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bentpipe_cc::{Acked, AcksDone, Congestion, Controller, Lost, PathMemory, Sent, Shared};
use bentpipe_units::{Span, Time};
use noq_proto::RttEstimator;
use noq_proto::congestion::{self, ControllerFactory, ControllerMetrics};

use crate::clock;
use crate::monitor::Monitor;
use crate::pacing::BurstLimiter;
use crate::selection::{Selection, Settings};

/// Makes the controllers of one endpoint's connections.
#[derive(Debug, Clone)]
pub struct Factory {
    settings: Settings,
    memory: PathMemory,
    /// Connections so far: each has its own random numbers.
    connections: Arc<AtomicU64>,
    /// Whether each connection's controller is watched.
    monitored: bool,
    /// What the connections share instead of each having a controller of its own.
    together: Option<Together>,
}

/// A rate at which a window takes no time to leave, bytes per second. At more the wait for a byte of it would round
/// to nothing, and the library would ask again in the same moment for ever.
const UNPACED: u64 = 1_000_000_000;

/// One controller for all connections with a peer. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Together {
    controller: Shared,
    /// When its clock began.
    began: Arc<OnceLock<Instant>>,
}

impl Factory {
    /// Controllers by `settings`; connections to one peer share `memory`.
    pub fn new(settings: Settings, memory: PathMemory) -> Self {
        Self {
            settings,
            memory,
            connections: Arc::default(),
            monitored: false,
            together: None,
        }
    }

    /// The same, for connections that share a controller. The library's own cannot be
    /// shared.
    #[must_use]
    pub fn together(self, together: Option<Together>) -> Self {
        Self { together, ..self }
    }

    /// The same, with a [`Monitor`] for each connection.
    #[must_use]
    pub fn monitored(self) -> Self {
        Self {
            monitored: true,
            ..self
        }
    }

    fn make(&self, now: Instant, mtu: u16) -> Box<dyn congestion::Controller> {
        let window = u64::from(self.settings.initial_window) * u64::from(mtu);
        let choice = match self.settings.controller {
            Selection::Own(choice) => choice,
            Selection::LibraryBbr3 => {
                let mut config = congestion::Bbr3Config::default();
                config.initial_window(window);
                return Arc::new(config).build(now, mtu);
            }
        };
        let packet = u64::from(mtu);
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let mut settings = self.settings.clone().with_controller(choice);
        // 2^64 divided by the golden ratio spreads neighbouring seeds.
        settings.seed ^= number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let make = || settings.build(packet, window, &self.memory);
        let (controller, began) = match &self.together {
            None => (make(), now),
            Some(all) => (
                all.controller.join(packet, make),
                *all.began.get_or_init(|| now),
            ),
        };
        Box::new(Adapted {
            controller,
            bursts: BurstLimiter::new(packet),
            pacing: settings.pacing,
            began,
            initial_window: window,
            smoothed_rtt: settings.initial_rtt,
            in_flight: 0,
            packet,
            last: None,
        })
    }
}

impl ControllerFactory for Factory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn congestion::Controller> {
        let controller = self.make(now, mtu);
        match self.monitored {
            true => Monitor::watch(controller, now),
            false => controller,
        }
    }
}

#[derive(Debug)]
struct Adapted {
    controller: Box<dyn Controller>,
    bursts: BurstLimiter,
    /// Whether the window is spread over a round trip where the controller has no rate.
    pacing: bool,
    began: Instant,
    initial_window: u64,
    smoothed_rtt: Span,
    /// Bytes whose fate the controller has not been told.
    in_flight: u64,
    /// The largest packet, bytes.
    packet: u64,
    /// The last packet that has left, if nothing was acknowledged since.
    last: Option<Last>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    sent: Instant,
    /// Whether it went beyond the window, as a probe does.
    beyond: bool,
}

impl Adapted {
    fn time(&self, at: Instant) -> Time {
        Time::ZERO + span(at.saturating_duration_since(self.began))
    }

    /// Bytes per second: the controller's, or RFC 9002's (section 7.7) with N = 1.25.
    ///
    /// Without a rate the library's pacer collects ten packets before it sends any, 6 ms of
    /// 20 Mbit/s; that is left to it only where ten packets take less than a burst may.
    fn rate(&self) -> u64 {
        (self.controller.pacing_rate()).unwrap_or_else(|| self.rate_of_window())
    }

    fn rate_of_window(&self) -> u64 {
        if !self.pacing {
            return UNPACED;
        }
        let window = u128::from(self.controller.window());
        let nanos = u128::from(self.smoothed_rtt.as_nanos().max(1));
        u64::try_from(window * 1_250_000_000 / nanos).unwrap_or(u64::MAX)
    }
}

impl Adapted {
    /// Whether a packet may leave beyond the window, because it is full, the library has probed in vain and has
    /// sent nothing for half a round trip; for two where nothing tells a probe, as in a window that makes room for these.
    ///
    /// The library (1.3.0) sends no acknowledgement while there is data to send for which the window has no
    /// room. After an outage that has swallowed a window of data, an end in that state answers nothing until its
    /// next probe, many seconds later. When it looks in the middle of a silence whether there is something to send,
    /// it is because it hears the other end again.
    fn may_answer(&self, now: Instant) -> bool {
        let Some(last) = self.last else {
            return false;
        };
        let rtt = self.smoothed_rtt.as_nanos();
        let full = self.in_flight + self.packet >= self.controller.window();
        let pause = if last.beyond { rtt / 2 } else { 2 * rtt };
        full && now.saturating_duration_since(last.sent) >= Duration::from_nanos(pause)
    }

    fn acked(&mut self, packet: &Acked) {
        self.smoothed_rtt = packet.smoothed_rtt;
        self.in_flight = self.in_flight.saturating_sub(packet.bytes);
        self.controller.on_acked(packet);
    }
}

fn span(duration: Duration) -> Span {
    Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

impl congestion::Controller for Adapted {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, number: u64) {
        let bytes = u64::from(bytes);
        self.last = Some(Last {
            sent: now,
            beyond: self.in_flight + bytes > self.controller.window(),
        });
        let now = self.time(now);
        self.in_flight += bytes;
        self.controller.on_sent(Sent { now, number, bytes });
        self.bursts.on_sent(now, bytes, self.rate());
    }

    fn on_cwnd_limited(&mut self) {
        self.bursts.on_window_limited();
        self.controller.on_window_limited();
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
        let packet = Acked {
            now: self.time(now),
            sent: self.time(sent),
            number,
            bytes,
            app_limited,
            smoothed_rtt: span(rtt.get()),
        };
        self.acked(&packet);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, _: Option<u64>) {
        self.last = None;
        let now = self.time(now);
        let forgotten = self.in_flight.saturating_sub(in_flight);
        if forgotten > 0 {
            self.in_flight = in_flight;
            self.controller.on_forgotten(forgotten);
        }
        self.controller.on_acks_done(AcksDone {
            now,
            in_flight,
            app_limited,
        });
        self.bursts.on_acks_done(now, self.rate(), app_limited);
    }

    fn on_packet_lost(&mut self, bytes: u16, number: u64, now: Instant) {
        let now = self.time(now);
        let bytes = u64::from(bytes);
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.controller.on_lost(Lost { now, number, bytes });
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        marked: bool,
        lost: u64,
        _largest: u64,
    ) {
        let event = Congestion {
            now: self.time(now),
            sent: self.time(sent),
            persistent,
            marked,
            lost,
        };
        self.controller.on_congestion(&event);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.controller.on_spurious_congestion();
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.packet = u64::from(mtu);
        self.controller.on_packet_size(u64::from(mtu));
        self.bursts.on_packet_size(u64::from(mtu));
    }

    fn window(&self) -> u64 {
        let window = self.controller.window();
        match clock::now_on_runtime().is_some_and(|now| self.may_answer(now)) {
            // The library asks for more than a packet's room.
            true => window.max(self.in_flight + 2 * self.packet),
            false => window,
        }
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.controller.window();
        metrics.ssthresh = self.controller.slow_start_threshold();
        let own = self.controller.pacing_rate();
        let rate = own.unwrap_or_else(|| self.rate_of_window());
        if rate == UNPACED {
            metrics.pacing_rate = Some(UNPACED);
            return metrics;
        }
        let told = own.is_some() || self.bursts.matter(rate);
        metrics.pacing_rate = told.then(|| self.bursts.rate(rate));
        metrics
    }

    fn clone_box(&self) -> Box<dyn congestion::Controller> {
        Box::new(Self {
            controller: self.controller.clone_box(),
            bursts: self.bursts.clone(),
            ..*self
        })
    }

    fn initial_window(&self) -> u64 {
        self.initial_window
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_cc::Choice;
    use noq_proto::congestion::Controller as _;

    use super::*;

    const PACKET: u16 = 1_200;

    /// Of a connection over 600 ms, and when it began.
    fn geo(choice: Choice) -> (Box<Adapted>, Instant) {
        let mut settings = Settings::new(Selection::Own(choice));
        settings.initial_rtt = Span::from_millis(600);
        #[expect(clippy::disallowed_methods, reason = "any moment will do")]
        let began = Instant::now();
        let made = Factory::new(settings, PathMemory::default()).make(began, PACKET);
        let ours = made.into_any().downcast::<Adapted>().expect("it is ours");
        (ours, began)
    }

    /// Of a handshake that is over the library tells nothing more. If its packets counted as in
    /// flight for good, each pause would be a blackout to the satellite controller, and what
    /// follows would leave at eight packets per round trip.
    #[test]
    fn a_handshake_that_was_given_up_is_not_in_flight() {
        let bytes = u64::from(PACKET);
        let (mut ours, began) = geo(Choice::Satellite);
        let at = |ms| Time::ZERO + Span::from_millis(ms);
        let moment = |ms| began + Duration::from_millis(ms);
        // The first is of the handshake, and nobody hears of it again.
        for number in 0..=40 {
            ours.on_packet_sent(moment(number), PACKET, number);
        }
        for number in 1..=40 {
            let now = 600 + number;
            ours.acked(&Acked {
                now: at(now),
                sent: at(number),
                number,
                bytes,
                app_limited: false,
                smoothed_rtt: Span::from_millis(600),
            });
            let left = bytes * (40 - number);
            ours.on_end_acks(moment(now), left, false, Some(number));
        }
        let before = ours.controller.pacing_rate();
        ours.on_packet_sent(moment(5_000), PACKET, 41);
        assert_eq!(ours.controller.pacing_rate(), before);
    }

    /// A satellite controller's window has room for the library's probes, so that none of them goes beyond it.
    #[test]
    fn a_full_window_is_no_reason_not_to_answer_after_a_silence() {
        let (mut ours, began) = geo(Choice::NewReno);
        let may_answer = |ours: &Adapted, ms| ours.may_answer(began + Duration::from_millis(ms));
        ours.on_packet_sent(began, PACKET, 0);
        assert!(!may_answer(&ours, 60_000), "there is room");
        let room = ours.window() / u64::from(PACKET);
        for number in 1..room {
            ours.on_packet_sent(began, PACKET, number);
        }
        assert!(!may_answer(&ours, 1_100), "acknowledgements may come");
        assert!(may_answer(&ours, 1_300));
        ours.on_packet_sent(began, PACKET, room);
        assert!(!may_answer(&ours, 200));
        assert!(may_answer(&ours, 400), "that was a probe");
        let in_flight = ours.in_flight;
        ours.on_end_acks(began, in_flight, false, None);
        assert!(!may_answer(&ours, 60_000), "it is heard");
    }
}

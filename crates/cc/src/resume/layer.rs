//! Careful Resume's phases (RFC 9959, section 4) around another controller.

use bentpipe_units::Time;

use super::{Path, PathMemory};
use crate::convert::whole;
use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};

/// Section 4.3: the jump, share of the saved window.
const JUMP: f64 = 0.5;
/// Section 4.4: the window after a safe retreat, share of what arrived.
const RETREAT: f64 = 0.5;
/// Section 3.1: least window that is saved, initial windows.
const MIN_SAVED: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Section 4.2: is it the same path?
    Reconnaissance,
    /// Section 4.3: the jump is out, nothing of it has come back.
    Unvalidated { since: Time, window: u64 },
    /// Section 4.3.1: it comes back; `last` of it was sent then.
    Validating { since: Time, last: Time },
    /// Section 4.4: it was too much.
    Retreat { since: Time, last: Time },
    /// The controller inside alone.
    Normal,
}

/// A controller that starts where an earlier connection ended.
#[derive(Debug)]
pub struct CarefulResume {
    inner: Box<dyn Controller>,
    memory: PathMemory,
    phase: Phase,
    initial_window: u64,
    packet: u64,
    /// PipeSize: bytes that the path is known to hold: what was in flight before the
    /// jump, and what has come back of it.
    pipe: u64,
    in_flight: u64,
    last_sent: Time,
    rtt: f64,
    /// A round's delivered bytes, to save.
    round: (Time, u64),
    least_rtt: Option<bentpipe_units::Span>,
}

impl CarefulResume {
    /// Puts `inner` in the layer.
    pub fn new(
        inner: Box<dyn Controller>,
        packet: u64,
        initial_window: u64,
        memory: PathMemory,
    ) -> Self {
        Self {
            inner,
            memory,
            phase: Phase::Reconnaissance,
            initial_window,
            packet,
            pipe: 0,
            in_flight: 0,
            last_sent: Time::ZERO,
            rtt: 0.0,
            round: (Time::ZERO, 0),
            least_rtt: None,
        }
    }

    /// Section 3.1: saves the bytes acknowledged in a round trip.
    fn save(&mut self, packet: &Acked) {
        self.round.1 += packet.bytes;
        let rtt = packet.rtt();
        self.least_rtt = Some(self.least_rtt.map_or(rtt, |least| least.min(rtt)));
        if packet.sent < self.round.0 {
            return;
        }
        let (from, bytes) = std::mem::replace(&mut self.round, (packet.now, 0));
        let over = packet.now.since(from).as_secs_f64();
        if self.phase == Phase::Normal
            && !packet.app_limited
            && bytes >= MIN_SAVED * self.initial_window
            && over > 0.0
            && from > Time::ZERO
            && let Some(least) = self.least_rtt
        {
            self.memory.save(Path {
                rate: bytes as f64 / over,
                rtt: least,
            });
        }
    }
}

impl CarefulResume {
    /// Section 4.3: the path is the same, so jump.
    fn jump(&mut self, now: Time, path: Path) {
        let window = whole(path.window() * JUMP);
        self.pipe = self.in_flight;
        self.phase = Phase::Unvalidated { since: now, window };
    }

    /// Section 4.3: the first of the jump has arrived, and nothing was lost. The window is
    /// what is in flight, however much more was allowed.
    fn validate(&mut self, since: Time) {
        if self.in_flight <= self.pipe.max(self.initial_window) {
            let window = self.pipe.max(self.initial_window);
            self.phase = Phase::Normal;
            self.inner.resume_at(window, None);
        } else {
            let last = self.last_sent;
            self.phase = Phase::Validating { since, last };
            self.inner.resume_at(self.in_flight, None);
        }
    }

    /// Section 4.4: half of what the path is known to hold, at least two packets.
    fn retreat(&self) -> u64 {
        whole(self.pipe as f64 * RETREAT).max(2 * self.packet)
    }
}

impl Controller for CarefulResume {
    fn on_sent(&mut self, packet: Sent) {
        self.last_sent = packet.now;
        self.in_flight += packet.bytes;
        self.inner.on_sent(packet);
    }

    fn on_window_limited(&mut self) {
        self.inner.on_window_limited();
    }

    fn on_acked(&mut self, packet: &Acked) {
        self.rtt = packet.rtt().as_secs_f64();
        self.in_flight = self.in_flight.saturating_sub(packet.bytes);
        // Section 4.1: until there is more to send than the window allows. A gateway learns
        // only from the handshake with whom it speaks, and so what it may remember.
        if self.phase == Phase::Reconnaissance && !packet.app_limited {
            match self.memory.like(packet.rtt()) {
                Some(path) => self.jump(packet.now, path),
                None => self.phase = Phase::Normal,
            }
        }
        match self.phase {
            Phase::Unvalidated { since, .. } if packet.sent >= since => {
                self.pipe += packet.bytes;
                self.validate(since);
            }
            Phase::Validating { since, last } if packet.sent >= since => {
                self.pipe += packet.bytes;
                if packet.sent >= last {
                    self.phase = Phase::Normal;
                }
            }
            Phase::Retreat { since, last } if packet.sent >= since => {
                self.pipe += packet.bytes;
                if packet.sent >= last {
                    // Section 4.4: on leaving, ssthresh is half of what the path carried.
                    self.phase = Phase::Normal;
                    let window = self.retreat();
                    self.inner.resume_at(window, Some(window));
                }
            }
            _ => {}
        }
        self.save(packet);
        self.inner.on_acked(packet);
    }

    fn on_acks_done(&mut self, end: AcksDone) {
        self.inner.on_acks_done(end);
    }

    fn on_lost(&mut self, packet: Lost) {
        self.in_flight = self.in_flight.saturating_sub(packet.bytes);
        self.inner.on_lost(packet);
    }

    fn on_forgotten(&mut self, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.inner.on_forgotten(bytes);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        match self.phase {
            Phase::Reconnaissance => self.phase = Phase::Normal,
            Phase::Unvalidated { since, .. } => {
                self.memory.forget();
                let last = self.last_sent;
                self.phase = Phase::Retreat { since, last };
            }
            Phase::Validating { since, last } => {
                self.memory.forget();
                self.phase = Phase::Retreat { since, last };
            }
            _ => {}
        }
        self.inner.on_congestion(event);
    }

    fn on_spurious_congestion(&mut self) {
        self.inner.on_spurious_congestion();
    }

    fn on_packet_size(&mut self, bytes: u64) {
        self.packet = bytes;
        self.inner.on_packet_size(bytes);
    }

    fn window(&self) -> u64 {
        match self.phase {
            Phase::Unvalidated { window, .. } => self.inner.window().max(window),
            Phase::Retreat { .. } => self.retreat(),
            _ => self.inner.window(),
        }
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        self.inner.slow_start_threshold()
    }

    fn pacing_rate(&self) -> Option<u64> {
        match self.phase {
            // Section 4.3: all packets of the jump are paced over a round trip.
            Phase::Unvalidated { .. } if self.rtt > 0.0 => {
                Some(whole(self.window() as f64 / self.rtt))
            }
            _ => self.inner.pacing_rate(),
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            memory: self.memory.clone(),
            ..*self
        })
    }
}

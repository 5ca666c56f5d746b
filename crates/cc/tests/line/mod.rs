//! The smallest path that has a bottleneck: one rate, one round trip, one drop-tail queue,
//! an acknowledgement for each packet. A lost packet is noticed three packets later.

use std::collections::VecDeque;

use bentpipe_cc::{Acked, AcksDone, Congestion, Controller, Lost, Sent};
use bentpipe_units::{Span, Time};

/// UDP payload of each packet.
pub const PACKET: u64 = 1200;

/// What became of a packet on its way.
#[derive(Debug, Clone, Copy)]
struct Flying {
    sent: Time,
    number: u64,
    /// When its acknowledgement comes; a dropped one is noticed by the later ones.
    back: Option<Time>,
}

/// A sender with `controller` on the line.
pub struct Line {
    pub controller: Box<dyn Controller>,
    /// Bytes per second.
    pub rate: f64,
    pub rtt: Span,
    /// Bytes that may wait.
    pub queue: f64,
    /// Packets that the application has per round trip, one by one; `None`: always more.
    pub application: Option<u64>,
    /// Acknowledgements that are due in this time come at its end: the way back is busy.
    pub held: Option<(Time, Time)>,
    pub now: Time,
    free_at: Time,
    may_send: Time,
    flying: VecDeque<Flying>,
    number: u64,
    in_flight: u64,
    pub smoothed: Span,
    pub dropped: u64,
    /// Bytes acknowledged.
    pub delivered: u64,
    pub most_in_flight: u64,
}

impl Line {
    /// `bits` per second, `rtt` milliseconds, a queue of `bdps` bandwidth-delay products.
    pub fn new(controller: Box<dyn Controller>, bits: u64, rtt: u64, bdps: f64) -> Self {
        let rate = bits as f64 / 8.0;
        Self {
            controller,
            rate,
            rtt: Span::from_millis(rtt),
            queue: rate * rtt as f64 / 1e3 * bdps,
            application: None,
            held: None,
            now: Time::ZERO,
            free_at: Time::ZERO,
            may_send: Time::ZERO,
            flying: VecDeque::new(),
            number: 0,
            in_flight: 0,
            smoothed: Span::from_millis(rtt),
            dropped: 0,
            delivered: 0,
            most_in_flight: 0,
        }
    }

    /// Packets in the window.
    pub fn window(&self) -> u64 {
        self.controller.window() / PACKET
    }

    /// Bytes per second.
    pub fn pacing(&self) -> f64 {
        let spread = || 1.25 * self.controller.window() as f64 / self.smoothed.as_secs_f64();
        (self.controller.pacing_rate()).map_or_else(spread, |rate| rate as f64)
    }

    /// One base round trip; then the window in packets.
    pub fn round(&mut self) -> u64 {
        let until = self.now + self.rtt;
        loop {
            let ack = self.flying.iter().find_map(|packet| packet.back);
            let room = self.in_flight + PACKET <= self.controller.window();
            let send = room.then(|| self.may_send.max(self.now));
            match (send, ack) {
                (Some(at), ack) if at < until && ack.is_none_or(|ack| at < ack) => self.send(at),
                (_, Some(at)) if at < until => self.acknowledge(at),
                (None, None) if !self.flying.is_empty() => self.give_up(),
                _ => break,
            }
        }
        self.now = until;
        self.window()
    }

    pub fn rounds(&mut self, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.round()).collect()
    }

    fn send(&mut self, at: Time) {
        self.now = at;
        self.controller.on_sent(Sent {
            now: at,
            number: self.number,
            bytes: PACKET,
        });
        let paced = seconds(PACKET as f64 / self.pacing());
        let wanted = (self.application).map_or(Span::ZERO, |count| {
            Span::from_nanos(self.rtt.as_nanos() / count)
        });
        self.may_send = at + paced.max(wanted);
        let waiting = self.free_at.since(at).as_secs_f64() * self.rate;
        let back = (waiting <= self.queue).then(|| {
            self.free_at = self.free_at.max(at) + seconds(PACKET as f64 / self.rate);
            let due = self.free_at + self.rtt;
            let held = self
                .held
                .filter(|(from, until)| (*from..*until).contains(&due));
            held.map_or(due, |(_, until)| until)
        });
        self.dropped += u64::from(back.is_none());
        self.flying.push_back(Flying {
            sent: at,
            number: self.number,
            back,
        });
        self.number += 1;
        self.in_flight += PACKET;
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        if self.in_flight + PACKET > self.controller.window() {
            self.controller.on_window_limited();
        }
    }

    /// All in flight was dropped: a probe finds that out (RFC 9002, section 6.2).
    fn give_up(&mut self) {
        self.lose_all(false);
    }

    /// All in flight is lost; over a persistent-congestion period (section 7.6) or not.
    pub fn lose_all(&mut self, persistent: bool) {
        let now = self.now;
        let sent = self.flying.back().map_or(now, |last| last.sent);
        self.dropped += self
            .flying
            .iter()
            .filter(|packet| packet.back.is_some())
            .count() as u64;
        for packet in std::mem::take(&mut self.flying) {
            self.in_flight -= PACKET;
            self.controller.on_lost(Lost {
                now,
                number: packet.number,
                bytes: PACKET,
            });
        }
        self.controller.on_congestion(&Congestion {
            now,
            sent,
            persistent,
            marked: false,
            lost: PACKET,
        });
    }

    fn acknowledge(&mut self, at: Time) {
        self.now = at;
        let index = (self.flying.iter().position(|packet| packet.back.is_some()))
            .expect("an acknowledgement is of a packet");
        let packet = self.flying.remove(index).expect("it is there");
        let rtt = at.since(packet.sent);
        let smoothed = (7 * self.smoothed.as_nanos() + rtt.as_nanos()) / 8;
        self.smoothed = Span::from_nanos(smoothed);
        self.in_flight -= PACKET;
        self.delivered += PACKET;
        let app_limited = self.application.is_some();
        self.controller.on_acked(&Acked {
            now: at,
            sent: packet.sent,
            number: packet.number,
            bytes: PACKET,
            app_limited,
            smoothed_rtt: self.smoothed,
        });
        self.controller.on_acks_done(AcksDone {
            now: at,
            in_flight: self.in_flight,
            app_limited,
        });
        // RFC 9002, section 6.1.1.
        let mut lost = None;
        while let Some(first) = self.flying.front().copied()
            && first.back.is_none()
            && packet.number >= first.number + 3
        {
            self.flying.pop_front();
            self.in_flight -= PACKET;
            self.controller.on_lost(Lost {
                now: at,
                number: first.number,
                bytes: PACKET,
            });
            lost = Some(first.sent);
        }
        if let Some(sent) = lost {
            self.controller.on_congestion(&Congestion {
                now: at,
                sent,
                persistent: false,
                marked: false,
                lost: PACKET,
            });
        }
    }
}

fn seconds(value: f64) -> Span {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the duration of a test"
    )]
    Span::from_nanos((value * 1e9) as u64)
}

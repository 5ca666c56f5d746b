//! One controller for several connections over one path, as RFC 3124's congestion manager has it
//! for several flows: together they have one window, one rate and one view of the path.
//!
//! A connection that begins finds the path known, and ten that begin together do not start ten
//! times. Those that have something to send have equal shares of what the others, who have
//! not, leave. All moments are on one clock, and packets have one numbering, in the order in which
//! they were sent.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Sub};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};

/// A controller that connections share. Clones are the same.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    controller: Option<Box<dyn Controller>>,
    members: BTreeMap<u64, Member>,
    /// What all members ask for.
    all: Demand,
    next_member: u64,
    next_packet: u64,
    packet: u64,
}

/// What is known of a connection.
#[derive(Default)]
struct Member {
    in_flight: u64,
    /// It has more to send than it may.
    busy: bool,
    /// Its packets without a fate: their numbers among all, and their bytes.
    packets: BTreeMap<u64, (u64, u64)>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        out.debug_struct("Shared")
            .field("controller", &state.controller)
            .field("members", &state.members.len())
            .finish()
    }
}

impl Shared {
    /// The controller of one more connection, whose full packets carry `packet` bytes. `make` makes
    /// the one that all share, if this is the first.
    pub fn join(
        &self,
        packet: u64,
        make: impl FnOnce() -> Box<dyn Controller>,
    ) -> Box<dyn Controller> {
        let mut state = self.lock();
        if state.controller.is_none() {
            state.controller = Some(make());
            state.packet = packet;
        }
        Box::new(self.member(&mut state))
    }

    /// How many connections share it.
    pub fn members(&self) -> usize {
        self.lock().members.len()
    }

    fn member(&self, state: &mut State) -> Part {
        let number = state.next_member;
        state.next_member += 1;
        state.members.insert(number, Member::default());
        Part {
            shared: self.clone(),
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's part.
#[derive(Debug)]
struct Part {
    shared: Shared,
    number: u64,
}

impl State {
    /// Changes what is known of a member, and returns what `change` does.
    fn change<T>(&mut self, number: u64, change: impl FnOnce(&mut Member) -> T) -> Option<T> {
        let member = self.members.get_mut(&number)?;
        let before = member.demand();
        let changed = change(member);
        let after = member.demand();
        self.all = self.all - before + after;
        Some(changed)
    }

    /// The whole window, and the share of the member of that number.
    fn share(&self, number: u64) -> (u64, u64) {
        let whole = self.controller.as_ref().map_or(0, |all| all.window());
        let own = self.members.get(&number).map(Member::demand);
        let others = self.all - own.unwrap_or_default();
        let share = whole.saturating_sub(others.idle) / (others.busy + 1);
        (whole, share.max(2 * self.packet))
    }
}

/// What members ask of the window.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    /// Those that have more to send than they may.
    busy: u64,
    /// Bytes that they have in flight, and those that the others have.
    held: u64,
    idle: u64,
}

impl Add for Demand {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            busy: self.busy + other.busy,
            held: self.held + other.held,
            idle: self.idle + other.idle,
        }
    }
}

impl Sub for Demand {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            busy: self.busy - other.busy,
            held: self.held - other.held,
            idle: self.idle - other.idle,
        }
    }
}

impl Member {
    fn demand(&self) -> Demand {
        let (held, idle) = match self.busy {
            true => (self.in_flight, 0),
            false => (0, self.in_flight),
        };
        let busy = u64::from(self.busy);
        Demand { busy, held, idle }
    }

    /// Takes a packet that has met its fate; its number among all.
    fn settle(&mut self, number: u64) -> Option<u64> {
        let (number, bytes) = self.packets.remove(&number)?;
        self.in_flight = self.in_flight.saturating_sub(bytes);
        Some(number)
    }
}

impl Controller for Part {
    fn on_sent(&mut self, packet: Sent) {
        let mut state = self.shared.lock();
        let number = state.next_packet;
        state.next_packet += 1;
        state.change(self.number, |member| {
            member.in_flight += packet.bytes;
            member.packets.insert(packet.number, (number, packet.bytes));
        });
        if let Some(controller) = &mut state.controller {
            controller.on_sent(Sent { number, ..packet });
        }
    }

    fn on_window_limited(&mut self) {
        let mut state = self.shared.lock();
        state.change(self.number, |member| member.busy = true);
        if let Some(controller) = &mut state.controller {
            controller.on_window_limited();
        }
    }

    fn on_acked(&mut self, packet: &Acked) {
        let mut state = self.shared.lock();
        let busy = state.all.busy > 0;
        let number = state.change(self.number, |member| member.settle(packet.number));
        if let (Some(Some(number)), Some(controller)) = (number, &mut state.controller) {
            controller.on_acked(&Acked {
                number,
                // The others may have used what this one has left.
                app_limited: packet.app_limited && !busy,
                ..*packet
            });
        }
    }

    fn on_acks_done(&mut self, end: AcksDone) {
        let mut state = self.shared.lock();
        state.change(self.number, |member| {
            member.busy = !end.app_limited;
            // Packets of the handshake may have been given up without a word.
            member.in_flight = end.in_flight;
        });
        let all = state.all;
        if let Some(controller) = &mut state.controller {
            controller.on_acks_done(AcksDone {
                now: end.now,
                in_flight: all.held + all.idle,
                app_limited: all.busy == 0,
            });
        }
    }

    fn on_lost(&mut self, packet: Lost) {
        let mut state = self.shared.lock();
        let number = state.change(self.number, |member| member.settle(packet.number));
        if let (Some(Some(number)), Some(controller)) = (number, &mut state.controller) {
            controller.on_lost(Lost { number, ..packet });
        }
    }

    fn on_congestion(&mut self, event: &Congestion) {
        if let Some(controller) = &mut self.shared.lock().controller {
            controller.on_congestion(event);
        }
    }

    fn on_spurious_congestion(&mut self) {
        if let Some(controller) = &mut self.shared.lock().controller {
            controller.on_spurious_congestion();
        }
    }

    fn on_packet_size(&mut self, bytes: u64) {
        let mut state = self.shared.lock();
        // A connection that has yet to discover its packet size says nothing of the path's.
        if bytes > state.packet {
            state.packet = bytes;
            if let Some(controller) = &mut state.controller {
                controller.on_packet_size(bytes);
            }
        }
    }

    fn window(&self) -> u64 {
        self.shared.lock().share(self.number).1
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        let state = self.shared.lock();
        state.controller.as_ref()?.slow_start_threshold()
    }

    fn pacing_rate(&self) -> Option<u64> {
        let state = self.shared.lock();
        let rate = state.controller.as_ref()?.pacing_rate()?;
        let (whole, share) = state.share(self.number);
        let part = u128::from(rate) * u128::from(share) / u128::from(whole.max(1));
        Some(
            u64::try_from(part)
                .unwrap_or(u64::MAX)
                .clamp(1, rate.max(1)),
        )
    }

    fn resume_at(&mut self, window: u64, threshold: Option<u64>) {
        if let Some(controller) = &mut self.shared.lock().controller {
            controller.resume_at(window, threshold);
        }
    }

    /// One more connection.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.shared.member(&mut self.shared.lock()))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let Some(member) = state.members.remove(&self.number) else {
            return;
        };
        state.all = state.all - member.demand();
        if let Some(controller) = &mut state.controller {
            for (_, bytes) in member.packets.into_values() {
                controller.on_forgotten(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bentpipe_units::{Span, Time};

    use super::*;
    use crate::{Choice, PathMemory, Settings};

    const PACKET: u64 = 1_000;

    fn join(shared: &Shared) -> Box<dyn Controller> {
        shared.join(PACKET, || {
            let settings = Settings::new(Choice::NewReno);
            settings.build(PACKET, 100 * PACKET, &PathMemory::default())
        })
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn send(to: &mut dyn Controller, numbers: std::ops::Range<u64>, ms: u64) {
        for number in numbers {
            let now = at(ms);
            to.on_sent(Sent {
                now,
                number,
                bytes: PACKET,
            });
        }
    }

    fn acknowledge(to: &mut dyn Controller, numbers: std::ops::Range<u64>, ms: u64, idle: bool) {
        for number in numbers {
            to.on_acked(&Acked {
                now: at(ms),
                sent: at(0),
                number,
                bytes: PACKET,
                app_limited: idle,
                smoothed_rtt: Span::from_millis(ms),
            });
        }
        to.on_acks_done(AcksDone {
            now: at(ms),
            in_flight: 0,
            app_limited: idle,
        });
    }

    #[test]
    fn one_alone_has_everything_and_two_have_halves() {
        let shared = Shared::default();
        let mut first = join(&shared);
        assert_eq!(first.window(), 100 * PACKET);
        send(&mut *first, 0..100, 0);
        first.on_window_limited();
        let mut second = join(&shared);
        assert_eq!(second.window(), 50 * PACKET);
        assert_eq!(first.window(), 100 * PACKET);
        send(&mut *second, 0..50, 0);
        second.on_window_limited();
        assert_eq!(first.window(), 50 * PACKET);
        // Numbers of one are not those of the other.
        acknowledge(&mut *second, 0..50, 600, true);
        acknowledge(&mut *first, 0..100, 600, false);
        assert_eq!(first.window(), 250 * PACKET);
    }

    #[test]
    fn whoever_comes_later_finds_the_path_known() {
        let shared = Shared::default();
        let mut first = join(&shared);
        send(&mut *first, 0..100, 0);
        first.on_window_limited();
        acknowledge(&mut *first, 0..100, 600, false);
        drop(first);
        assert_eq!(shared.members(), 0);
        assert_eq!(join(&shared).window(), 200 * PACKET);
    }

    #[test]
    fn what_an_idle_one_has_in_flight_is_left_to_it() {
        let shared = Shared::default();
        let mut idle = join(&shared);
        send(&mut *idle, 0..10, 0);
        assert_eq!(join(&shared).window(), 90 * PACKET);
        drop(idle);
        assert_eq!(join(&shared).window(), 100 * PACKET);
    }
}

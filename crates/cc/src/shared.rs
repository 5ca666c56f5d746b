//! One controller for several connections over one path, as RFC 3124's congestion manager has it
//! for several flows: together they have one window, one rate and one view of the path.
//!
//! A connection that begins finds the path known, and ten that begin together do not start ten
//! times. Each may send at what the others leave of the rate, and at an equal share at least: what
//! they use is counted in slices of time, an eighth of the round trip each. So a connection whose
//! source is slow leaves its share to others, and one that begins has its share within two
//! slices. All moments are on one clock, and packets have one numbering, in the order in
//! which they were sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bentpipe_units::{Span, Time};

use crate::{Acked, AcksDone, Congestion, Controller, Lost, Sent};

/// A connection has an equal share when it sends more than so many packets in a slice.
const SHARING_PACKETS: u64 = 4;
/// Slices of a round trip.
const SLICES: u64 = 8;
/// The shortest slice and the longest, which is also the first.
const SLICE: (Span, Span) = (Span::from_millis(10), Span::from_millis(100));

/// A controller that connections share. Clones are the same.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<State>>);

struct State {
    controller: Option<Box<dyn Controller>>,
    members: BTreeMap<u64, Member>,
    all: Counts,
    /// When the slice began, and how long one is.
    slice_from: Time,
    slice: Span,
    next_member: u64,
    next_packet: u64,
    packet: u64,
}

/// What connections have together.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// Bytes in flight, and bytes that they use of a slice.
    in_flight: u64,
    used: u64,
    /// Those that have equal shares, and those that have more to send than they may.
    sharing: u64,
    busy: u64,
}

/// What is known of a connection.
#[derive(Default)]
struct Member {
    in_flight: u64,
    /// It has more to send than it may.
    busy: bool,
    /// Bytes sent in this slice, and in the one before.
    sent: u64,
    sent_before: u64,
    /// Its packets without a fate: their numbers among all, and their bytes. Those of a handshake
    /// may have the numbers of later ones.
    packets: BTreeMap<u64, (u64, u64)>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            controller: None,
            members: BTreeMap::new(),
            all: Counts::default(),
            slice_from: Time::ZERO,
            slice: SLICE.1,
            next_member: 0,
            next_packet: 0,
            packet: 0,
        }
    }
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
        let packet = self.packet;
        let member = self.members.get_mut(&number)?;
        let before = member.counts(packet);
        let changed = change(member);
        self.all.change(before, member.counts(packet));
        Some(changed)
    }

    /// Begins another slice when this one is over.
    fn on_time(&mut self, now: Time) {
        let slices = now.since(self.slice_from).as_nanos() / self.slice.as_nanos();
        if slices == 0 {
            return;
        }
        self.slice_from = now;
        let mut all = Counts::default();
        for member in self.members.values_mut() {
            let sent = std::mem::take(&mut member.sent);
            member.sent_before = if slices == 1 { sent } else { 0 };
            all.change(Counts::default(), member.counts(self.packet));
        }
        self.all = all;
    }

    /// What a member may have of `whole`, when the others use `others`.
    fn share(&self, member: &Member, whole: u64, others: u64) -> u64 {
        let sharing = self.all.sharing + u64::from(!member.shares(self.packet));
        (whole / sharing.max(1)).max(whole.saturating_sub(others))
    }
}

impl Counts {
    /// Puts a member's in the place of what they were.
    fn change(&mut self, before: Self, after: Self) {
        self.in_flight = self.in_flight - before.in_flight + after.in_flight;
        self.used = self.used - before.used + after.used;
        self.sharing = self.sharing - before.sharing + after.sharing;
        self.busy = self.busy - before.busy + after.busy;
    }
}

impl Member {
    fn counts(&self, packet: u64) -> Counts {
        Counts {
            in_flight: self.in_flight,
            used: self.used(),
            sharing: u64::from(self.shares(packet)),
            busy: u64::from(self.busy),
        }
    }

    /// Bytes that it uses of a slice.
    fn used(&self) -> u64 {
        self.sent.max(self.sent_before)
    }

    fn shares(&self, packet: u64) -> bool {
        self.used() > SHARING_PACKETS * packet
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
        state.on_time(packet.now);
        let number = state.next_packet;
        state.next_packet += 1;
        state.change(self.number, |member| {
            member.in_flight += packet.bytes;
            member.sent += packet.bytes;
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
        let slice = packet.smoothed_rtt.as_nanos() / SLICES;
        state.slice = Span::from_nanos(slice).clamp(SLICE.0, SLICE.1);
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
        let forgotten = state.change(self.number, |member| {
            member.busy = !end.app_limited;
            // Of packets of the handshake a connection may give up without a word.
            let forgotten = member.in_flight.saturating_sub(end.in_flight);
            member.in_flight = end.in_flight;
            forgotten
        });
        let all = state.all;
        if let Some(controller) = &mut state.controller {
            controller.on_forgotten(forgotten.unwrap_or_default());
            controller.on_acks_done(AcksDone {
                now: end.now,
                in_flight: all.in_flight,
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
            let packet = state.packet;
            let sharing = state
                .members
                .values()
                .filter(|member| member.shares(packet));
            state.all.sharing = sharing.count() as u64;
            if let Some(controller) = &mut state.controller {
                controller.on_packet_size(bytes);
            }
        }
    }

    fn window(&self) -> u64 {
        let state = self.shared.lock();
        let (Some(member), Some(controller)) = (state.members.get(&self.number), &state.controller)
        else {
            return 0;
        };
        let others = state.all.in_flight - member.in_flight;
        (state.share(member, controller.window(), others)).max(2 * state.packet)
    }

    fn slow_start_threshold(&self) -> Option<u64> {
        let state = self.shared.lock();
        state.controller.as_ref()?.slow_start_threshold()
    }

    fn pacing_rate(&self) -> Option<u64> {
        let state = self.shared.lock();
        let rate = state.controller.as_ref()?.pacing_rate()?;
        let member = state.members.get(&self.number)?;
        let others = u128::from(state.all.used - member.used()) * 1_000_000_000;
        let others = others / u128::from(state.slice.as_nanos().max(1));
        let others = u64::try_from(others).unwrap_or(u64::MAX);
        Some(state.share(member, rate, others).max(1))
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
        let packet = state.packet;
        state.all.change(member.counts(packet), Counts::default());
        if let Some(controller) = &mut state.controller {
            controller.on_forgotten(member.in_flight);
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
        assert_eq!(join(&shared).window(), 200 * PACKET);
    }

    #[test]
    fn what_one_leaves_of_the_rate_the_other_has() {
        const RATE: u64 = 2_500_000;
        let shared = Shared::default();
        let mut settings = Settings::new(Choice::Fixed);
        settings.know_rate(bentpipe_units::Rate::from_bits_per_second(8 * RATE));
        let join = || {
            shared.join(PACKET, || {
                settings.build(PACKET, 100 * PACKET, &PathMemory::default())
            })
        };
        let (mut one, mut other) = (join(), join());
        let whole = one.pacing_rate().unwrap();
        let share = |part: &dyn Controller| part.pacing_rate().unwrap() * 100 / whole;
        // In each tenth of a second one sends 20 packets, and the other 200.
        for slice in 1..4 {
            send(&mut *one, 20 * slice..20 * (slice + 1), 100 * slice);
            send(&mut *other, 200 * slice..200 * (slice + 1), 100 * slice);
        }
        assert!((90..=93).contains(&share(&*other)), "{}", share(&*other));
        assert_eq!(share(&*one), 50);
        // Then both as much as they can.
        for slice in 4..7 {
            for part in [&mut one, &mut other] {
                send(&mut **part, 1000 * slice..1000 * slice + 125, 100 * slice);
            }
        }
        assert_eq!((share(&*one), share(&*other)), (50, 50));
        // And then one alone, after the other has been silent for two slices.
        send(&mut *one, 9000..9250, 1000);
        assert_eq!(share(&*one), 100);
    }

    /// Says how much is in flight.
    #[derive(Debug, Clone, Default)]
    struct InFlight(Arc<Mutex<u64>>);

    impl Controller for InFlight {
        fn on_sent(&mut self, packet: Sent) {
            *self.0.lock().unwrap() += packet.bytes;
        }
        fn on_acked(&mut self, packet: &Acked) {
            *self.0.lock().unwrap() -= packet.bytes;
        }
        fn on_lost(&mut self, packet: Lost) {
            *self.0.lock().unwrap() -= packet.bytes;
        }
        fn on_forgotten(&mut self, bytes: u64) {
            *self.0.lock().unwrap() -= bytes;
        }
        fn on_congestion(&mut self, _: &Congestion) {}
        fn on_packet_size(&mut self, _: u64) {}
        fn window(&self) -> u64 {
            1_000_000
        }
        fn clone_box(&self) -> Box<dyn Controller> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn packets_of_a_handshake_that_nobody_hears_of_are_not_in_flight() {
        let in_flight = InFlight::default();
        let shared = Shared::default();
        let mut one = shared.join(PACKET, || Box::new(in_flight.clone()));
        // Two packet number spaces, and nobody tells of the first packet.
        send(&mut *one, 0..1, 0);
        send(&mut *one, 0..3, 10);
        acknowledge(&mut *one, 0..3, 600, true);
        assert_eq!(*in_flight.0.lock().unwrap(), 0);
        send(&mut *one, 3..5, 700);
        drop(one);
        assert_eq!(*in_flight.0.lock().unwrap(), 0);
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

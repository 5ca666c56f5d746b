//! Transfer of packets: from a device into a direction of the model, and out of it again.

use bentpipe_units::Time;
use rustix::io::Errno;

use super::Emulator;
use super::event_loop::Clock;
use super::link::Transfer;
use crate::direction::DirectionId;
use crate::frame::Frame;
use crate::record::Fate;
use bentpipe_os::segment;

/// Packets to take from one device, or to give to one, before looking at the others.
const BATCH: usize = 16;

impl Emulator {
    /// Takes packets from the device that a direction begins at.
    pub(super) fn take(
        &mut self,
        id: DirectionId,
        since: Time,
        clock: &Clock,
    ) -> Result<(), Errno> {
        let mut taken = 0;
        while taken < BATCH {
            let link = &mut self.links[id.link];
            let read = match link.input(id.name).read(&mut self.large) {
                Ok(length) => &mut self.large[..length],
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(errno) => return Err(errno),
            };
            // Its own moment for each: a batch has not come in all at once.
            let now = clock.now();
            let (pool, packets) = (&mut self.pool, &mut self.packets);
            let cut = segment::segment(read, || pool.take(), |packet| packets.push(packet));
            if let Err(error) = cut {
                tracing::debug!("a packet that the kernel hands over: {error}");
                link.state_mut(id.name).malformed += 1;
                taken += 1;
                continue;
            }
            taken += self.packets.len();
            self.enter(id, now, since);
        }
        Ok(())
    }

    /// Lets what was read at `now` enter its direction.
    fn enter(&mut self, id: DirectionId, now: Time, since: Time) {
        let link = &mut self.links[id.link];
        let mtu = link.mtu;
        let state = link.state_mut(id.name);
        for bytes in self.packets.drain(..) {
            if bytes.len() > mtu {
                state.oversized += 1;
                self.pool.give(bytes);
                continue;
            }
            state.unread.record(now.since(since));
            self.log.entered(now, id, &bytes);
            let frame = Frame {
                bytes,
                entered: now,
                queue: state.model.queue().bytes(),
            };
            if let Err(dropped) = state.model.handle_arrival(now, frame) {
                self.log.dropped(now, id, dropped.cause, &dropped.packet);
                self.pool.give(dropped.packet.bytes);
            }
        }
    }

    /// Writes what is due, a batch at most from each direction; says whether there was any.
    pub(super) fn depart(&mut self, clock: &Clock) -> bool {
        let mut departed = false;
        for id in DirectionId::all(self.links.len()) {
            let Transfer { state, output, .. } = self.links[id.link].transfer(id.name);
            let mut now = clock.now();
            for _ in 0..BATCH {
                let Some(departure) = state.model.poll_departure(now) else {
                    break;
                };
                departed = true;
                let mut fate = Fate::Delivered;
                if let Err(errno) = output.write(&departure.packet.bytes) {
                    fate = Fate::Unwritten;
                    state.unwritten += 1;
                    state.refusal = Some(errno);
                }
                now = clock.now();
                let late = now.since(departure.at);
                state.lateness.record(late);
                self.log
                    .departed(departure.at, late, id, fate, &departure.packet);
                self.pool.give(departure.packet.bytes);
            }
        }
        self.record_drops();
        departed
    }

    /// Writes down what was dropped inside the links, if that is wanted.
    pub(super) fn record_drops(&mut self) {
        if !self.log.wanted() {
            return;
        }
        for id in DirectionId::all(self.links.len()) {
            let state = self.links[id.link].state_mut(id.name);
            while let Some(drop) = state.model.poll_drop() {
                self.log.dropped(drop.at, id, drop.cause, &drop.packet);
                self.pool.give(drop.packet.bytes);
            }
        }
    }
}

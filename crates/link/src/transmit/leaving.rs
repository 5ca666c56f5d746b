//! The packets whose frames are on their way, in order, and the receiver that waits for
//! missing frames.
//!
//! A receiver that resequences holds what comes behind a missing frame, in case that it is only
//! late, until it holds more than so many frames; then it goes on without the missing one. So does
//! OpenSAND 5.2 on the hops between its hosts (`UdpChannel`, `satcarrier_udp_stack` = 5). Frames
//! are never late here, so every loss is followed by a wait: as long as the next frames take to
//! come, which is for good where none come.

use std::collections::VecDeque;

use bentpipe_units::Time;

use super::encapsulate::{Filler, Frame};
use crate::counters::Cause;
use crate::entry::{Entry, Sent};
use crate::packet::Packet;

/// Packets whose last byte is on its way out, in order.
#[derive(Debug)]
pub struct Leaving<P> {
    packets: VecDeque<(Time, Entry<P>, Option<Cause>)>,
    /// What is held behind missing frames, the first one's first; empty where none is missing.
    gaps: VecDeque<Gap<P>>,
    /// Frames that may be held, if the receiver holds any.
    resequence: Option<u32>,
    /// Packets inside that are to come out.
    ours: usize,
}

/// What came behind a missing frame, and before the next missing one.
#[derive(Debug)]
struct Gap<P> {
    frames: u32,
    packets: Vec<Entry<P>>,
}

impl<P: Packet> Leaving<P> {
    /// Nothing on its way to a receiver that holds up to `resequence` frames behind a missing one.
    pub fn new(resequence: Option<u32>) -> Self {
        Self {
            packets: VecDeque::new(),
            gaps: VecDeque::new(),
            resequence,
            ours: 0,
        }
    }

    /// Sends `frame`, which `filler` has filled and whose last symbol leaves at `at`; `lost` is what
    /// befalls it.
    pub fn send(&mut self, at: Time, frame: Frame<P>, lost: Option<Cause>, filler: &mut Filler<P>) {
        if self.resequence.is_some() {
            // Only the hop's losses are waited for: a frame that cannot be decoded has come.
            if lost == Some(Cause::Loss) {
                // Those that are missing one behind the other are one gap.
                if self.gaps.back().is_none_or(|gap| gap.frames > 0) {
                    self.gaps.push_back(Gap {
                        frames: 0,
                        packets: Vec::new(),
                    });
                }
            } else if let Some(gap) = self.gaps.back_mut() {
                gap.frames += 1;
            }
        }
        filler.send(frame, lost, |entry, fate| {
            self.ours += usize::from(entry.is_ours());
            match self.gaps.back_mut() {
                Some(gap) if fate.is_none() => gap.packets.push(entry),
                _ => self.packets.push_back((at, entry, fate)),
            }
        });
        self.go_on(at);
    }

    /// Goes on without the missing frames, at `at`, behind which too many are held.
    fn go_on(&mut self, at: Time) {
        let Some(most) = self.resequence else { return };
        let mut held: u32 = self.gaps.iter().map(|gap| gap.frames).sum();
        while held > most
            && let Some(gap) = self.gaps.pop_front()
        {
            held -= gap.frames;
            let packets = gap.packets.into_iter();
            self.packets.extend(packets.map(|entry| (at, entry, None)));
        }
    }

    /// When the next packet leaves.
    pub fn next(&self) -> Option<Time> {
        self.packets.front().map(|(at, ..)| *at)
    }

    /// The next packet that leaves.
    pub fn pop(&mut self) -> Option<Sent<P>> {
        let (_, entry, fate) = self.packets.pop_front()?;
        self.ours -= usize::from(entry.is_ours());
        Some(Sent { entry, fate })
    }

    /// Whether packets are held behind a missing frame.
    pub fn holds(&self) -> bool {
        self.gaps.iter().any(|gap| !gap.packets.is_empty())
    }

    /// Packets inside that are to come out.
    pub fn ours(&self) -> usize {
        self.ours
    }

    /// Gives up everything inside.
    pub fn evict(&mut self) -> impl Iterator<Item = Entry<P>> {
        self.ours = 0;
        let held = std::mem::take(&mut self.gaps);
        let held = held.into_iter().flat_map(|gap| gap.packets);
        let leaving = std::mem::take(&mut self.packets);
        leaving.into_iter().map(|(_, entry, _)| entry).chain(held)
    }
}

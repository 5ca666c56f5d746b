//! The accounting of packets inside a link, kept by its stages.

use std::collections::VecDeque;

use bentpipe_units::Time;

use crate::counters::{Cause, Counters};
use crate::entry::{Entry, Load};
use crate::packet::Packet;

/// A packet that was dropped inside the link.
#[derive(Debug)]
pub struct Drop<P> {
    /// When.
    pub at: Time,
    /// Why.
    pub cause: Cause,
    /// The packet.
    pub packet: P,
}

/// The counters and the drops that the stages write down.
#[derive(Debug)]
pub(crate) struct Accounting<P> {
    pub counters: Counters,
    /// Drops inside the link, kept only when somebody asked for them.
    pub kept: Option<VecDeque<Drop<P>>>,
}

impl<P: Packet> Accounting<P> {
    pub fn new() -> Self {
        Self {
            counters: Counters::default(),
            kept: None,
        }
    }

    /// Counts a drop, if it is one of ours.
    pub fn drop(&mut self, at: Time, entry: Entry<P>, cause: Cause) {
        let Load::Ours(packet) = entry.load else {
            return;
        };
        self.count(cause, entry.len);
        if let Some(kept) = &mut self.kept {
            kept.push_back(Drop { at, cause, packet });
        }
    }

    /// Counts a drop whose packet goes back to whoever brought it.
    pub fn count(&mut self, cause: Cause, len: u32) {
        self.counters.dropped.count(cause);
        self.counters.dropped_bytes += u64::from(len);
    }

    /// Marks the packet if it can be marked.
    pub fn mark(&mut self, entry: &mut Entry<P>) -> bool {
        match &mut entry.load {
            Load::Ours(packet) => {
                let marked = packet.mark_ce();
                self.counters.marked += u64::from(marked);
                marked
            }
            Load::Cross(_) => false,
        }
    }
}

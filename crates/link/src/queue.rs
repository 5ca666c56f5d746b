//! Waiting for the transmitter: a drop-tail queue.

use std::collections::VecDeque;

use crate::Packet;
use crate::scenario::QueueLimit;

/// A first-in-first-out queue that refuses what does not fit.
#[derive(Debug)]
pub struct DropTail<P> {
    waiting: VecDeque<P>,
    bytes: u64,
    limit: QueueLimit,
}

impl<P: Packet> DropTail<P> {
    /// An empty queue.
    pub fn new(limit: QueueLimit) -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes at the IP level that wait. What the transmitter holds is not among them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends `packet`, or gives it back when it does not fit.
    pub fn push(&mut self, packet: P) -> Result<(), P> {
        let fits = match self.limit {
            QueueLimit::Packets(most) => self.waiting.len() < most as usize,
            QueueLimit::Bytes(most) => self.bytes + packet.ip_len() as u64 <= most.as_u64(),
        };
        if !fits {
            return Err(packet);
        }
        self.bytes += packet.ip_len() as u64;
        self.waiting.push_back(packet);
        Ok(())
    }

    /// Takes the packet that has waited longest.
    pub fn pop(&mut self) -> Option<P> {
        let packet = self.waiting.pop_front()?;
        self.bytes -= packet.ip_len() as u64;
        Some(packet)
    }
}

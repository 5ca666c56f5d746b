//! A first-in first-out store with its bytes counted.

use std::collections::VecDeque;

use crate::entry::Entry;

/// First in, first out, with its bytes counted.
#[derive(Debug)]
pub(crate) struct Fifo<P> {
    waiting: VecDeque<Entry<P>>,
    bytes: u64,
}

impl<P> Fifo<P> {
    pub fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    pub fn push(&mut self, entry: Entry<P>) {
        self.bytes += u64::from(entry.len);
        self.waiting.push_back(entry);
    }
    pub fn pop(&mut self) -> Option<Entry<P>> {
        let entry = self.waiting.pop_front()?;
        self.bytes -= u64::from(entry.len);
        Some(entry)
    }
}

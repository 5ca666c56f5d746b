//! A queue of bytes to a file that is written on a thread of its own: the loop never waits for a disk.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread::JoinHandle;

/// Takes entries and hands them in chunks to a [`Sink`] on another thread. When that
/// does not keep up, entries are left out and counted.
#[derive(Debug)]
pub(super) struct Spool {
    chunk: Vec<u8>,
    /// Entries in the chunk.
    entries: u64,
    missed: u64,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<io::Result<()>>,
}

/// Where chunks of whole entries go.
pub(super) trait Sink: Send + 'static {
    fn write(&mut self, chunk: &[u8]) -> io::Result<()>;
    fn finish(&mut self) -> io::Result<()>;
}

/// Bytes that go to the sink at once.
const CHUNK: usize = 128 << 10;
/// Chunks that may wait for the sink: half a second of 200 Mbit/s at four points.
const WAITING: usize = 512;

/// Why a file does not have all that it should.
#[derive(Debug, thiserror::Error)]
pub(super) enum Incomplete {
    #[error("the disk did not keep up, {0} entries were left out")]
    Missed(u64),
    #[error("{0}")]
    Failed(#[from] io::Error),
}

impl Spool {
    pub fn new(name: &str, mut sink: impl Sink) -> io::Result<Self> {
        let (full, chunks) = sync_channel::<Vec<u8>>(WAITING);
        let (back, empty) = channel();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                for mut chunk in chunks {
                    sink.write(&chunk)?;
                    chunk.clear();
                    // At the end nobody wants it back.
                    let _ = back.send(chunk);
                }
                sink.finish()
            })?;
        Ok(Self {
            chunk: Vec::with_capacity(CHUNK),
            entries: 0,
            missed: 0,
            full,
            empty,
            thread,
        })
    }

    /// Adds an entry of `length` bytes, which `put` appends.
    pub fn add(&mut self, length: usize, put: impl FnOnce(&mut Vec<u8>)) {
        if self.chunk.len() + length > CHUNK {
            self.hand_over();
        }
        put(&mut self.chunk);
        self.entries += 1;
    }

    /// Hands over what there is, for whoever reads the file while it grows.
    pub fn hand_over(&mut self) {
        if self.chunk.is_empty() {
            return;
        }
        let next = self
            .empty
            .try_recv()
            .unwrap_or_else(|_| Vec::with_capacity(CHUNK));
        let chunk = std::mem::replace(&mut self.chunk, next);
        match self.full.try_send(chunk) {
            Ok(()) => {}
            Err(TrySendError::Full(mut chunk)) => {
                self.missed += self.entries;
                chunk.clear();
                self.chunk = chunk;
            }
            // A sink that has given up says why at the end.
            Err(TrySendError::Disconnected(_)) => {}
        }
        self.entries = 0;
    }

    /// Writes what is left and waits for it.
    pub fn finish(self) -> Result<(), Incomplete> {
        let Self {
            chunk,
            missed,
            full,
            thread,
            ..
        } = self;
        // The loop is over: now there is time to wait.
        let _ = full.send(chunk);
        drop(full);
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        match missed {
            0 => Ok(()),
            missed => Err(Incomplete::Missed(missed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Writes to memory once it has the lock, as long as there is room.
    struct Memory(Arc<Mutex<Vec<u8>>>, usize);

    impl Sink for Memory {
        fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
            let mut memory = self.0.lock().unwrap();
            if memory.len() + chunk.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            memory.extend_from_slice(chunk);
            Ok(())
        }
        fn finish(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn entry(number: u32) -> impl FnOnce(&mut Vec<u8>) {
        move |chunk| chunk.extend_from_slice(&number.to_le_bytes())
    }

    #[test]
    fn all_entries_arrive_in_order() {
        let memory = Arc::default();
        let mut spool = Spool::new("test", Memory(Arc::clone(&memory), usize::MAX)).unwrap();
        let count = u32::try_from(3 * CHUNK / 4 + 5).unwrap();
        (0..count).for_each(|number| spool.add(4, entry(number)));
        spool.finish().unwrap();
        let wanted: Vec<u8> = (0..count).flat_map(u32::to_le_bytes).collect();
        assert!(*memory.lock().unwrap() == wanted);
    }

    #[test]
    fn a_sink_that_stands_still_costs_entries_and_no_time() {
        let memory = Arc::new(Mutex::new(Vec::new()));
        let mut spool = Spool::new("test", Memory(Arc::clone(&memory), usize::MAX)).unwrap();
        let still = memory.lock().unwrap();
        let count = u64::try_from((WAITING + 3) * CHUNK / 4).unwrap();
        (0..count).for_each(|_| spool.add(4, entry(7)));
        drop(still);
        let error = spool.finish().unwrap_err();
        let Incomplete::Missed(missed) = error else {
            panic!("{error}")
        };
        assert_eq!(memory.lock().unwrap().len() as u64 / 4 + missed, count);
    }

    #[test]
    fn a_full_disk_is_told_at_the_end() {
        let memory = Arc::default();
        let mut spool = Spool::new("test", Memory(memory, CHUNK)).unwrap();
        (0..CHUNK).for_each(|_| spool.add(4, entry(7)));
        assert!(matches!(spool.finish(), Err(Incomplete::Failed(_))));
    }
}

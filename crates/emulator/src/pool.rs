//! A pool of memory for packets.

/// Buffers that wait to be used again, so that a packet costs no allocation.
#[derive(Debug)]
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
    room: usize,
}

impl Pool {
    /// `count` buffers with room for `room` bytes each, their memory touched.
    pub fn new(room: usize, count: usize) -> Self {
        let free = (0..count)
            .map(|_| {
                // Not zero: zeroed memory is mapped only when first written to.
                let mut buffer = vec![0xff; room];
                buffer.clear();
                buffer
            })
            .collect();
        Self { free, room }
    }

    /// An empty buffer.
    pub fn take(&mut self) -> Vec<u8> {
        self.free
            .pop()
            .unwrap_or_else(|| Vec::with_capacity(self.room))
    }

    /// Takes a buffer back.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.free.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_empty_and_with_its_room() {
        let mut pool = Pool::new(1501, 1);
        let mut buffer = pool.take();
        buffer.extend_from_slice(&[1, 2, 3]);
        pool.give(buffer);
        let again = pool.take();
        assert!(again.is_empty() && again.capacity() >= 1501);
        assert!(pool.take().capacity() >= 1501, "made when none is left");
    }
}

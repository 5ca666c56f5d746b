//! Encapsulation: packets cut to fit frames, GSE in BBFRAMEs and RLE in bursts.

use bentpipe_units::Time;

use crate::accounting::Accounting;
use crate::counters::Cause;
use crate::entry::Entry;
use crate::packet::Packet;
use crate::queue::Queue;

/// What a packet and its fragments cost besides their bytes.
#[derive(Debug, Clone, Copy)]
pub struct Encapsulation {
    /// In each frame, before anything else.
    pub frame_header: u32,
    /// On each packet: a lower layer's header.
    pub link_header: u32,
    /// On a packet that is not cut.
    pub whole: u32,
    /// On the first fragment.
    pub first: u32,
    /// On every other fragment.
    pub next: u32,
    /// Behind the last byte of a packet that was cut: a check or a number.
    pub trailer: u32,
}

impl Encapsulation {
    /// Generic Stream Encapsulation (ETSI TS 102 606) in BBFRAMEs as OpenSAND
    /// has it: label of 6 bytes, protocol type of 2, CRC-32 behind the last
    /// fragment; 6 bytes of header in each frame.
    pub const fn gse(link_header: u8) -> Self {
        Self {
            frame_header: 6,
            link_header: link_header as u32,
            whole: 10,
            first: 13,
            next: 3,
            trailer: 4,
        }
    }

    /// Return Link Encapsulation (ETSI EN 301 545-2, section 7.2): compressed
    /// protocol type of one byte, sequence number behind the last fragment.
    pub const fn rle(link_header: u8) -> Self {
        Self {
            frame_header: 0,
            link_header: link_header as u32,
            whole: 3,
            first: 5,
            next: 2,
            trailer: 1,
        }
    }

    /// Puts a packet of `len` bytes into `space`: bytes used, and bytes left for
    /// the next frame.
    fn begin(&self, len: u32, space: u32) -> Option<(u32, u32)> {
        let len = len + self.link_header;
        if len + self.whole <= space {
            Some((len + self.whole, 0))
        } else if space > self.first {
            Some((space, len + self.trailer - (space - self.first)))
        } else {
            None
        }
    }

    /// Goes on with a packet of which `left` bytes are to come.
    fn go_on(&self, left: u32, space: u32) -> Option<(u32, u32)> {
        if left + self.next <= space {
            Some((left + self.next, 0))
        } else if space > self.next {
            Some((space, left - (space - self.next)))
        } else {
            None
        }
    }

    /// How many packets of `len` bytes go into each frame of `bytes` in the long run.
    pub fn packets_per_frame(&self, len: u32, bytes: u32) -> f64 {
        let (frames, mut packets, mut left) = (5_000, 0.0, 0);
        for _ in 0..frames {
            let mut space = bytes.saturating_sub(self.frame_header);
            while let Some((used, rest)) = if left > 0 {
                self.go_on(left, space)
            } else {
                self.begin(len, space)
            } {
                space -= used;
                left = rest;
                if left > 0 {
                    break;
                }
                packets += 1.0;
            }
        }
        packets / f64::from(frames)
    }
}

/// A frame being filled.
#[derive(Debug)]
pub struct Frame<P> {
    /// Bytes that are still free.
    space: u32,
    /// Packets whose last byte is in it, with what befell their earlier frames.
    finished: Vec<(Entry<P>, Option<Cause>)>,
    /// Nothing more fits.
    full: bool,
    used: bool,
}

/// Cuts packets and fills frames.
#[derive(Debug)]
pub struct Filler<P> {
    encapsulation: Encapsulation,
    /// The packet that goes on in the next frame.
    cut: Option<Cut<P>>,
    /// A spare list, so that filling allocates nothing.
    spare: Vec<(Entry<P>, Option<Cause>)>,
}

#[derive(Debug)]
struct Cut<P> {
    entry: Entry<P>,
    left: u32,
    fate: Option<Cause>,
}

impl<P: Packet> Filler<P> {
    pub fn new(encapsulation: Encapsulation) -> Self {
        Self {
            encapsulation,
            cut: None,
            spare: Vec::new(),
        }
    }

    /// An empty frame of `bytes`.
    pub fn frame(&mut self, bytes: u32) -> Frame<P> {
        Frame {
            space: bytes.saturating_sub(self.encapsulation.frame_header),
            finished: std::mem::take(&mut self.spare),
            full: false,
            used: false,
        }
    }

    /// Fills `frame` with what waits.
    pub fn fill(
        &mut self,
        now: Time,
        frame: &mut Frame<P>,
        queue: &mut Queue<P>,
        accounting: &mut Accounting<P>,
    ) {
        let scheme = self.encapsulation;
        while !frame.full {
            let (entry, fate, placed) = if let Some(cut) = self.cut.take() {
                let placed = scheme.go_on(cut.left, frame.space);
                if placed.is_none() {
                    self.cut = Some(cut);
                    frame.full = true;
                    return;
                }
                (cut.entry, cut.fate, placed)
            } else {
                // A fragment needs its header and one byte.
                if frame.space <= scheme.first {
                    frame.full = true;
                    return;
                }
                let Some(entry) = queue.pop(now, accounting) else {
                    return;
                };
                let placed = scheme.begin(entry.len, frame.space);
                (entry, None, placed)
            };
            let Some((used, left)) = placed else { return };
            frame.space -= used;
            frame.used = true;
            if left == 0 {
                frame.finished.push((entry, fate));
            } else {
                self.cut = Some(Cut { entry, left, fate });
                frame.full = true;
            }
        }
    }

    /// Sends `frame`: gives each packet that ends in it to `sink`, with its fate.
    /// `lost` is what befalls the frame itself.
    pub fn send(
        &mut self,
        mut frame: Frame<P>,
        lost: Option<Cause>,
        mut sink: impl FnMut(Entry<P>, Option<Cause>),
    ) {
        for (entry, fate) in frame.finished.drain(..) {
            sink(entry, fate.or(lost));
        }
        // A packet that goes on has bytes in every full frame before its end.
        if let Some(cut) = self.cut.as_mut().filter(|_| frame.full) {
            cut.fate = cut.fate.or(lost);
        }
        self.spare = frame.finished;
    }

    /// Bytes that are to come of a packet that has begun.
    pub fn backlog(&self) -> u64 {
        self.cut.as_ref().map_or(0, |cut| u64::from(cut.left))
    }

    /// Whether a packet waits to go on.
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Packets inside that are to come out.
    pub fn ours(&self) -> usize {
        usize::from(self.cut.as_ref().is_some_and(|cut| cut.entry.is_ours()))
    }

    /// Gives up what is inside.
    pub fn evict(&mut self) -> Option<Entry<P>> {
        self.cut.take().map(|cut| cut.entry)
    }
}

impl<P> Frame<P> {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        !self.used
    }

    /// Packets that end in it and are to come out.
    pub fn ours(&self) -> usize
    where
        P: Packet,
    {
        self.finished
            .iter()
            .filter(|(entry, _)| entry.is_ours())
            .count()
    }

    /// Gives up what is inside.
    pub fn into_entries(self) -> impl Iterator<Item = Entry<P>> {
        self.finished.into_iter().map(|(entry, _)| entry)
    }
}

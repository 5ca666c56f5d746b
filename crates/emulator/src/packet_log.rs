//! The log of a run's packets: records of what became of each, and a capture of the packets
//! themselves, where either is wanted.

use bentpipe_link::Cause;
use bentpipe_units::{Span, Time};

use crate::capture::{Capture, Point};
use crate::direction::DirectionId;
use crate::frame::Frame;
use crate::record::{Fate, Record, Recorder};

/// Where each packet is written down.
#[derive(Debug, Default)]
pub(super) struct PacketLog {
    pub recorder: Option<Recorder>,
    pub capture: Option<Capture>,
}

impl PacketLog {
    /// Whether anything is written at all.
    pub fn wanted(&self) -> bool {
        self.recorder.is_some() || self.capture.is_some()
    }

    /// The run begins now.
    pub fn begin(&mut self) {
        if let Some(capture) = &mut self.capture {
            capture.begin();
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.begin();
        }
    }

    /// Writes what there is, for whoever reads it now.
    pub fn hand_over(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.hand_over();
        }
    }

    /// A packet has come in.
    pub fn entered(&mut self, at: Time, id: DirectionId, packet: &[u8]) {
        if let Some(capture) = &mut self.capture {
            capture.add(at, id, Point::In, Fate::Delivered, packet);
        }
    }

    /// The link model has dropped a packet.
    pub fn dropped(&mut self, at: Time, id: DirectionId, cause: Cause, packet: &Frame) {
        self.left(at, Span::ZERO, id, Fate::Dropped(cause), packet);
        if let Some(capture) = &mut self.capture {
            let fate = Fate::Dropped(cause);
            capture.add(at, id, Point::Dropped, fate, &packet.bytes);
        }
    }

    /// The link model let a packet out at the moment `at`, and the other side had it, or
    /// refused it, so much `late`.
    pub fn departed(&mut self, at: Time, late: Span, id: DirectionId, fate: Fate, packet: &Frame) {
        self.left(at, late, id, fate, packet);
        if let Some(capture) = &mut self.capture {
            let point = match fate {
                Fate::Delivered => Point::Out,
                _ => Point::Dropped,
            };
            capture.add(at + late, id, point, fate, &packet.bytes);
        }
    }

    fn left(&mut self, at: Time, late: Span, id: DirectionId, fate: Fate, packet: &Frame) {
        if let Some(recorder) = &mut self.recorder {
            recorder.add(&Record {
                entered: packet.entered,
                left: at,
                late_ns: late.as_nanos(),
                queue: packet.queue,
                length: packet.bytes.len(),
                direction: id,
                fate,
            });
        }
    }

    /// Writes what is left, and says what is missing.
    pub fn finish(self) -> Vec<String> {
        let records = self.recorder.map(Recorder::finish).transpose();
        let capture = self.capture.map(Capture::finish).transpose();
        [("records are", records), ("capture is", capture)]
            .into_iter()
            .filter_map(|(what, written)| {
                let incomplete = written.err()?;
                Some(format!("the {what} not complete: {incomplete}"))
            })
            .collect()
    }
}

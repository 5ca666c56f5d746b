//! Frames (RFC 9000, section 19; DATAGRAM: RFC 9221; ACK_FREQUENCY and IMMEDIATE_ACK:
//! draft-ietf-quic-ack-frequency).

use super::bytes::Input;

/// One frame; byte strings lie in the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// So many bytes of padding in a row.
    Padding(usize),
    /// Only to be acknowledged.
    Ping,
    /// Acknowledged packets.
    Ack(Ack<'a>),
    /// An end of a stream that is none.
    ResetStream {
        /// Which.
        stream: u64,
        /// The application's code.
        code: u64,
        /// Bytes sent on it.
        final_size: u64,
    },
    /// Somebody who does not want to hear more of a stream.
    StopSending {
        /// Which.
        stream: u64,
        /// The application's code.
        code: u64,
    },
    /// TLS messages.
    Crypto {
        /// Where in the stream of messages.
        offset: u64,
        /// They.
        data: &'a [u8],
    },
    /// A token for the next connection.
    NewToken(&'a [u8]),
    /// Bytes of a stream.
    Stream {
        /// Which.
        stream: u64,
        /// Where.
        offset: u64,
        /// They.
        data: &'a [u8],
        /// Whether they are the last.
        fin: bool,
    },
    /// How much may be sent on all streams together.
    MaxData(u64),
    /// How much may be sent on a stream.
    MaxStreamData {
        /// Which.
        stream: u64,
        /// How much.
        most: u64,
    },
    /// How many streams may be opened.
    MaxStreams {
        /// Bidirectional ones, not the others.
        bidirectional: bool,
        /// How many.
        most: u64,
    },
    /// Flow control of the connection holds the sender back.
    DataBlocked(u64),
    /// Flow control of a stream holds the sender back.
    StreamDataBlocked {
        /// Which.
        stream: u64,
        /// At which offset.
        at: u64,
    },
    /// The sender would open more streams.
    StreamsBlocked {
        /// Bidirectional ones, not the others.
        bidirectional: bool,
        /// At how many.
        at: u64,
    },
    /// Another ID for the peer to use.
    NewConnectionId {
        /// Its number.
        sequence: u64,
        /// Those before this one are to be retired.
        retire_before: u64,
        /// The ID.
        id: &'a [u8],
    },
    /// An ID is no longer used.
    RetireConnectionId(u64),
    /// Is this path there?
    PathChallenge([u8; 8]),
    /// It is.
    PathResponse([u8; 8]),
    /// The end, with its reason.
    ConnectionClose {
        /// Whether the application closed, not the transport.
        application: bool,
        /// Its code.
        code: u64,
        /// In words.
        reason: &'a [u8],
    },
    /// The handshake is confirmed.
    HandshakeDone,
    /// An unreliable message.
    Datagram(&'a [u8]),
    /// How often acknowledgements are wanted.
    AckFrequency {
        /// Number of the request.
        sequence: u64,
        /// Ack-eliciting packets that may come without an acknowledgement.
        threshold: u64,
        /// Longest delay, microseconds.
        max_delay_us: u64,
        /// Reordering threshold.
        reordering: u64,
    },
    /// An acknowledgement is wanted now.
    ImmediateAck,
    /// When the packet was sent, in units of the ACK delay (draft-huitema-quic-ts; picoquic sends it).
    TimeStamp(u64),
}

/// An ACK frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The largest packet number that is acknowledged.
    pub largest: u64,
    /// The delay field, as it stands there: in units of 2^exponent microseconds.
    pub delay: u64,
    /// Packets before the largest without a gap.
    pub first_range: u64,
    /// Further ranges.
    pub ranges: u64,
    more: &'a [u8],
    /// ECN counts: ECT(0), ECT(1), CE.
    pub ecn: Option<[u64; 3]>,
}

impl Ack<'_> {
    /// The acknowledged ranges, first and last of each, from the largest downwards.
    pub fn acknowledged(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut input = Input(self.more);
        let mut smallest = self.largest.checked_sub(self.first_range);
        let mut left = self.ranges;
        let first = smallest.map(|smallest| (smallest, self.largest));
        first.into_iter().chain(std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let (gap, len) = (input.varint()?, input.varint()?);
            let last = smallest?.checked_sub(gap)?.checked_sub(2)?;
            smallest = last.checked_sub(len);
            Some((smallest?, last))
        }))
    }
}

/// Why the rest of a packet's frames cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// No frame of this type is known.
    Unknown(u64),
    /// The packet ends in the middle of a frame of this type.
    Short(u64),
}

/// The frames of one decrypted packet, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Frames<'a>(Input<'a>);

impl<'a> Frames<'a> {
    /// Of the packet whose payload is `payload`.
    pub fn new(payload: &'a [u8]) -> Self {
        Self(Input(payload))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let zeros = self.0.0.iter().take_while(|byte| **byte == 0).count();
        if zeros > 0 {
            self.0.take(zeros);
            return Some(Ok(Frame::Padding(zeros)));
        }
        let kind = self.0.varint().unwrap_or(u64::MAX);
        let result = match frame(kind, &mut self.0) {
            Some(Some(frame)) => return Some(Ok(frame)),
            Some(None) => FrameError::Unknown(kind),
            None => FrameError::Short(kind),
        };
        self.0 = Input(&[]);
        Some(Err(result))
    }
}

/// `Some(None)`: the type is unknown; `None`: the frame is cut.
fn frame<'a>(kind: u64, input: &mut Input<'a>) -> Option<Option<Frame<'a>>> {
    Some(Some(match kind {
        0x01 => Frame::Ping,
        0x02 | 0x03 => Frame::Ack(ack(kind == 0x03, input)?),
        0x04 => Frame::ResetStream {
            stream: input.varint()?,
            code: input.varint()?,
            final_size: input.varint()?,
        },
        0x05 => Frame::StopSending {
            stream: input.varint()?,
            code: input.varint()?,
        },
        0x06 => Frame::Crypto {
            offset: input.varint()?,
            data: input.string()?,
        },
        0x07 => Frame::NewToken(input.string()?),
        0x08..=0x0f => {
            let stream = input.varint()?;
            let offset = if kind & 4 == 0 { 0 } else { input.varint()? };
            let data = if kind & 2 == 0 {
                input.take(input.0.len())?
            } else {
                input.string()?
            };
            Frame::Stream {
                stream,
                offset,
                data,
                fin: kind & 1 != 0,
            }
        }
        0x10 => Frame::MaxData(input.varint()?),
        0x11 => Frame::MaxStreamData {
            stream: input.varint()?,
            most: input.varint()?,
        },
        0x12 | 0x13 => Frame::MaxStreams {
            bidirectional: kind == 0x12,
            most: input.varint()?,
        },
        0x14 => Frame::DataBlocked(input.varint()?),
        0x15 => Frame::StreamDataBlocked {
            stream: input.varint()?,
            at: input.varint()?,
        },
        0x16 | 0x17 => Frame::StreamsBlocked {
            bidirectional: kind == 0x16,
            at: input.varint()?,
        },
        0x18 => {
            let (sequence, retire_before) = (input.varint()?, input.varint()?);
            let len = input.u8()?;
            let id = input.take(len.into())?;
            // The stateless reset token.
            input.take(16)?;
            Frame::NewConnectionId {
                sequence,
                retire_before,
                id,
            }
        }
        0x19 => Frame::RetireConnectionId(input.varint()?),
        0x1a => Frame::PathChallenge(input.take(8)?.try_into().ok()?),
        0x1b => Frame::PathResponse(input.take(8)?.try_into().ok()?),
        0x1c | 0x1d => {
            let code = input.varint()?;
            if kind == 0x1c {
                // The type of the frame that was wrong.
                input.varint()?;
            }
            Frame::ConnectionClose {
                application: kind == 0x1d,
                code,
                reason: input.string()?,
            }
        }
        0x1e => Frame::HandshakeDone,
        0x1f => Frame::ImmediateAck,
        0x30 => Frame::Datagram(input.take(input.0.len())?),
        0x31 => Frame::Datagram(input.string()?),
        0x2f5 => Frame::TimeStamp(input.varint()?),
        0xaf => Frame::AckFrequency {
            sequence: input.varint()?,
            threshold: input.varint()?,
            max_delay_us: input.varint()?,
            reordering: input.varint()?,
        },
        _ => return Some(None),
    }))
}

fn ack<'a>(with_ecn: bool, input: &mut Input<'a>) -> Option<Ack<'a>> {
    let (largest, delay) = (input.varint()?, input.varint()?);
    let (ranges, first_range) = (input.varint()?, input.varint()?);
    let more = input.0;
    for _ in 0..ranges {
        input.varint()?;
        input.varint()?;
    }
    let more = &more[..more.len() - input.0.len()];
    let ecn = match with_ecn {
        true => Some([input.varint()?, input.varint()?, input.varint()?]),
        false => None,
    };
    Some(Ack {
        largest,
        delay,
        first_range,
        ranges,
        more,
        ecn,
    })
}

impl Frame<'_> {
    /// Its name, as qlog writes it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Padding(_) => "padding",
            Self::Ping => "ping",
            Self::Ack(_) => "ack",
            Self::ResetStream { .. } => "reset_stream",
            Self::StopSending { .. } => "stop_sending",
            Self::Crypto { .. } => "crypto",
            Self::NewToken(_) => "new_token",
            Self::Stream { .. } => "stream",
            Self::MaxData(_) => "max_data",
            Self::MaxStreamData { .. } => "max_stream_data",
            Self::MaxStreams { .. } => "max_streams",
            Self::DataBlocked(_) => "data_blocked",
            Self::StreamDataBlocked { .. } => "stream_data_blocked",
            Self::StreamsBlocked { .. } => "streams_blocked",
            Self::NewConnectionId { .. } => "new_connection_id",
            Self::RetireConnectionId(_) => "retire_connection_id",
            Self::PathChallenge(_) => "path_challenge",
            Self::PathResponse(_) => "path_response",
            Self::ConnectionClose { .. } => "connection_close",
            Self::HandshakeDone => "handshake_done",
            Self::Datagram(_) => "datagram",
            Self::AckFrequency { .. } => "ack_frequency",
            Self::ImmediateAck => "immediate_ack",
            Self::TimeStamp(_) => "time_stamp",
        }
    }

    /// Whether the peer has to acknowledge a packet with this frame (RFC 9000, section
    /// 13.2).
    pub const fn elicits_ack(&self) -> bool {
        !matches!(
            self,
            Self::Padding(_) | Self::Ack(_) | Self::ConnectionClose { .. } | Self::TimeStamp(_)
        )
    }
}

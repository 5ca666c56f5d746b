//! What a trace becomes: a row a packet, a row a stream frame, and a row an HTTP/3 frame.

use crate::http3::Http3Frame;

/// One QUIC packet or TCP segment.
#[derive(Debug, Clone, PartialEq)]
pub struct PacketRow<'a> {
    /// Place of the captured packet in its file, from 1 on, as Wireshark counts.
    pub frame: u64,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Interface of the file.
    pub interface: u32,
    /// Which connection of the trace: QUIC and TCP count for themselves.
    pub connection: u32,
    /// `quic` or `tcp`.
    pub protocol: &'static str,
    /// Whether the client sent it.
    pub from_client: bool,
    /// `initial`, `0RTT`, `handshake`, `1RTT`, `retry`, `version_negotiation`; of TCP its
    /// flags, like `SA`.
    pub kind: &'a str,
    /// Packet number; of TCP the sequence number relative to the first.
    pub number: Option<u64>,
    /// Bytes: of the QUIC packet in its datagram, or of the TCP segment with its header.
    pub size: u32,
    /// Bytes of UDP payload; 0 for TCP.
    pub datagram: u32,
    /// Place of the packet in its datagram.
    pub place: u32,
    /// ECN field of the IP header.
    pub ecn: u8,
    /// Key phase bit of 1-RTT packets.
    pub key_phase: Option<bool>,
    /// Names of its frames, each once, with commas.
    pub frames: &'a str,
    /// Largest packet number that it acknowledges, or the acknowledgement number of TCP.
    pub ack: Option<u64>,
    /// The delay that its ACK frame names, microseconds.
    pub ack_delay_us: Option<u64>,
    /// Bytes of stream data.
    pub stream_bytes: u32,
    /// Why its content is not known.
    pub error: Option<&'static str>,
}

/// One STREAM frame, or the data of one TCP segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamRow {
    /// As of its packet.
    pub frame: u64,
    /// As of its packet.
    pub time_ns: u64,
    /// As of its packet.
    pub interface: u32,
    /// As of its packet.
    pub connection: u32,
    /// `quic` or `tcp`.
    pub protocol: &'static str,
    /// As of its packet.
    pub from_client: bool,
    /// As of its packet.
    pub number: u64,
    /// Stream ID; 0 for TCP.
    pub stream: u64,
    /// Where its first byte stands in the stream.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Whether the stream ends with it.
    pub fin: bool,
    /// Of its bytes, those that were sent before on this interface.
    pub repeated: u64,
}

/// One HTTP/3 frame, where its last byte that was needed came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Http3Row<'a> {
    /// As of its packet.
    pub frame: u64,
    /// As of its packet.
    pub time_ns: u64,
    /// As of its packet.
    pub interface: u32,
    /// As of its packet.
    pub connection: u32,
    /// As of its packet.
    pub from_client: bool,
    /// Stream ID.
    pub stream: u64,
    /// What it is.
    pub http3: &'a Http3Frame,
}

/// Who takes rows.
pub trait Sink {
    /// Why a row was not taken.
    type Error;

    /// A row a packet.
    fn packet(&mut self, row: &PacketRow<'_>) -> Result<(), Self::Error>;

    /// A row a stream frame.
    fn stream(&mut self, row: &StreamRow) -> Result<(), Self::Error>;

    /// A row an HTTP/3 frame.
    fn http3(&mut self, row: &Http3Row<'_>) -> Result<(), Self::Error>;
}

/// Keeps nothing: for whoever wants the summary only.
#[derive(Debug, Clone, Copy)]
pub struct Nothing;

impl Sink for Nothing {
    type Error = std::convert::Infallible;

    fn packet(&mut self, _row: &PacketRow<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    fn stream(&mut self, _row: &StreamRow) -> Result<(), Self::Error> {
        Ok(())
    }

    fn http3(&mut self, _row: &Http3Row<'_>) -> Result<(), Self::Error> {
        Ok(())
    }
}

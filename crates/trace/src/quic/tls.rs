//! What both ends say in the TLS handshake: the application protocol (RFC 7301) and QUIC's transport parameters
//! (RFC 9000, section 18).

use schemars::JsonSchema;
use serde::Serialize;

use super::bytes::Input;

/// What one side said in its ClientHello or its EncryptedExtensions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extensions {
    /// The first application protocol of the list; of a server the one that is spoken.
    pub protocol: Option<String>,
    /// Its transport parameters.
    pub parameters: Option<TransportParameters>,
}

/// What a side told of itself. What it left out has the default of RFC 9000, section 18.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TransportParameters {
    /// Milliseconds without packets after which it gives up; 0 is never.
    pub max_idle_timeout_ms: u64,
    /// Bytes that it takes on all streams, at first.
    pub initial_max_data: u64,
    /// Bytes that it takes on a stream that it opened, at first.
    pub initial_max_stream_data_bidi_local: u64,
    /// Bytes that it takes on a stream that the other opened, at first.
    pub initial_max_stream_data_bidi_remote: u64,
    /// Bytes that it takes on a stream in one direction, at first.
    pub initial_max_stream_data_uni: u64,
    /// Delays in its ACK frames count two to the power of this many microseconds.
    pub ack_delay_exponent: u64,
    /// Milliseconds by which it delays acknowledgements at most.
    pub max_ack_delay_ms: u64,
    /// The largest DATAGRAM frame that it takes (RFC 9221); 0 is none.
    pub max_datagram_frame_size: u64,
}

impl Default for TransportParameters {
    fn default() -> Self {
        Self {
            max_idle_timeout_ms: 0,
            initial_max_data: 0,
            initial_max_stream_data_bidi_local: 0,
            initial_max_stream_data_bidi_remote: 0,
            initial_max_stream_data_uni: 0,
            ack_delay_exponent: DEFAULT_ACK_DELAY_EXPONENT,
            max_ack_delay_ms: 25,
            max_datagram_frame_size: 0,
        }
    }
}

/// Where a side names none, and always in Initial and Handshake packets (RFC 9000, section 18.2).
pub const DEFAULT_ACK_DELAY_EXPONENT: u64 = 3;
/// Larger ones are an error (RFC 9000, section 18.2).
const LARGEST_ACK_DELAY_EXPONENT: u64 = 20;
const CLIENT_HELLO: u8 = 1;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const PROTOCOLS: u16 = 16;
const TRANSPORT_PARAMETERS: u16 = 57;

/// What a side's first message says, once all of it has come; `messages` begins with it.
#[must_use]
pub fn extensions(messages: &[u8]) -> Option<Extensions> {
    let mut input = Input(messages);
    let kind = input.u8()?;
    let len = input.u24()?;
    let mut message = Input(input.take(len)?);
    match kind {
        CLIENT_HELLO => {
            message.take(2 + 32)?;
            let session = message.u8()?;
            message.take(session.into())?;
            let suites = message.u16()?;
            message.take(suites.into())?;
            let compression = message.u8()?;
            message.take(compression.into())?;
        }
        ENCRYPTED_EXTENSIONS => {}
        _ => return None,
    }
    let len = message.u16()?;
    let mut list = Input(message.take(len.into())?);
    let mut said = Extensions::default();
    while !list.is_empty() {
        let kind = list.u16()?;
        let len = list.u16()?;
        let data = list.take(len.into())?;
        match kind {
            PROTOCOLS => said.protocol = first_protocol(data),
            TRANSPORT_PARAMETERS => said.parameters = Some(parameters(data)),
            _ => {}
        }
    }
    Some(said)
}

fn first_protocol(data: &[u8]) -> Option<String> {
    let mut input = Input(data);
    input.u16()?;
    let len = input.u8()?;
    Some(String::from_utf8_lossy(input.take(len.into())?).into_owned())
}

/// The parameters up to the first that is damaged.
fn parameters(data: &[u8]) -> TransportParameters {
    let mut found = TransportParameters::default();
    let mut input = Input(data);
    while let Some((id, value)) = input.varint().zip(input.string()) {
        let Some(number) = Input(value).varint() else {
            continue; // not a number, or one that is only there or not
        };
        match id {
            0x01 => found.max_idle_timeout_ms = number,
            0x04 => found.initial_max_data = number,
            0x05 => found.initial_max_stream_data_bidi_local = number,
            0x06 => found.initial_max_stream_data_bidi_remote = number,
            0x07 => found.initial_max_stream_data_uni = number,
            0x0a => found.ack_delay_exponent = number.min(LARGEST_ACK_DELAY_EXPONENT),
            0x0b => found.max_ack_delay_ms = number,
            0x20 => found.max_datagram_frame_size = number,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[kind], &len[1..], body].concat()
    }

    #[test]
    fn encrypted_extensions_name_protocol_and_windows() {
        let parameters = [
            0x04, 0x04, 0x80, 0x10, 0x00, 0x00, 0x0a, 0x01, 0x05, 0x01, 0x02, 0x40, 0x64,
        ];
        let mut list = vec![0, 16, 0, 5, 0, 3, 2, b'h', b'3', 0, 57, 0, 13];
        list.extend(parameters);
        let mut body = u16::try_from(list.len()).unwrap().to_be_bytes().to_vec();
        body.extend(list);
        let whole = message(ENCRYPTED_EXTENSIONS, &body);
        let said = extensions(&whole).unwrap();
        assert_eq!(said.protocol.as_deref(), Some("h3"));
        let said = said.parameters.unwrap();
        assert_eq!(said.initial_max_data, 1 << 20);
        assert_eq!(said.ack_delay_exponent, 5);
        assert_eq!(said.max_idle_timeout_ms, 100);
        assert_eq!(said.max_ack_delay_ms, 25);
        for cut in 0..whole.len() {
            assert_eq!(extensions(&whole[..cut]), None, "{cut}");
        }
    }
}

//! Header sections of CONNECT requests as RFC 9114 and RFC 9484 have them, where the HTTP/3
//! library has them otherwise.
//!
//! Version 0.0.8 of it sends `:scheme` and `:path` with a plain CONNECT, which RFC 9114,
//! section 4.4, forbids, and of extended CONNECT it knows no `connect-ip`. Its sources have
//! both since, no release has. Until then a request's field section is edited between the
//! library and the stream, and [`CONNECT_IP`] stands for `connect-ip` in the library. A field
//! section is a sequence of field lines (RFC 9204, section 4.5); without a dynamic table,
//! which neither end uses here, each can be left out or replaced by itself.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::varint;

/// The protocol of CONNECT-IP requests, as the library hands them over.
pub const CONNECT_IP: h3::ext::Protocol = h3::ext::Protocol::WEB_TRANSPORT;

/// The types of DATA and HEADERS frames (RFC 9114, section 7.2).
const DATA: u64 = 0;
const HEADERS: u64 = 1;
/// Bytes in which a header section has to be complete, with what comes before it.
const LONGEST: usize = 32 * 1024;
/// Entries of the static table (RFC 9204, appendix A).
const PATH: u64 = 1;
const METHOD_CONNECT: u64 = 15;
const SCHEMES: [u64; 2] = [22, 23];

/// A text as it is, and in the Huffman code of RFC 7541, appendix B.
type Text = [&'static [u8]; 2];
const PROTOCOL: Text = [b":protocol", &[0xb9, 0x5d, 0x87, 0x49, 0xc8, 0x7a, 0x3f]];
const WIRE: Text = [b"connect-ip", &[0x21, 0xea, 0xa8, 0xa4, 0x4a, 0xc6, 0xaf]];
const LIBRARY: Text = [
    b"webtransport",
    &[0xf0, 0x58, 0xd3, 0x60, 0xea, 0x45, 0x67, 0xb1, 0x3f],
];
/// No protocol that the library knows.
const UNKNOWN: Text = [b"-", b"-"];

/// A HEADERS frame of ours as it goes out; anything else stays as it is.
pub(crate) fn outgoing(frame: Bytes) -> Bytes {
    edit(&frame, |line, plain| match line {
        Line::Static { name } if plain && (*name == PATH || SCHEMES.contains(name)) => Edit::Drop,
        Line::Literal { name, value } if is(name, &PROTOCOL) && is(value, &LIBRARY) => {
            Edit::Replace(WIRE)
        }
        _ => Edit::Keep,
    })
    .unwrap_or(frame)
}

/// A HEADERS frame of the peer's as the library is to see it.
fn incoming(frame: &[u8]) -> Option<Bytes> {
    edit(frame, |line, _| match line {
        Line::Literal { name, value } if is(name, &PROTOCOL) => match () {
            () if is(value, &WIRE) => Edit::Replace(LIBRARY),
            () if is(value, &LIBRARY) => Edit::Replace(UNKNOWN),
            () => Edit::Keep,
        },
        _ => Edit::Keep,
    })
}

/// What the peer sends on a request's stream, up to its header section.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// What the library has not been given.
    held: BytesMut,
}

/// What a stream's beginning has come to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// More has to come.
    Not,
    /// The library is to have this, and what follows as it comes.
    With(Bytes),
}

impl Incoming {
    /// Takes what comes next. Frames are no longer than [`crate::frames`] lets them be.
    pub(crate) fn take(&mut self, data: &[u8]) -> Begun {
        self.held.extend_from_slice(data);
        let mut at = 0;
        while let Some((kind, head, length)) = frame(&self.held[at..]) {
            let end = at + head + length;
            match kind {
                // Wrong here, which the library says.
                DATA => return Begun::With(self.rest()),
                _ if self.held.len() < end => break,
                HEADERS => {
                    let mut all = self.held.split();
                    let rest = all.split_off(end);
                    let section = all.split_off(at);
                    let section = incoming(&section).unwrap_or_else(|| section.freeze());
                    all.extend_from_slice(&section);
                    all.extend_from_slice(&rest);
                    return Begun::With(all.freeze());
                }
                // One that the library skips.
                _ => at = end,
            }
        }
        match self.held.len() > LONGEST {
            true => Begun::With(self.rest()),
            false => Begun::Not,
        }
    }

    /// What the library is to have when the stream ends before that: what has come, if the end is a clean one. A
    /// reset is one of this stream alone, which half a frame before a clean end would not be.
    pub(crate) fn end<E>(&mut self, end: Result<Option<Bytes>, E>) -> Result<Option<Bytes>, E> {
        match end {
            Ok(None) if !self.held.is_empty() => Ok(Some(self.rest())),
            end => end,
        }
    }

    fn rest(&mut self) -> Bytes {
        self.held.split().freeze()
    }
}

/// Type of a frame, bytes of its head and of its payload.
fn frame(data: &[u8]) -> Option<(u64, usize, usize)> {
    let (kind, first) = varint::read(data)?;
    let (length, second) = varint::read(&data[first..])?;
    Some((kind, first + second, usize::try_from(length).ok()?))
}

/// A field line, as far as it matters here.
enum Line<'a> {
    /// The name, or name and value, of an entry of the static table, by its number.
    Static { name: u64 },
    /// Name and value in full, as they are written.
    Literal { name: &'a [u8], value: &'a [u8] },
}

enum Edit {
    Keep,
    Drop,
    /// Keeps the name; the value is this.
    Replace(Text),
}

/// `frame` with its lines edited; `None` when it is no HEADERS frame, is none that can be
/// edited line by line, or stays as it is. `edit` is told whether it is a plain CONNECT's.
fn edit(frame: &[u8], edit: impl Fn(&Line<'_>, bool) -> Edit) -> Option<Bytes> {
    let (kind, head, length) = self::frame(frame)?;
    let section = frame.get(head..head + length)?;
    // No reference to a dynamic table: both numbers before the lines are zero.
    if kind != HEADERS || section.get(..2)? != [0, 0] || frame.len() != head + length {
        return None;
    }
    let mut lines = Vec::new();
    let mut rest = &section[2..];
    while !rest.is_empty() {
        let (line, after) = line(rest)?;
        lines.push((line, &rest[..rest.len() - after.len()]));
        rest = after;
    }
    let connect = |line: &Line<'_>| {
        matches!(
            line,
            Line::Static {
                name: METHOD_CONNECT
            }
        )
    };
    let extended =
        |line: &Line<'_>| matches!(line, Line::Literal { name, .. } if is(name, &PROTOCOL));
    let plain = lines.iter().any(|(line, _)| connect(line))
        && !lines.iter().any(|(line, _)| extended(line));
    let mut edited = BytesMut::from(&[0, 0][..]);
    for (line, bytes) in &lines {
        match edit(line, plain) {
            Edit::Keep => edited.extend_from_slice(bytes),
            Edit::Drop => {}
            Edit::Replace([value, _]) => {
                let Line::Literal { value: old, .. } = line else {
                    return None;
                };
                let name = bytes.len() - old.len() - 1;
                edited.extend_from_slice(&bytes[..name]);
                // Without Huffman's code, and shorter than 127 bytes.
                edited.extend_from_slice(&[u8::try_from(value.len()).ok()?]);
                edited.extend_from_slice(value);
            }
        }
    }
    if edited == section {
        return None;
    }
    let mut out = BytesMut::with_capacity(edited.len() + 9);
    varint::put(HEADERS, &mut out);
    varint::put(edited.len() as u64, &mut out);
    out.extend_from_slice(&edited);
    Some(out.freeze())
}

fn is(bytes: &[u8], text: &Text) -> bool {
    text.contains(&bytes)
}

/// The first line of `data` and what follows it (RFC 9204, sections 4.5.2 to 4.5.6).
fn line(data: &[u8]) -> Option<(Line<'_>, &[u8])> {
    let first = *data.first()?;
    match first {
        0b1100_0000.. => {
            let (name, rest) = number(data, 6)?;
            Some((Line::Static { name }, rest))
        }
        0b0101_0000..=0b0101_1111 | 0b0111_0000..=0b0111_1111 => {
            let (name, rest) = number(data, 4)?;
            let (_, rest) = string(rest, 7)?;
            Some((Line::Static { name }, rest))
        }
        0b0010_0000..=0b0011_1111 => {
            let (name, rest) = string(data, 3)?;
            let (value, rest) = string(rest, 7)?;
            Some((Line::Literal { name, value }, rest))
        }
        // Of a dynamic table.
        _ => None,
    }
}

/// A string whose length has `bits` bits in its first byte, as it is written, and the rest.
fn string(data: &[u8], bits: u32) -> Option<(&[u8], &[u8])> {
    let (length, rest) = number(data, bits)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

/// An integer of `bits` bits in the first byte (RFC 7541, section 5.1) and the rest.
fn number(mut data: &[u8], bits: u32) -> Option<(u64, &[u8])> {
    let full = (1 << bits) - 1;
    let mut value = u64::from(*data.first()?) & full;
    data.advance(1);
    let mut shift = 0;
    if value == full {
        loop {
            let byte = *data.first()?;
            data.advance(1);
            value = value.checked_add(u64::from(byte & 0x7f).checked_shl(shift)?)?;
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return None;
            }
        }
    }
    Some((value, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HEADERS with `:method: CONNECT`, `:scheme: https`, `:path: /` and these literal lines.
    fn request(literal: &[(&[u8], &[u8])]) -> Bytes {
        let mut section = vec![0, 0, 0xcf, 0xd7, 0xc1];
        for (name, value) in literal {
            let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
            // Names here have from seven to 133 bytes.
            section.extend([0b0010_0111, length(name) - 7]);
            section.extend_from_slice(name);
            section.push(length(value));
            section.extend_from_slice(value);
        }
        let mut frame = vec![1, u8::try_from(section.len()).unwrap()];
        frame.extend(section);
        frame.into()
    }

    #[test]
    fn a_plain_connect_goes_out_without_scheme_and_path() {
        let frame = outgoing(request(&[(b"example", b"value")]));
        assert_eq!(frame[..5], [1, 18, 0, 0, 0xcf]);
        assert!(frame.ends_with(b"example\x05value"));
        let udp = request(&[(b":protocol", b"connect-udp")]);
        assert_eq!(outgoing(udp.clone()), udp, "which has both");
    }

    #[test]
    fn a_reset_in_a_header_section_is_seen_as_one_and_a_clean_end_shows_what_has_come() {
        let request = request(&[]);
        let begun = || {
            let mut incoming = Incoming::default();
            assert_eq!(incoming.take(&request[..4]), Begun::Not);
            incoming
        };
        assert_eq!(begun().end(Err("reset")), Err("reset"));
        let end = begun().end::<()>(Ok(None)).unwrap();
        assert_eq!(end.as_deref(), Some(&request[..4]));
        assert_eq!(Incoming::default().end::<()>(Ok(None)), Ok(None));
    }

    #[test]
    fn connect_ip_goes_out_and_comes_in_however_the_stream_is_cut() {
        let ours = request(&[(b":protocol", b"webtransport")]);
        let wire = outgoing(ours.clone());
        assert!(wire.ends_with(b"\x0aconnect-ip"));
        // A frame of a reserved type before it, DATA behind it.
        let stream = [&[0x21, 2, 0, 0][..], &wire, &[0, 1, 7]].concat();
        for cut in [1, 3, 10, stream.len()] {
            let mut incoming = Incoming::default();
            let mut came = Vec::new();
            let mut begun = false;
            for piece in stream.chunks(cut) {
                if begun {
                    came.extend_from_slice(piece);
                } else if let Begun::With(bytes) = incoming.take(piece) {
                    begun = true;
                    came.extend_from_slice(&bytes);
                }
            }
            let expected = [&[0x21, 2, 0, 0][..], &ours, &[0, 1, 7]].concat();
            assert_eq!(came, expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_the_library_would_take_for_connect_ip_is_unknown_to_it() {
        for value in LIBRARY {
            let mut incoming = Incoming::default();
            let Begun::With(frame) = incoming.take(&request(&[(b":protocol", value)])) else {
                panic!("it is complete");
            };
            assert!(frame.ends_with(b"\x01-"));
        }
    }

    #[test]
    fn data_of_any_kind_ends_in_something() {
        for byte in 0..=255 {
            let mut incoming = Incoming::default();
            let data = [byte; 40];
            incoming.take(&data);
            let mut incoming = Incoming::default();
            let data = [1, 38].into_iter().chain([byte; 38]).collect::<Vec<_>>();
            assert_eq!(incoming.take(&data), Begun::With(data.into()));
        }
    }
}

//! Field sections of QPACK (RFC 9204, section 4.5), as far as they can be read without the
//! dynamic table.

use super::huffman;
use super::static_table::STATIC;
use crate::quic::bytes::Input;

/// What stands for a name or value of the dynamic table.
const DYNAMIC: &str = "(dynamic)";
/// Characters of a section that are kept.
const MOST: usize = 16 << 10;

/// The field lines of a section, one a line, as "name: value"; None where it is damaged.
pub(super) fn lines(section: &[u8]) -> Option<String> {
    let mut input = Input(section);
    // Required insert count and base say where in the dynamic table: nobody looks there.
    integer(&mut input, 8)?;
    integer(&mut input, 7)?;
    let mut text = String::new();
    while let Some(&first) = input.0.first() {
        let (name, value) = line(&mut input, first)?;
        if text.len() + name.len() + value.len() > MOST {
            text.push_str("(more)\n");
            break;
        }
        text.push_str(&name);
        text.push_str(": ");
        text.push_str(&value);
        text.push('\n');
    }
    Some(text)
}

fn line(input: &mut Input<'_>, first: u8) -> Option<(String, String)> {
    let dynamic = || DYNAMIC.to_owned();
    let of_table = |index: u64| STATIC.get(usize::try_from(index).ok()?);
    Some(if first & 0x80 != 0 {
        let index = integer(input, 6)?;
        if first & 0x40 == 0 {
            (dynamic(), dynamic())
        } else {
            let (name, value) = of_table(index)?;
            ((*name).to_owned(), (*value).to_owned())
        }
    } else if first & 0x40 != 0 {
        let index = integer(input, 4)?;
        let name = if first & 0x10 == 0 {
            dynamic()
        } else {
            of_table(index)?.0.to_owned()
        };
        (name, string(input, 7)?)
    } else if first & 0x20 != 0 {
        (string(input, 3)?, string(input, 7)?)
    } else if first & 0x10 != 0 {
        integer(input, 4)?;
        (dynamic(), dynamic())
    } else {
        integer(input, 3)?;
        (dynamic(), string(input, 7)?)
    })
}

/// An integer whose first byte has `bits` of it (RFC 7541, section 5.1).
fn integer(input: &mut Input<'_>, bits: u32) -> Option<u64> {
    let most = (1u64 << bits) - 1;
    let mut value = u64::from(input.u8()?) & most;
    if value < most {
        return Some(value);
    }
    for shift in (0..56).step_by(7) {
        let byte = input.u8()?;
        value += u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A string whose first byte has `bits` of its length, and before them whether it is coded.
fn string(input: &mut Input<'_>, bits: u32) -> Option<String> {
    let coded = input.0.first()? >> bits & 1 != 0;
    let length = usize::try_from(integer(input, bits)?).ok()?;
    let bytes = input.take(length)?;
    let plain = if coded {
        huffman::decode(bytes)?
    } else {
        bytes.to_vec()
    };
    Some(String::from_utf8_lossy(&plain).into_owned())
}

#[cfg(test)]
mod tests {
    use super::lines;

    /// RFC 9204, appendix B.1 and B.2.
    #[test]
    fn sections_of_the_rfc() {
        let literal = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(lines(literal).as_deref(), Some(":path: /index.html\n"));
        let indexed = [0x03, 0x81, 0x10, 0x11];
        assert_eq!(
            lines(&indexed).as_deref(),
            Some("(dynamic): (dynamic)\n(dynamic): (dynamic)\n")
        );
        assert_eq!(
            lines(&[0, 0, 0xd1, 0xd9]).as_deref(),
            Some(":method: GET\n:status: 200\n")
        );
        assert_eq!(lines(&[0, 0, 0xff, 0x7f]), None, "beyond the static table");
        assert_eq!(lines(&[0, 0, 0x51, 0x0b, b'/']), None, "cut");
    }
}

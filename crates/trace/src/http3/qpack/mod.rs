//! Field sections of QPACK (RFC 9204, section 4.5).

mod primitives;
mod table;

use self::primitives::{integer, string};
pub use self::table::Table;
use self::table::fixed;
use crate::quic::bytes::Input;

/// What stands for a name or value of the dynamic table that was not seen.
const UNSEEN: &str = "(dynamic)";
/// Characters of a section that are kept.
pub const MOST: usize = 16 << 10;

/// The field lines of a section, one a line, as "name: value"; None where it is damaged.
pub(super) fn lines(section: &[u8], table: &Table) -> Option<String> {
    let mut input = Input(section);
    let required = integer(&mut input, 8)?;
    let negative = input.0.first()? & 0x80 != 0;
    let delta = integer(&mut input, 7)?;
    let lines = Lines {
        base: table.base(required, negative, delta),
        table,
    };
    let mut text = String::new();
    while let Some(&first) = input.0.first() {
        let (name, value) = lines.read(&mut input, first)?;
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

/// Where the lines of a section point.
struct Lines<'t> {
    table: &'t Table,
    /// None where the section needs what was not seen.
    base: Option<u64>,
}

impl Lines<'_> {
    /// Name and value of the line that begins with the byte `first`.
    fn read(&self, input: &mut Input<'_>, first: u8) -> Option<(String, String)> {
        Some(if first & 0x80 != 0 {
            let index = integer(input, 6)?;
            if first & 0x40 == 0 {
                self.before(index)
            } else {
                let (name, value) = fixed(index)?;
                ((*name).to_owned(), (*value).to_owned())
            }
        } else if first & 0x40 != 0 {
            let index = integer(input, 4)?;
            let name = if first & 0x10 == 0 {
                self.before(index).0
            } else {
                fixed(index)?.0.to_owned()
            };
            (name, text(&string(input, 7)?))
        } else if first & 0x20 != 0 {
            (text(&string(input, 3)?), text(&string(input, 7)?))
        } else if first & 0x10 != 0 {
            self.behind(integer(input, 4)?)
        } else {
            let name = self.behind(integer(input, 3)?).0;
            (name, text(&string(input, 7)?))
        })
    }

    /// The entry so many before the base.
    fn before(&self, relative: u64) -> (String, String) {
        let below = |base: u64| base.checked_sub(relative)?.checked_sub(1);
        self.entry(self.base.and_then(below))
    }

    /// The entry so many behind the base.
    fn behind(&self, relative: u64) -> (String, String) {
        self.entry(self.base.and_then(|base| base.checked_add(relative)))
    }

    fn entry(&self, absolute: Option<u64>) -> (String, String) {
        match absolute.and_then(|absolute| self.table.get(absolute)) {
            Some((name, value)) => (text(name), text(value)),
            None => (UNSEEN.to_owned(), UNSEEN.to_owned()),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::table::Damaged;
    use super::{Table, lines};
    use crate::quic::bytes::Input;

    /// A table of 220 bytes behind these instructions.
    fn table(instructions: &[&[u8]]) -> Table {
        let mut table = Table::default();
        table.allow(220);
        for bytes in instructions {
            let mut input = Input(bytes);
            while !input.is_empty() {
                let done = table.instruction(&mut input);
                assert_eq!(done, Some(Ok(())), "{bytes:02x?}");
            }
        }
        table
    }

    const FIRST: &[u8] = b"\x3f\xbd\x01\xc0\x0fwww.example.com\xc1\x0c/sample/path";
    const SECOND: &[u8] = b"\x4acustom-key\x0ccustom-value";

    /// RFC 9204, appendix B.
    #[test]
    fn sections_of_the_rfc() {
        let literal = b"\x00\x00\x51\x0b/index.html";
        let none = Table::default();
        assert_eq!(
            lines(literal, &none).as_deref(),
            Some(":path: /index.html\n")
        );
        let indexed = [0x03, 0x81, 0x10, 0x11];
        assert_eq!(
            lines(&indexed, &table(&[FIRST])).as_deref(),
            Some(":authority: www.example.com\n:path: /sample/path\n")
        );
        let later = table(&[FIRST, SECOND, b"\x02"]);
        assert_eq!(
            lines(&[0x05, 0x00, 0x80, 0xc1, 0x81], &later).as_deref(),
            Some(":authority: www.example.com\n:path: /\ncustom-key: custom-value\n")
        );
        let evicted = table(&[FIRST, SECOND, b"\x02", b"\x81\x0dcustom-value2"]);
        assert_eq!(evicted.size(), 215);
        assert!(evicted.get(0).is_none() && evicted.get(1).is_some());
    }

    #[test]
    fn what_was_not_seen_is_told_and_the_rest_is_read() {
        let indexed = [0x03, 0x81, 0x10, 0x11];
        for table in [Table::default(), table(&[&FIRST[..20]])] {
            assert_eq!(
                lines(&indexed, &table).as_deref(),
                Some("(dynamic): (dynamic)\n(dynamic): (dynamic)\n")
            );
        }
    }

    #[test]
    fn what_cannot_be_is_damaged() {
        let none = Table::default();
        assert_eq!(
            lines(&[0, 0, 0xd1, 0xd9], &none).as_deref(),
            Some(":method: GET\n:status: 200\n")
        );
        assert_eq!(
            lines(&[0, 0, 0xff, 0x7f], &none),
            None,
            "beyond the static table"
        );
        assert_eq!(lines(&[0, 0, 0x51, 0x0b, b'/'], &none), None, "cut");
        for instruction in [
            &b"\x02"[..],            // again what is not there
            b"\x3f\xe1\xff\xff\x07", // a capacity of 16 MiB
            b"\x80\x01a",            // a name that is not there
            b"\xff\x7f\x01a",        // a name beyond the static table
            b"\x41a\x01b",           // with a capacity of nothing
        ] {
            let done = Table::default().instruction(&mut Input(instruction));
            assert_eq!(done, Some(Err(Damaged)), "{instruction:02x?}");
        }
        assert_eq!(
            Table::default().instruction(&mut Input(b"\x4acus")),
            None,
            "cut"
        );
    }
}

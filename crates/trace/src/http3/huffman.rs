//! The Huffman code of field lines (RFC 7541, appendix B), which QPACK has from HPACK.
//!
//! The code is canonical: codes of one length follow each other in the order of their
//! symbols, so that the lengths say all.

use std::sync::LazyLock;

/// Bits of the code of each byte, and of the end of the string (256), which is never sent.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The longest code.
const LONGEST: usize = 30;

/// Codes by length.
struct Codes {
    /// Symbols in the order of their codes.
    symbols: [u16; 257],
    /// The first code of each length, and where its symbol stands.
    first: [(u32, u16); LONGEST + 1],
    /// How many codes each length has.
    count: [u16; LONGEST + 1],
}

static CODES: LazyLock<Codes> = LazyLock::new(|| {
    let mut count = [0; LONGEST + 1];
    for length in LENGTHS {
        count[usize::from(length)] += 1;
    }
    let mut first = [(0, 0); LONGEST + 1];
    let (mut code, mut place) = (0u32, 0u16);
    for length in 1..=LONGEST {
        code <<= 1;
        first[length] = (code, place);
        code += u32::from(count[length]);
        place += count[length];
    }
    let mut symbols = [0; 257];
    for (symbol, place) in (0u16..).zip(&mut symbols) {
        *place = symbol;
    }
    symbols.sort_by_key(|symbol| LENGTHS[usize::from(*symbol)]);
    Codes {
        symbols,
        first,
        count,
    }
});

/// The bytes of a coded string; None where it has a code that is none, or ends wrongly.
pub(super) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    let codes = &*CODES;
    let mut plain = Vec::with_capacity(coded.len() * 2);
    let (mut code, mut length) = (0u32, 0usize);
    for bit in coded
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |place| byte >> place & 1))
    {
        code = code << 1 | u32::from(bit);
        length += 1;
        if length > LONGEST {
            return None;
        }
        let (first, place) = codes.first[length];
        if let Some(rank) = code.checked_sub(first)
            && rank < u32::from(codes.count[length])
        {
            let symbol = codes.symbols[usize::from(place) + rank as usize];
            plain.push(u8::try_from(symbol).ok()?);
            (code, length) = (0, 0);
        }
    }
    // What is left is the beginning of the code of the end, less than a byte of it: ones.
    (length < 8 && code == (1 << length) - 1).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::decode;

    /// RFC 7541, appendix C.4 and C.6.
    #[test]
    fn strings_of_the_rfc() {
        for (coded, plain) in [
            (
                &[
                    0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
                ][..],
                "www.example.com",
            ),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], "no-cache"),
            (&[0x64, 0x02], "302"),
            (&[], ""),
        ] {
            assert_eq!(decode(coded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(decode(&[0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(decode(&[0xf1, 0xe3, 0x00]), None);
    }
}

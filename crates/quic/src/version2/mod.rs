//! QUIC version 2 (RFC 9369) for a library that has version 1 only.
//!
//! Version 2 is version 1 with other types in long headers, other labels and salts for keys, and
//! another number. [`header`] translates the types, [`keys`] has the keys and the TLS session,
//! [`socket`] translates what arrives. What leaves is translated when it is encrypted. The library
//! sees packets of version 1 with another version's number, of which it takes no notice.
//!
//! Both ends say in their transport parameters which versions they speak (RFC 9368, section 3), and a
//! connection whose peer has chosen another than the one in its packets fails. There is no
//! change of version within a connection (compatible version negotiation), and no Retry from a
//! server.

mod header;
pub mod keys;
pub mod socket;

/// Its number.
pub const VERSION_2: u32 = 0x6b33_43cf;

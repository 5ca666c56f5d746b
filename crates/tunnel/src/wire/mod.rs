//! The wire: HTTP/3 over QUIC.
//!
//! [`quic`] lets the HTTP/3 library run on the QUIC library, [`request`] says what
//! bentpipe says in HTTP: CONNECT (RFC 9114, section 4.4), the answer, and
//! Proxy-Status (RFC 9209).

pub mod quic;
pub mod request;

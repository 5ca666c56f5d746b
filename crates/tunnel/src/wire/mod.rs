//! The wire: HTTP/3 over QUIC.
//!
//! [`request`] says what
//! bentpipe says in HTTP: CONNECT (RFC 9114, section 4.4), the answer, and
//! Proxy-Status (RFC 9209).

pub mod request;

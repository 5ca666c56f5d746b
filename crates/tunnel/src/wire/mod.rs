//! The wire format: HTTP/3 (RFC 9114) between terminal and gateway.
//!
//! - [`connect`]: the request for a TCP connection
//! - [`connect_udp`]: the request for UDP datagrams, carried as [`datagram`]s and [`capsule`]s
//! - [`contexts`]: which of these tell of ECN and DF; [`path_mtu`]: that one was too long
//! - [`connect_ip`]: the request for IP packets, carried so too
//! - [`dns`]: a question of DNS
//! - [`enrol`]: the requests to enrol a terminal, and to change its key
//! - [`notices`]: what the gateway has to tell a terminal
//! - [`request`]: any of them, as the gateway reads it
//! - [`bearer`]: the token of a client without a key
//! - [`proxy_status`]: the answer when a request fails

pub mod proxy_status;
pub mod bearer;
pub mod connect;
pub mod datagram;
pub mod capsule;
pub mod connect_udp;
pub mod contexts;
pub mod path_mtu;
pub mod connect_ip;
pub mod dns;
pub mod enrol;
pub mod notices;
pub mod request;

/// Largest header section that either end takes (RFC 9114, section 4.2.2), bytes.
pub const MAX_FIELD_SECTION: u64 = 8 * 1024;

//! The only crate that touches the machine.
//!
//! The tunnel's side: [`ingress`] and [`tproxy`] bring applications' connections,
//! [`tcp`], [`udp`] and [`quic`] are its sockets, [`secret`] and [`limits`] what it
//! needs of the system.

pub mod ingress;
pub mod tproxy;
pub mod tcp;
pub mod udp;
pub mod quic;
pub mod secret;
pub mod limits;

//! The only crate that touches the machine.
//!
//! For the emulator, in the order in which a packet and its device need it:
//! [`namespace`], [`tun`], [`segment`], [`cpu_latency`] and [`realtime`].
//!
//! For measurements and for the proxy that splits TCP: [`tcp_options`] with [`initial_window`], [`tcp_info`] and
//! [`tcp_measured`], the kernel's own TCP.
//!
//! For the tunnel: [`proxy`] and [`tproxy`] bring applications' connections,
//! [`dns`] their questions, [`ip`] packets of other protocols, for which a gateway has a network ([`ip_gateway`]); [`tcp`], [`udp`], [`machine`] with its [`resolver`], [`quic_runtime`], [`quic_socket`] and [`quic`] are its sockets, [`network_changes`]
//! says when its addresses or [`ways`] change, [`secret`], [`limits`] and [`privileges`] are what it needs of the system.

pub mod namespace;
mod netlink;
mod own_addresses;
pub mod tun;
pub mod segment;
pub mod cpu_latency;
pub mod realtime;

pub mod listener;
pub mod proxy;
pub mod dns;
pub mod tproxy;
pub mod ip;
pub mod ip_gateway;
mod socket_option;
pub mod kernel_memory;
pub mod tcp;
pub mod initial_window;
pub mod tcp_options;
pub mod tcp_info;
pub mod tcp_measured;
pub mod udp;
mod datagram;
mod icmp;
pub mod resolver;
pub mod machine;
pub mod quic_runtime;
pub mod quic_socket;
pub mod quic;
pub mod network_changes;
pub mod ways;
pub mod secret;
pub mod limits;
pub mod privileges;
pub mod doctor;

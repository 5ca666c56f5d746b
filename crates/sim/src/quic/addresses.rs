//! Where the ends of flows are, and the proxies between them.

use std::net::{Ipv4Addr, SocketAddr};

pub(crate) fn gateway_address(flow: usize) -> SocketAddr {
    address(198, flow, 0)
}

pub(crate) fn terminal_address(flow: usize, moves: usize) -> SocketAddr {
    address(10, flow, moves)
}

/// Where a proxy is reached, and from where it reaches its next hop.
pub(crate) fn proxy_address(proxy: usize, side: usize) -> SocketAddr {
    address(172, proxy, side)
}

/// Addresses only need to differ.
fn address(network: u8, flow: usize, host: usize) -> SocketAddr {
    let [_, _, high, low] = u32::try_from(flow).unwrap_or(0).to_be_bytes();
    let host = u8::try_from(host + 1).unwrap_or(u8::MAX);
    SocketAddr::from((Ipv4Addr::new(network, high, low, host), 4433))
}

//! The interface by which packets of other protocols than TCP and UDP leave for the tunnel, and
//! the routes that lead there.

use std::io;

use super::{Capture, Fail, TransparentError, routes};
use crate::ip::{self, Interface};

/// Distinguishes the marks of these packets, and their routing tables, from those of connections
/// that are taken.
const TAG: u32 = 0x6271_0000;

/// The mark of packets, and number of the routing table that they use.
pub(super) fn mark(port: u16) -> u32 {
    TAG + u32::from(port)
}

/// The name of the interface.
pub(super) fn device(capture: &Capture) -> String {
    match &capture.tun {
        Some(tun) => tun.interface.clone(),
        None => format!("bp-ip-{}", capture.port),
    }
}

/// Makes the interface and its routes.
pub(super) fn interface(capture: &Capture, ipv6: bool) -> Result<Interface, TransparentError> {
    let failed = |error| TransparentError::Ip(Box::new(error));
    if !capture.interfaces.is_empty() && capture.tunnels_packets() {
        ip::check_terminal().map_err(failed)?;
    }
    // Until the gateway assigns others: an interface without addresses has no packets
    // translated, and nobody could be told why nothing comes back (RFC 7600; RFC 6666).
    let unassigned = ["192.0.0.8/32", "100::8/128"].map(|text| text.parse().expect("networks"));
    let unassigned = &unassigned[..1 + usize::from(ipv6)];
    let interface = Interface::open(&device(capture), unassigned).map_err(failed)?;
    route(capture).map_err(|source| TransparentError::Routes { source })?;
    Ok(interface)
}

/// Leads packets to their interface; no error if that is so already.
pub(super) fn route(capture: &Capture) -> io::Result<()> {
    let (mark, device) = (mark(capture.port), device(capture));
    let closed = capture.fail == Fail::Closed;
    routes::add_through(routes::Family::V4, mark, &device, closed)?;
    if let Err(error) = routes::add_through(routes::Family::V6, mark, &device, closed) {
        tracing::debug!("IPv6: {error}");
    }
    Ok(())
}

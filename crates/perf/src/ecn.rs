//! A UDP socket that sends without ECN (RFC 3168), for measurements of what ECN does.

use bentpipe_quic::layer::{Layer, Sending};
use noq::udp::Transmit;

/// Everything leaves as not ECN-capable. The QUIC library has no switch for it.
#[derive(Debug)]
pub struct WithoutEcn;

impl Layer for WithoutEcn {
    fn sending(&self) -> Option<Box<dyn Sending>> {
        Some(Box::new(Self))
    }
}

impl Sending for WithoutEcn {
    fn outgoing<'a>(&self, transmit: &Transmit<'a>) -> Transmit<'a> {
        Transmit {
            ecn: None,
            ..transmit.clone()
        }
    }
}

//! A UDP socket that gives packets of version 2 the types of version 1 when they arrive.

use std::io::IoSliceMut;

use noq::udp::RecvMeta;

use super::header;
use crate::layer::Layer;

/// Over a socket of an endpoint that speaks version 2.
#[derive(Debug)]
pub struct Version2;

impl Layer for Version2 {
    fn on_received(&mut self, buffers: &mut [IoSliceMut<'_>], meta: &mut [RecvMeta]) {
        for (buffer, meta) in buffers.iter_mut().zip(meta) {
            let length = meta.len.min(buffer.len());
            for datagram in buffer[..length].chunks_mut(meta.stride.max(1)) {
                header::translate(datagram);
            }
        }
    }
}

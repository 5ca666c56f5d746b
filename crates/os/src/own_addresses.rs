//! The addresses of this machine, known at every moment without asking for all of them each time.
//!
//! The kernel puts a message on a netlink socket before a change of addresses is over
//! (rtnetlink(7)): while nothing lies there, what was read last is true.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

const GROUPS: libc::c_int = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;

/// The addresses of the network namespace in which they were first asked for. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnAddresses(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Where changes are announced, once it could be had.
    changes: Option<Socket>,
    /// What was read after the last announcement.
    known: Option<Arc<[IpAddr]>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("State")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl OwnAddresses {
    /// As they are now; an error if that cannot be known.
    pub(crate) fn now(&self) -> io::Result<Arc<[IpAddr]>> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.changes.is_none() {
            state.known = None;
            state.changes = Some(listen()?);
        }
        if state.changes.as_ref().is_some_and(has_announced) {
            state.known = None;
        }
        if let Some(known) = &state.known {
            return Ok(known.clone());
        }
        let interfaces = if_addrs::get_if_addrs()?;
        let read: Arc<[IpAddr]> = interfaces.iter().map(if_addrs::Interface::ip).collect();
        state.known = Some(read.clone());
        Ok(read)
    }
}

fn listen() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind(&SocketAddr::new(0, GROUPS.cast_unsigned()))?;
    Ok(socket)
}

/// Whether something was announced since the last time. What cannot be known counts as that.
fn has_announced(changes: &Socket) -> bool {
    let mut announced = false;
    let mut message = [0; 1];
    loop {
        match changes.recv(&mut &mut message[..], libc::MSG_DONTWAIT) {
            Ok(_) => announced = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return announced,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // There were more than the kernel keeps; what it has kept is read the next time.
            Err(_) => return true,
        }
    }
}

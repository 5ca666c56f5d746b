//! Changes of the machine's addresses, routes and firewall, as the kernel announces them
//! (rtnetlink(7), nfnetlink).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

use crate::ways::Ways;

/// Messages about addresses and routes of both families.
const GROUPS: [libc::c_int; 4] = [
    libc::RTMGRP_IPV4_IFADDR,
    libc::RTMGRP_IPV6_IFADDR,
    libc::RTMGRP_IPV4_ROUTE,
    libc::RTMGRP_IPV6_ROUTE,
];
/// Messages about routing rules of both families (RTNLGRP_IPV4_RULE and RTNLGRP_IPV6_RULE in
/// linux/rtnetlink.h).
const RULES: [u32; 2] = [8, 19];
/// Messages about nftables (NFNLGRP_NFTABLES in linux/netfilter/nfnetlink.h).
const NFTABLES: u32 = 7;
/// One change comes as several messages, and a router may have many changes.
const SETTLE: Duration = Duration::from_millis(50);

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// Addresses, routes and routing rules.
    Network,
    /// nftables.
    Nftables,
}

/// Tells the sessions of `endpoint` from now on when one of `ways` has changed with the
/// machine's addresses or routes: they speak up from their new address, where the peer would
/// else hear of it with the next keep-alive. Until then it sends to an address that is no more.
pub fn follow(endpoint: noq::Endpoint, ways: Arc<Ways>) -> io::Result<()> {
    watch(Watched::Network, move || {
        if ways.have_changed() {
            tracing::debug!("the way to the gateway has changed");
            endpoint.handle_network_change(None);
        }
    })
}

/// Calls `changed` from now on when something has changed and settled.
pub fn watch(watched: Watched, changed: impl Fn() + Send + 'static) -> io::Result<()> {
    let changes = Changes::listen(watched)?;
    std::thread::Builder::new()
        .name("changes".into())
        .spawn(move || {
            loop {
                if let Err(error) = changes.wait() {
                    tracing::warn!("changes of the network will be noticed late: {error}");
                    return;
                }
                changed();
            }
        })?;
    Ok(())
}

/// The changes in one network namespace.
struct Changes(Socket);

impl Changes {
    /// Listens in the calling thread's namespace from now on.
    fn listen(watched: Watched) -> io::Result<Self> {
        let mut socket = match watched {
            Watched::Network => {
                let groups = GROUPS.into_iter().fold(0, |all, group| all | group);
                let mut socket = Socket::new(NETLINK_ROUTE)?;
                socket.bind(&SocketAddr::new(0, groups.cast_unsigned()))?;
                for group in RULES {
                    socket.add_membership(group)?;
                }
                return Ok(Self(socket));
            }
            Watched::Nftables => Socket::new(NETLINK_NETFILTER)?,
        };
        socket.bind_auto()?;
        socket.add_membership(NFTABLES)?;
        Ok(Self(socket))
    }

    /// Returns when something has changed since the last time, and settled.
    fn wait(&self) -> io::Result<()> {
        self.take(0)?;
        std::thread::sleep(SETTLE);
        loop {
            match self.take(libc::MSG_DONTWAIT) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes a message without reading it: that there was one is all that matters.
    fn take(&self, flags: libc::c_int) -> io::Result<()> {
        let mut message = [0; 1];
        match self.0.recv(&mut &mut message[..], flags) {
            // There were more than the kernel keeps.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            taken => taken.map(|_| ()),
        }
    }
}

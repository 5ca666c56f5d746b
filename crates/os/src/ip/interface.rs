//! A TUN device as the tunnel's network interface.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use bentpipe_tunnel::flow::ip::MTU;
use bentpipe_tunnel::sockets::PacketDevice;
use ipnet::IpNet;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::IpError;
use crate::segment::HEADER;
use crate::tun::{Tun, TunSpec};

/// A network interface whose packets go into the tunnel. It vanishes with this value.
pub struct Interface {
    file: AsyncFd<OwnedFd>,
    tun: Mutex<Tun>,
    name: String,
}

impl Interface {
    /// Makes the interface `name` with `addresses`. Needs CAP_NET_ADMIN.
    pub fn open(name: &str, addresses: &[IpNet]) -> Result<Self, IpError> {
        let tun = Tun::whole_packets(&TunSpec {
            device: name.to_owned(),
            mtu: MTU,
            addresses: addresses.to_vec(),
        })?;
        // Answers come by it that the machine would look for elsewhere.
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        if let Err(error) = std::fs::write(&path, "2") {
            tracing::debug!("{path}: {error}");
        }
        let read = |error| IpError::Read(name.to_owned(), error);
        let file = tun.as_fd().try_clone_to_owned().map_err(read)?;
        #[expect(
            unsafe_code,
            reason = "no safe function of tokio registers a descriptor"
        )]
        // SAFETY: an OwnedFd is the same open descriptor until it is dropped, which is after the
        // registration.
        let file = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        Ok(Self {
            file: file.map_err(|error| read(error.into()))?,
            tun: Mutex::new(tun),
            name: name.to_owned(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The networks that the machine is connected to by other interfaces, and these.
    fn networks_of_others(&self) -> io::Result<Vec<(String, IpNet)>> {
        let interfaces = if_addrs::get_if_addrs()?.into_iter();
        let others = interfaces.filter(|interface| interface.name != self.name);
        Ok(others
            .filter_map(|interface| {
                let prefix = match &interface.addr {
                    if_addrs::IfAddr::V4(address) => address.prefixlen,
                    if_addrs::IfAddr::V6(address) => address.prefixlen,
                };
                let network = IpNet::new(interface.ip(), prefix).ok()?.trunc();
                (prefix > 0).then_some((interface.name, network))
            })
            .collect())
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Interface({})", self.name)
    }
}

impl PacketDevice for Interface {
    fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let mut packet = vec![0; HEADER + MTU as usize];
        loop {
            let mut ready = ready!(self.file.poll_read_ready(context))?;
            let read = ready.try_io(|file| {
                rustix::io::retry_on_intr(|| rustix::io::read(file, &mut packet[..]))
                    .map_err(io::Error::from)
            });
            // Nothing was there after all.
            let Ok(read) = read else { continue };
            let length = read?;
            packet.truncate(length);
            packet.drain(..HEADER.min(length));
            return Poll::Ready(Ok(packet));
        }
    }

    fn send(&self, packet: &[u8]) {
        let tun = self.tun.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = tun.write(packet) {
            tracing::debug!("{}: a packet was not taken: {error}", self.name);
        }
    }

    fn set_addresses(&self, addresses: &[IpAddr]) -> io::Result<()> {
        let others = self.networks_of_others()?;
        let clash = |address: IpAddr| {
            others
                .iter()
                .find(|(_, network)| network.contains(&address))
        };
        let (clashing, fitting): (Vec<IpAddr>, Vec<_>) = addresses
            .iter()
            .partition(|address| clash(**address).is_some());
        let fitting: Vec<_> = fitting.into_iter().map(IpNet::from).collect();
        let mut tun = self.tun.lock().unwrap_or_else(PoisonError::into_inner);
        tun.replace_addresses(&fitting).map_err(io::Error::other)?;
        match clashing.first().and_then(|address| clash(*address)) {
            None => Ok(()),
            // The host that has it would be cut off.
            Some((name, network)) => Err(io::Error::other(format!(
                "{} may be a host's of {network} at {name}; the gateway's [ip] networks have to be others",
                clashing[0]
            ))),
        }
    }
}

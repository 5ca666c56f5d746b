//! IP packets sent as they are (raw(7)).

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// Checks that packets can be sent. Needs CAP_NET_RAW.
pub(super) fn check() -> io::Result<()> {
    open(Domain::IPV4).map(|_| ())
}

/// Sends `packet`, of either family, on its way to `destination`; with `mark`, as routing rules
/// for that mark say.
pub(super) fn send(packet: &[u8], destination: IpAddr, mark: Option<u32>) -> io::Result<()> {
    let to = SocketAddr::new(destination, 0);
    let socket = open(Domain::for_address(to))?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    socket.send_to(packet, &to.into()).map(|_| ())
}

fn open(domain: Domain) -> io::Result<Socket> {
    // Of this protocol packets have their IP header already, in both families.
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

//! Datagrams with what the kernel tells of them beside their payload (cmsg(3)): markings, and where
//! redirected ones were sent to.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use bentpipe_tunnel::marking::Marking;
use noq_proto::EcnCodepoint;
use socket2::{SockAddr, SockAddrStorage, Socket};

use crate::socket_option;

/// The bits of ECN in the second byte of an IP header.
const ECN: u8 = 0b11;
/// Since Linux 5.19 (asm-generic/socket.h): datagrams come with the packet's mark.
const SO_RCVMARK: libc::c_int = 75;

/// A datagram that was received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    pub length: usize,
    pub from: Option<SocketAddr>,
    /// Where it was sent to, of one that was redirected (ip(7), IP_RECVORIGDSTADDR).
    pub destination: Option<SocketAddr>,
    pub marking: Marking,
}

/// Has the kernel tell of each datagram's ECN field.
pub(crate) fn want_markings(socket: &Socket, ipv6: bool) {
    want(
        socket,
        match ipv6 {
            true => (libc::SOL_IPV6, libc::IPV6_RECVTCLASS),
            false => (libc::SOL_IP, libc::IP_RECVTOS),
        },
    );
}

/// The same of DF, for redirected datagrams: of IPv4 by the packet's mark, where a rule has set
/// [`DONT_FRAGMENT`], and of IPv6 by whether it came in fragments.
pub(crate) fn want_dont_fragment(socket: &Socket, ipv6: bool) {
    want(
        socket,
        match ipv6 {
            true => (libc::SOL_IPV6, libc::IPV6_RECVFRAGSIZE),
            false => (libc::SOL_SOCKET, SO_RCVMARK),
        },
    );
}

/// What an old kernel does not tell is not known.
fn want(socket: &Socket, (level, name): (libc::c_int, libc::c_int)) {
    if let Err(error) = socket_option::set(socket, level, name, 1) {
        tracing::debug!("markings of datagrams are not told: {error}");
    }
}

/// The bit in the mark of redirected packets of IPv4 that must not be cut.
pub(crate) const DONT_FRAGMENT: u32 = 1 << 31;

/// A longer payload came whole only because it came by loopback, or by a LAN of larger frames than the
/// internet's: such a datagram may be cut. An Ethernet frame without headers of IPv4 and UDP, bytes.
const LONGEST_WHOLE: usize = 1500 - 28;

/// Receives one datagram.
pub(crate) fn receive(socket: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<Received> {
    /// Room for what is asked for of either family, aligned as cmsghdr is.
    #[repr(align(8))]
    struct Control([MaybeUninit<u8>; 256]);
    let mut control = Control([MaybeUninit::uninit(); 256]);
    let mut part = IoSliceMut::new(buffer);
    let mut name = SockAddrStorage::zeroed();
    // SAFETY: zero is a valid value of every field.
    #[expect(unsafe_code, reason = "no library reads these messages")]
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = name.size_of();
    message.msg_iov = (&raw mut part).cast();
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: the message points to memory that is writable for the length of the call;
    // IoSliceMut has the layout of iovec.
    #[expect(unsafe_code, reason = "no library reads these messages")]
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let mut received = Received {
        length,
        from: None,
        destination: None,
        marking: Marking::default(),
    };
    // Of IPv6 every datagram that did not come in fragments.
    let mut whole = None;
    // SAFETY: the kernel has filled the message's control part, which these walk as
    // cmsg(3) says; what is behind each header is of its kind, and copied out unaligned.
    #[expect(unsafe_code, reason = "no library reads these messages")]
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(found) = header.as_ref() {
            let data = libc::CMSG_DATA(header);
            match (found.cmsg_level, found.cmsg_type) {
                (libc::SOL_IP, libc::IP_TOS) => {
                    received.marking.ecn = EcnCodepoint::from_bits(*data & ECN);
                }
                (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                    let class = data.cast::<libc::c_int>().read_unaligned();
                    received.marking.ecn = EcnCodepoint::from_bits(class.to_le_bytes()[0] & ECN);
                    whole = whole.or(Some(true));
                }
                (libc::SOL_IPV6, libc::IPV6_RECVFRAGSIZE) => whole = Some(false),
                (libc::SOL_SOCKET, libc::SO_MARK) => {
                    let mark = data.cast::<u32>().read_unaligned();
                    whole = Some(mark & DONT_FRAGMENT != 0);
                }
                (libc::SOL_IP, libc::IP_ORIGDSTADDR) => {
                    let address = data.cast::<libc::sockaddr_in>().read_unaligned();
                    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                    received.destination = Some((ip, u16::from_be(address.sin_port)).into());
                }
                (libc::SOL_IPV6, libc::IPV6_ORIGDSTADDR) => {
                    let address = data.cast::<libc::sockaddr_in6>().read_unaligned();
                    let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                    received.destination = Some((ip, u16::from_be(address.sin6_port)).into());
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    // SAFETY: the kernel has written an address of this length, or left it at zero.
    #[expect(unsafe_code, reason = "no library reads these messages")]
    let from = unsafe { SockAddr::new(name, message.msg_namelen) };
    received.from = from.as_socket();
    received.marking.dont_fragment = whole == Some(true) && length <= LONGEST_WHOLE;
    Ok(received)
}

/// What the kernel is told of datagrams that it sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub ecn: Option<EcnCodepoint>,
    pub ipv6: bool,
    /// There are several, of so many bytes each but for the last (udp(7), UDP_SEGMENT).
    pub segment: Option<u16>,
}

/// Sends a datagram made of `parts`, or several, to `to`, or to whom the socket is connected to.
pub(crate) fn send(
    socket: &impl AsRawFd,
    parts: &[IoSlice<'_>],
    to: Option<SocketAddr>,
    how: Sent,
) -> io::Result<()> {
    /// Room for two numbers, aligned as cmsghdr is.
    #[repr(align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let to = to.map(SockAddr::from);
    // SAFETY: zero is a valid value of every field.
    #[expect(unsafe_code, reason = "no library writes these messages")]
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    if let Some(to) = &to {
        message.msg_name = to.as_ptr().cast_mut().cast();
        message.msg_namelen = to.len();
    }
    message.msg_iov = parts.as_ptr().cast_mut().cast();
    message.msg_iovlen = parts.len();
    let class = match how.ipv6 {
        true => (libc::SOL_IPV6, libc::IPV6_TCLASS),
        false => (libc::SOL_IP, libc::IP_TOS),
    };
    let mut tell = |(level, kind): (libc::c_int, libc::c_int), number: &[u8]| {
        let at = message.msg_controllen;
        let size = u32::try_from(number.len()).expect("a number is short");
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: there is room for both numbers, and each lies where cmsg(3) says.
        #[expect(unsafe_code, reason = "no library writes these messages")]
        unsafe {
            let header = control.0.as_mut_ptr().add(at).cast::<libc::cmsghdr>();
            ((*header).cmsg_level, (*header).cmsg_type) = (level, kind);
            (*header).cmsg_len = libc::CMSG_LEN(size) as usize;
            libc::CMSG_DATA(header).copy_from_nonoverlapping(number.as_ptr(), number.len());
            message.msg_controllen = at + libc::CMSG_SPACE(size) as usize;
        }
    };
    if let Some(ecn) = how.ecn {
        tell(class, &libc::c_int::from(ecn as u8).to_ne_bytes());
    }
    if let Some(length) = how.segment {
        tell((libc::SOL_UDP, libc::UDP_SEGMENT), &length.to_ne_bytes());
    }
    // SAFETY: the message points to memory that outlives the call, which writes none of it;
    // IoSlice has the layout of iovec.
    #[expect(unsafe_code, reason = "no library writes these messages")]
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match sent {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn markings_that_are_sent_are_received() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let ipv6 = address.starts_with('[');
            let (one, other) = (UdpSocket::bind(address), UdpSocket::bind(address));
            let (Ok(one), Ok(other)) = (one, other) else {
                // A machine without IPv6.
                assert!(ipv6);
                continue;
            };
            let one = Socket::from(one);
            want_markings(&one, ipv6);
            let to = one.local_addr().unwrap().as_socket();
            for bits in 0..4 {
                let ecn = EcnCodepoint::from_bits(bits);
                let how = Sent {
                    ecn,
                    ipv6,
                    segment: None,
                };
                send(&other, &[IoSlice::new(b"payload")], to, how).unwrap();
                let mut buffer = [0; 100];
                let received = receive(&one, &mut buffer).unwrap();
                assert_eq!(&buffer[..received.length], b"payload");
                assert_eq!(received.from, other.local_addr().ok());
                assert_eq!(received.marking.ecn, ecn);
                assert_eq!(
                    (received.marking.dont_fragment, received.destination),
                    (ipv6, None)
                );
            }
        }
    }
}

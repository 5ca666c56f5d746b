//! Copies of packets that an nftables rule has logged (nfnetlink_log).

use std::io;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::nflog::{
    ConfigCmd, ConfigMode, ConfigNla, PacketNla, ULogMessage, config_request,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;

/// Packets that are gathered before they are handed over: one is not kept waiting.
const AT_ONCE: u32 = 1;

/// What is logged to one group.
pub(super) struct Log(Socket);

impl Log {
    /// Takes what is logged to `group` in the calling thread's namespace. Needs CAP_NET_ADMIN.
    pub(super) fn open(group: u16) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        let request = config_request(
            NetfilterProtoFamily::Unspec,
            group,
            vec![
                ConfigCmd::Bind.into(),
                ConfigMode::PACKET_MAX.into(),
                ConfigNla::QThresh(AT_ONCE),
            ],
        );
        let mut message = vec![0; request.buffer_len()];
        request.serialize(&mut message);
        socket.send(&message, 0)?;
        let (answer, _) = socket.recv_from_full()?;
        let answer = NetlinkMessage::<NetfilterMessage>::deserialize(&answer);
        match answer.map_err(io::Error::other)?.payload {
            NetlinkPayload::Error(told) if told.code.is_some() => Err(told.to_io()),
            _ => Ok(Self(socket)),
        }
    }

    /// Waits for packets, from the IP header on.
    pub(super) fn receive(&self) -> io::Result<Vec<Vec<u8>>> {
        let messages = match self.0.recv_from_full() {
            Ok((messages, _)) => messages,
            // There were more than the kernel keeps: their senders send them again.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut packets = Vec::new();
        let mut rest = &messages[..];
        while let Ok(message) = NetlinkMessage::<NetfilterMessage>::deserialize(rest) {
            // Each begins at a multiple of four bytes (netlink(7)).
            let length = usize::try_from(message.header.length.next_multiple_of(4));
            rest = rest.get(length.unwrap_or(usize::MAX)..).unwrap_or_default();
            if let NetlinkPayload::InnerMessage(message) = message.payload
                && let NetfilterMessageInner::ULog(ULogMessage::Packet(parts)) = message.inner
            {
                packets.extend(parts.into_iter().find_map(|part| match part {
                    PacketNla::Payload(packet) => Some(packet),
                    _ => None,
                }));
            }
        }
        Ok(packets)
    }
}

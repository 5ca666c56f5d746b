//! What the kernel tells of a TCP connection's sender: TCP_INFO (`struct tcp_info` in
//! linux/tcp.h, which only ever grows at its end).

#![expect(
    unsafe_code,
    reason = "getsockopt(TCP_INFO) is reached through libc alone"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// A connection's state; counts are since it began. Fields that the kernel is too old for are
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// Bytes of a full segment.
    pub segment: u64,
    /// Congestion window, segments.
    pub window: u64,
    /// Slow-start threshold in segments, where there is one.
    pub threshold: Option<u64>,
    /// Segments sent and neither acknowledged nor given up.
    pub in_flight: u64,
    /// Smoothed round-trip time, microseconds.
    pub smoothed_rtt_us: u64,
    /// Least round-trip time, microseconds.
    pub least_rtt_us: Option<u64>,
    /// Pacing rate in bytes per second, where there is one.
    pub pacing: Option<u64>,
    /// Bytes acknowledged.
    pub acknowledged: Option<u64>,
    /// Segments sent, with those sent again.
    pub segments_sent: Option<u64>,
    /// Bytes sent, with those sent again.
    pub bytes_sent: Option<u64>,
    /// Bytes that wait in the kernel to be sent.
    pub unsent: Option<u64>,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Bytes sent again.
    pub bytes_retransmitted: Option<u64>,
    /// Segments acknowledged as having arrived with a congestion mark.
    pub marked: Option<u64>,
}

/// As much of the structure as is read here.
const LENGTH: usize = 256;
/// The slow-start threshold of a connection that has none (TCP_INFINITE_SSTHRESH).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

impl TcpInfo {
    /// Of the connection `socket`.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut buffer = [0_u8; LENGTH];
        let mut length = libc::socklen_t::try_from(LENGTH).expect("a small number");
        // SAFETY: the kernel writes at most `length` bytes to `buffer`, which has so many, and
        // how many they were to `length`; both outlive the call.
        let failed = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                buffer.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::read(&buffer[..(length as usize).min(LENGTH)]))
    }

    /// Reads the structure by its offsets.
    fn read(bytes: &[u8]) -> Self {
        let small = |at: usize| {
            let field = bytes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(field.try_into().ok()?))
        };
        let large = |at: usize| {
            let field = bytes.get(at..at + 8)?;
            Some(u64::from_ne_bytes(field.try_into().ok()?))
        };
        let count = |at: usize| small(at).map(u64::from);
        let or_zero = |at: usize| count(at).unwrap_or(0);
        // tcp_packets_in_flight(): sent, less what is known to have left the network.
        let left = or_zero(28) + or_zero(32);
        Self {
            segment: or_zero(16),
            window: or_zero(80),
            threshold: small(76).filter(|&at| at < NO_THRESHOLD).map(u64::from),
            in_flight: (or_zero(24) + or_zero(36)).saturating_sub(left),
            smoothed_rtt_us: or_zero(68),
            least_rtt_us: count(148).filter(|&rtt| rtt < u64::from(u32::MAX)),
            pacing: large(104).filter(|&rate| rate < u64::MAX),
            acknowledged: large(120),
            segments_sent: count(156),
            bytes_sent: large(200),
            unsent: count(144),
            retransmitted: or_zero(100),
            bytes_retransmitted: large(208),
            marked: count(196),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_on_loopback_has_plausible_figures() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut client = TcpStream::connect(listener.local_addr().expect("it is bound"))
            .expect("somebody listens");
        let (mut server, _) = listener.accept().expect("a connection");
        client.write_all(&[0; 100_000]).expect("room");
        let mut rest = vec![0; 100_000];
        server.read_exact(&mut rest).expect("what was sent");
        let info = TcpInfo::of(&client).expect("TCP_INFO");
        assert!((500..100_000).contains(&info.segment), "{info:?}");
        assert!(info.window >= 10, "{info:?}");
        assert!(
            info.bytes_sent.is_none_or(|sent| sent >= 100_000),
            "{info:?}"
        );
        assert!(info.smoothed_rtt_us < 10_000_000, "{info:?}");
        assert_eq!(info.retransmitted, 0);
    }

    #[test]
    fn an_old_kernel_tells_less() {
        let info = TcpInfo::read(&[1; 104]);
        assert_eq!(info.pacing, None);
        assert_eq!(info.bytes_retransmitted, None);
        assert_eq!(info.window, 0x0101_0101);
    }
}

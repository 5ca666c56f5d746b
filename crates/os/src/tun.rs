//! A TUN device: IP packets out of a namespace's stack and back into it.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use ipnet::IpNet;
use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, Updater};

use crate::namespace::{Namespace, NamespaceError};
use crate::netlink::Netlink;
use crate::segment;

/// Ethernet's jumbo frames and every satellite modem stay below.
pub const LARGEST_MTU: u32 = 9000;
/// IPv6 needs it of every link (RFC 8200, section 5).
pub const SMALLEST_MTU: u32 = 1280;
/// Packets that the kernel may hold for us: 0.19 s of 1 Gbit/s in full packets.
/// What does not fit there is lost before the link model has seen it.
const KERNEL_QUEUE: u32 = 16_384;

/// Why a TUN device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// Its namespace cannot be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// No `/dev/net/tun`.
    #[error(
        "/dev/net/tun is missing: load the driver with `modprobe tun`, or make the node with `mkdir -p /dev/net && mknod /dev/net/tun c 10 200`"
    )]
    NoDriver,
    /// `/dev/net/tun` cannot be opened.
    #[error(
        "cannot open /dev/net/tun: {0}; run as root, or give this user read and write access to it"
    )]
    Closed(io::Error),
    /// The device cannot be made for lack of rights.
    #[error(
        "making the TUN device {device} in {namespace} needs CAP_NET_ADMIN there: run as root, or `setcap cap_net_admin,cap_sys_admin+ep` on the binary"
    )]
    Forbidden {
        /// The device.
        device: String,
        /// Its namespace.
        namespace: String,
    },
    /// There is a device of that name already.
    #[error(
        "there is a device {device} in {namespace} already, which is left as it is: give the link's device another name, like {namespace}/sat1"
    )]
    Taken {
        /// The device.
        device: String,
        /// Its namespace.
        namespace: String,
    },
    /// Not a name for a device.
    #[error("{device:?} cannot be a device's name: 1 to 15 letters, digits, '-', '_' and '.'")]
    Name {
        /// The name that was asked for.
        device: String,
    },
    /// Another device of the namespace has the address, or the network.
    #[error(
        "{other} in {namespace} has {theirs} already, so packets for {ours} would not take the link: give the link addresses of a network of its own"
    )]
    AddressTaken {
        /// The address of the link.
        ours: IpNet,
        /// What stands against it.
        theirs: IpNet,
        /// Whose it is.
        other: String,
        /// Their namespace.
        namespace: String,
    },
    /// The address is refused.
    #[error("cannot add the address {address} to {device} in {namespace}: {source}")]
    Address {
        /// The address.
        address: IpNet,
        /// The device.
        device: String,
        /// Its namespace.
        namespace: String,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot {what} the TUN device {device} in {namespace}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The device.
        device: String,
        /// Its namespace.
        namespace: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What a TUN device is to be.
#[derive(Debug, Clone)]
pub struct TunSpec {
    /// Its name.
    pub device: String,
    /// Its largest packet.
    pub mtu: u32,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
}

/// Checks what may be a device's name (the kernel's `dev_valid_name`, and no
/// letters that need quoting anywhere).
pub fn check_name(device: &str) -> Result<(), TunError> {
    let fine = (1..=15).contains(&device.len())
        && !matches!(device, "." | "..")
        && device
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if fine {
        Ok(())
    } else {
        Err(TunError::Name {
            device: device.to_owned(),
        })
    }
}

/// A TUN device, up and with its addresses. It vanishes with this value.
pub struct Tun {
    file: File,
    netlink: Netlink,
    device: String,
    index: u32,
    namespace: String,
    /// Those that this value has given to the device.
    addresses: Vec<IpNet>,
    /// Packets that the kernel had dropped when the device came up.
    dropped_before: u64,
}

impl Tun {
    /// Makes the device inside `namespace` and takes it up. `peers` are the addresses of the
    /// other end of its link.
    pub fn create(
        namespace: &Namespace,
        spec: &TunSpec,
        peers: &[IpNet],
    ) -> Result<Self, TunError> {
        check_name(&spec.device)?;
        namespace.run(|| Self::create_here(namespace.name(), spec, peers, true))?
    }

    /// Makes the device in the namespace of the caller and takes it up. What is read from it is
    /// one whole packet each time, behind [`segment::HEADER`] bytes that say nothing.
    pub fn whole_packets(spec: &TunSpec) -> Result<Self, TunError> {
        check_name(&spec.device)?;
        Self::create_here("this namespace", spec, &[], false)
    }

    fn create_here(
        namespace: &str,
        spec: &TunSpec,
        peers: &[IpNet],
        large: bool,
    ) -> Result<Self, TunError> {
        let system = |what| {
            let (device, namespace) = (spec.device.clone(), namespace.to_owned());
            move |source: io::Error| TunError::System {
                what,
                device,
                namespace,
                source,
            }
        };
        let mut netlink = Netlink::open().map_err(system("ask the kernel about"))?;
        if netlink.device(&spec.device).is_ok() {
            // TUNSETIFF would attach to another's TUN device instead of refusing.
            return Err(TunError::Taken {
                device: spec.device.clone(),
                namespace: namespace.to_owned(),
            });
        }
        Self::check_addresses(&mut netlink, namespace, spec, peers)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TunError::NoDriver,
                _ => TunError::Closed(error),
            })?;
        attach(&file, &spec.device).map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => TunError::Forbidden {
                device: spec.device.clone(),
                namespace: namespace.to_owned(),
            },
            Errno::BUSY | Errno::EXIST => TunError::Taken {
                device: spec.device.clone(),
                namespace: namespace.to_owned(),
            },
            errno => system("make")(errno.into()),
        })?;
        if large {
            offload(&file).map_err(|errno| system("set up")(errno.into()))?;
        }
        quieten(&spec.device);
        let index = netlink
            .device(&spec.device)
            .map_err(system("find"))?
            .header
            .index;
        netlink
            .set_sizes(index, spec.mtu, KERNEL_QUEUE)
            .map_err(system("set the MTU of"))?;
        netlink.set_up(index).map_err(system("take up"))?;
        for address in &spec.addresses {
            netlink
                .add_address(index, *address)
                .map_err(|source| TunError::Address {
                    address: *address,
                    device: spec.device.clone(),
                    namespace: namespace.to_owned(),
                    source,
                })?;
        }
        let dropped_before = netlink
            .statistics(&spec.device)
            .map_err(system("read the statistics of"))?
            .tx_dropped;
        Ok(Self {
            file,
            netlink,
            device: spec.device.clone(),
            index,
            namespace: namespace.to_owned(),
            addresses: spec.addresses.clone(),
            dropped_before,
        })
    }

    /// Checks that no other device of the namespace takes packets that are for the link.
    fn check_addresses(
        netlink: &mut Netlink,
        namespace: &str,
        spec: &TunSpec,
        peers: &[IpNet],
    ) -> Result<(), TunError> {
        let system = |source| TunError::System {
            what: "find room for the addresses of",
            device: spec.device.clone(),
            namespace: namespace.to_owned(),
            source,
        };
        for (index, theirs) in netlink.addresses().map_err(system)? {
            let all = spec.addresses.iter().chain(peers);
            let taken = all.copied().find(|ours| clash(*ours, theirs));
            if let Some(ours) = taken {
                let other = netlink.device_at(index).map_err(system)?;
                return Err(TunError::AddressTaken {
                    ours,
                    theirs,
                    other,
                    namespace: namespace.to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Takes what the namespace sends next into `buffer`, which has room for
    /// [`segment::LONGEST`]: one packet or several, for [`segment::segment`];
    /// `WOULDBLOCK` when there is none.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::retry_on_intr(|| rustix::io::read(&self.file, &mut *buffer))
    }

    /// Gives a packet to the namespace, which processes it before this returns.
    pub fn write(&self, packet: &[u8]) -> Result<(), Errno> {
        /// Nothing is left to be done to it.
        const WHOLE: [u8; segment::HEADER] = [0; segment::HEADER];
        let parts = [IoSlice::new(&WHOLE), IoSlice::new(packet)];
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.file, &parts)).map(|_| ())
    }

    /// Packets that the kernel dropped because its queue to us was full.
    pub fn overflow(&mut self) -> io::Result<u64> {
        let dropped = self.netlink.statistics(&self.device)?.tx_dropped;
        Ok(dropped.saturating_sub(self.dropped_before))
    }

    /// The addresses that the device was given here.
    pub fn addresses(&self) -> &[IpNet] {
        &self.addresses
    }

    /// Gives the device these addresses instead of those that it has of the same
    /// families. All or nothing; the new ones come before the old ones go, so that
    /// routes through the device stay.
    pub fn replace_addresses(&mut self, new: &[IpNet]) -> Result<(), TunError> {
        let families: Vec<_> = new.iter().map(|address| address.addr().is_ipv4()).collect();
        let (old, mut kept): (Vec<_>, Vec<_>) = self
            .addresses
            .iter()
            .copied()
            .partition(|address| families.contains(&address.addr().is_ipv4()));
        let added: Vec<_> = new.iter().filter(|it| !old.contains(it)).copied().collect();
        for (number, address) in added.iter().enumerate() {
            if let Err(source) = self.netlink.add_address(self.index, *address) {
                for address in &added[..number] {
                    // It is there: it was added a moment ago.
                    let _ = self.netlink.remove_address(self.index, *address);
                }
                return Err(TunError::Address {
                    address: *address,
                    device: self.device.clone(),
                    namespace: self.namespace.clone(),
                    source,
                });
            }
        }
        for address in old.iter().filter(|it| !new.contains(it)) {
            if let Err(error) = self.netlink.remove_address(self.index, *address) {
                // Somebody else has removed it, which is as well.
                tracing::debug!("removing {address} from {}: {error}", self.device);
            }
        }
        kept.extend(new);
        self.addresses = kept;
        Ok(())
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The name of the namespace that it is in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Lets the kernel hand over what a network card would cut and complete, of TCP. UDP is cut
/// by the kernel: senders' batches are short, and the device's counters go on to count packets.
fn offload(file: &File) -> Result<(), Errno> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the request's number has 32 bits"
    )]
    const SET_OFFLOAD: Opcode = libc::TUNSETOFFLOAD as Opcode;
    const TCP: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let flags = usize::try_from(TCP).expect("a pointer has 32 bits");
    #[expect(unsafe_code, reason = "no crate wraps this request of the TUN driver")]
    // SAFETY: TUNSETOFFLOAD takes its flags by value (tun.c: `__tun_chr_ioctl`).
    unsafe {
        rustix::ioctl::ioctl(file, IntegerSetter::<SET_OFFLOAD>::new_usize(flags))
    }
}

/// Whether packets for `ours`, an address of either end of a link, go to a device that has
/// `theirs`: it has that address, or its network has it and is not the larger one.
fn clash(ours: IpNet, theirs: IpNet) -> bool {
    ours.addr() == theirs.addr()
        || (theirs.contains(&ours.addr()) && theirs.prefix_len() >= ours.prefix_len())
}

/// Makes `file` the device of that name: IP packets, each behind a virtio header.
fn attach(file: &File, device: &str) -> Result<(), Errno> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the request's number has 32 bits"
    )]
    const SET_INTERFACE: Opcode = libc::TUNSETIFF as Opcode;
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_flags: i16::try_from(flags).expect("the flags have 16 bits"),
        },
    };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    #[expect(unsafe_code, reason = "no crate wraps this request of the TUN driver")]
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `request` is
    // (tun.c: `tun_chr_ioctl`); its name ends in a zero, since a checked name is
    // shorter than the field.
    unsafe {
        rustix::ioctl::ioctl(file, Updater::<SET_INTERFACE, _>::new(&mut request))
    }
}

/// Keeps IPv6 from talking over the device by itself (link-local addresses and
/// router solicitations would be packets in the measurement that nobody sent), and
/// lets an address outlive an older one of its network.
fn quieten(device: &str) {
    for (setting, value) in [
        ("ipv6/conf/{}/addr_gen_mode", "1"),
        ("ipv6/conf/{}/accept_ra", "0"),
        ("ipv4/conf/{}/promote_secondaries", "1"),
    ] {
        // A kernel without IPv6 has no such files, and nothing to keep quiet.
        let path = format!("/proc/sys/net/{}", setting.replace("{}", device));
        if let Err(error) = std::fs::write(&path, value) {
            tracing::debug!("{path}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_network_of_another_device_clashes_and_a_larger_one_does_not() {
        let cases = [
            ("10.0.0.1/24", "10.0.0.1/32", true),
            ("10.0.0.1/24", "10.0.0.9/24", true),
            ("10.0.0.1/24", "10.0.0.9/28", true),
            ("10.0.0.1/24", "10.0.0.2/8", false),
            ("10.0.0.1/24", "10.0.1.1/24", false),
            ("fd00::1/64", "fd00::9/64", true),
            ("fd00::1/64", "10.0.0.1/24", false),
        ];
        for (ours, theirs, clashes) in cases {
            let (ours, theirs) = (ours.parse().unwrap(), theirs.parse().unwrap());
            assert_eq!(clash(ours, theirs), clashes, "{ours} {theirs}");
        }
    }
}

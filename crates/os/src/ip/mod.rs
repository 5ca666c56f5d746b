//! IP packets of the machine, into the tunnel and out of it: its network [`interface`], and what
//! the machine has to be set up for.

pub mod interface;

use std::io;

pub use interface::Interface;

use crate::tun::TunError;

/// Why IP packets cannot be carried.
#[derive(Debug, thiserror::Error)]
pub enum IpError {
    /// No interface.
    #[error(transparent)]
    Interface(#[from] TunError),
    /// The interface cannot be waited for.
    #[error("the interface {0} cannot be read: {1}")]
    Read(String, io::Error),
    /// The machine does not forward.
    #[error(
        "this machine does not forward {family} packets, which carrying IP packets needs: `sysctl -w {setting}=1`, and a line of that in /etc/sysctl.d/ for the next start"
    )]
    Forwarding {
        /// IPv4 or IPv6.
        family: &'static str,
        /// The setting.
        setting: &'static str,
    },
    /// nftables is not there or refused.
    #[error("{0}")]
    Rules(String),
}

/// Whether the machine forwards packets of that family.
pub(crate) fn check_forwarding(ipv6: bool) -> Result<(), IpError> {
    let (family, setting, path) = match ipv6 {
        false => ("IPv4", "net.ipv4.ip_forward", "ipv4/ip_forward"),
        true => (
            "IPv6",
            "net.ipv6.conf.all.forwarding",
            "ipv6/conf/all/forwarding",
        ),
    };
    let value = std::fs::read_to_string(format!("/proc/sys/net/{path}"));
    match value.is_ok_and(|value| value.trim() != "0") {
        true => Ok(()),
        false => Err(IpError::Forwarding { family, setting }),
    }
}

/// Checks that the machine forwards what comes by an interface of transparent ingress.
pub fn check_terminal() -> Result<(), IpError> {
    check_forwarding(false)?;
    if let Err(error) = check_forwarding(true) {
        tracing::warn!("of IPv6, what is neither TCP nor UDP is held back: {error}");
    }
    Ok(())
}

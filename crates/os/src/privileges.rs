//! The privileges of a daemon: what it does not need is given up before it hears anybody.

use std::io;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// What a daemon needs of the system from now on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Needs {
    /// nftables, routing rules, transparent sockets, and ICMP about what comes through them.
    pub network_administration: bool,
    /// Ports below 1024.
    pub low_ports: bool,
}

/// Why privileges cannot be given up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// No such user.
    #[error("there is no user {0:?} in /etc/passwd; `useradd --system {0}` makes one")]
    User(String),
    /// Not root.
    #[error(
        "only root can become the user {user:?}, and this is user {uid}; start it as root, or leave `user` out"
    )]
    NotRoot {
        /// Who was asked for.
        user: String,
        /// Who this is.
        uid: u32,
    },
    /// Anything else.
    #[error("privileges cannot be given up: {0}")]
    System(#[from] io::Error),
}

/// Becomes `user`, if one is named, and gives up every capability but those that `needs`
/// asks for. Without a user, root keeps its access to files.
///
/// Capabilities belong to threads: call it before any other thread is started.
pub fn give_up(user: Option<&str>, needs: Needs) -> Result<(), PrivilegeError> {
    let mut keep = CapabilitySet::empty();
    keep.set(CapabilitySet::NET_ADMIN, needs.network_administration);
    keep.set(CapabilitySet::NET_RAW, needs.network_administration);
    keep.set(CapabilitySet::NET_BIND_SERVICE, needs.low_ports);
    let held = capabilities(None).map_err(io::Error::from)?.permitted;
    let uid = geteuid();
    match user {
        Some(name) => {
            let (user, group) = look_up(name)?;
            if uid != user {
                if !uid.is_root() {
                    return Err(PrivilegeError::NotRoot {
                        user: name.into(),
                        uid: uid.as_raw(),
                    });
                }
                let become_user = || -> rustix::io::Result<()> {
                    set_keep_capabilities(true)?;
                    set_thread_groups(&[])?;
                    set_thread_res_gid(group, group, group)?;
                    set_thread_res_uid(user, user, user)
                };
                become_user().map_err(io::Error::from)?;
            }
        }
        // Keys and lists may belong to another user, as with `sudo`.
        None => keep |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH,
    }
    let kept = keep & held;
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(io::Error::from)?;
    set_no_new_privs(true).map_err(io::Error::from)?;
    Ok(())
}

/// User and group by name, of /etc/passwd (passwd(5)).
fn look_up(name: &str) -> Result<(Uid, Gid), PrivilegeError> {
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    passwd
        .lines()
        .find_map(|line| entry(line, name))
        .ok_or_else(|| PrivilegeError::User(name.to_owned()))
}

fn entry(line: &str, name: &str) -> Option<(Uid, Gid)> {
    let mut fields = line.split(':');
    if fields.next()? != name {
        return None;
    }
    let user = fields.nth(1)?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some((Uid::from_raw(user), Gid::from_raw(group)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let line = "bentpipe:x:998:997:bentpipe:/nonexistent:/usr/sbin/nologin";
        let found = entry(line, "bentpipe").unwrap();
        assert_eq!((found.0.as_raw(), found.1.as_raw()), (998, 997));
        assert!(entry(line, "bent").is_none());
        assert!(entry("bentpipe:x", "bentpipe").is_none());
    }
}

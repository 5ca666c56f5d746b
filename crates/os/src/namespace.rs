//! Network namespaces: those that have a name, new ones without, and work inside them.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};

use crate::netlink::Netlink;

/// Where `ip netns add` puts its names.
const NAMED: &str = "/run/netns";

/// Why a network namespace cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// There is none of that name.
    #[error(
        "there is no network namespace {name:?} ({}); `ip netns add {name}` makes one, `ip netns list` shows those there are",
        path.display()
    )]
    Missing {
        /// The name that was asked for.
        name: String,
        /// Where it would be.
        path: PathBuf,
    },
    /// The file exists but cannot be opened.
    #[error("cannot open the network namespace {name:?} ({}): {source}", path.display())]
    Open {
        /// The name that was asked for.
        name: String,
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no network namespace.
    #[error("{} is not a network namespace; give a name from `ip netns list` or a path like /proc/PID/ns/net", path.display())]
    NotOne {
        /// What was given.
        path: PathBuf,
    },
    /// The system does not let this process in.
    #[error(
        "entering the network namespace {name:?} needs CAP_SYS_ADMIN: run as root, or inside a user and network namespace of your own (`unshare -Urnm`)"
    )]
    Forbidden {
        /// The name that was asked for.
        name: String,
    },
    /// A new one cannot be made.
    #[error("cannot make a network namespace: {0}")]
    Make(io::Error),
    /// The system lets no ordinary user make namespaces.
    #[error(
        "this system does not let this user make namespaces ({0}): run as root, or allow it, as root, with `sysctl kernel.unprivileged_userns_clone=1` (Debian) or `sysctl kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu)"
    )]
    User(io::Error),
    /// Anything else.
    #[error("cannot enter the network namespace {name:?}: {source}")]
    Enter {
        /// The name that was asked for.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A network namespace that exists. It lives at least as long as this value.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    path: PathBuf,
    file: File,
}

impl Namespace {
    /// Opens the namespace that `ip netns` knows as `name`, or the one at a path
    /// when `name` begins with a slash.
    pub fn open(name: &str) -> Result<Self, NamespaceError> {
        let path = if name.starts_with('/') {
            PathBuf::from(name)
        } else {
            Path::new(NAMED).join(name)
        };
        match File::open(&path) {
            Ok(file) => Ok(Self {
                name: name.to_owned(),
                path,
                file,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(NamespaceError::Missing {
                name: name.to_owned(),
                path,
            }),
            Err(source) => Err(NamespaceError::Open {
                name: name.to_owned(),
                path,
                source,
            }),
        }
    }

    /// A new namespace, with its loopback device up and nothing else. `name` is for messages
    /// only; the namespace goes with this value and the programs in it.
    ///
    /// # Errors
    /// [`NamespaceError::Make`]; it needs CAP_SYS_ADMIN, see [`enter_user_namespace`].
    pub fn create(name: &str) -> Result<Self, NamespaceError> {
        let made = std::thread::scope(|scope| {
            let inside = scope.spawn(|| -> io::Result<File> {
                unshare(UnshareFlags::NEWNET)?;
                let mut netlink = Netlink::open()?;
                let loopback = netlink.device("lo")?.header.index;
                netlink.set_up(loopback)?;
                File::open("/proc/thread-self/ns/net")
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let file = made.map_err(NamespaceError::Make)?;
        Ok(Self {
            name: name.to_owned(),
            path: format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into(),
            file,
        })
    }

    /// Where it is found: for `nsenter --net=PATH`, as long as this value lives.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its name still leads to it: `ip netns del` takes the name away.
    pub fn is_named(&self) -> bool {
        match (std::fs::metadata(&self.path), self.file.metadata()) {
            (Ok(named), Ok(held)) => (named.dev(), named.ino()) == (held.dev(), held.ino()),
            _ => false,
        }
    }

    /// Runs `work` inside the namespace, on a thread of its own, and waits for it.
    /// What `work` opens there stays there.
    pub fn run<T, W>(&self, work: W) -> Result<T, NamespaceError>
    where
        T: Send,
        W: FnOnce() -> T + Send,
    {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                rustix::thread::move_into_link_name_space(
                    self.file.as_fd(),
                    Some(LinkNameSpaceType::Network),
                )
                .map(|()| work())
            });
            match inside.join() {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(rustix::io::Errno::INVAL)) => Err(NamespaceError::NotOne {
                    path: self.path.clone(),
                }),
                Ok(Err(rustix::io::Errno::PERM)) => Err(NamespaceError::Forbidden {
                    name: self.name.clone(),
                }),
                Ok(Err(errno)) => Err(NamespaceError::Enter {
                    name: self.name.clone(),
                    source: errno.into(),
                }),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// Gives this process what making network namespaces needs: nothing more if it has it,
/// otherwise a user namespace of its own, in which its user is root. To be called before the
/// process has a second thread (unshare(2), CLONE_NEWUSER).
///
/// # Errors
/// [`NamespaceError::User`] where the system does not allow it.
pub fn enter_user_namespace() -> Result<(), NamespaceError> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if rustix::thread::capabilities(None).is_ok_and(|held| held.effective.contains(needed)) {
        return Ok(());
    }
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let enter = || -> io::Result<()> {
        unshare(UnshareFlags::NEWUSER)?;
        // A group can be mapped by one who may no longer change groups (user_namespaces(7)).
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("0 {} 1", user.as_raw()))?;
        std::fs::write("/proc/self/gid_map", format!("0 {} 1", group.as_raw()))
    };
    enter().map_err(NamespaceError::User)
}

fn unshare(what: UnshareFlags) -> io::Result<()> {
    #[expect(unsafe_code, reason = "it is unsafe for CLONE_FILES alone")]
    // SAFETY: file descriptors stay shared: no caller passes CLONE_FILES.
    unsafe { rustix::thread::unshare_unsafe(what) }?;
    Ok(())
}

impl fmt::Display for Namespace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_namespace_says_how_to_make_it() {
        let error = Namespace::open("bentpipe-none").unwrap_err().to_string();
        assert!(error.contains("ip netns add bentpipe-none"), "{error}");
    }

    #[test]
    fn an_ordinary_file_is_not_a_namespace() {
        let error = Namespace::open("/etc/hostname")
            .unwrap()
            .run(|| ())
            .unwrap_err();
        assert!(matches!(error, NamespaceError::NotOne { .. }), "{error}");
    }
}

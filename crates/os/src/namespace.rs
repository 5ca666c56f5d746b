//! Network namespaces: find one, and do something inside it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::LinkNameSpaceType;

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

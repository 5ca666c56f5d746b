//! A program at the terminal's end of an emulated link, in namespaces made for it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};

use anyhow::{Context, anyhow};
use bentpipe_os::namespace::{self, Namespace};
use bentpipe_os::realtime::Processors;
use ipnet::IpNet;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::failure::Failure;

/// What the program is told in its environment.
const TERMINAL_ADDRESS: &str = "BENTPIPE_TERMINAL_ADDRESS";
const GATEWAY_ADDRESS: &str = "BENTPIPE_GATEWAY_ADDRESS";
const GATEWAY_NETNS: &str = "BENTPIPE_GATEWAY_NETNS";

/// Addresses where none are given.
pub const TERMINAL: [&str; 2] = ["10.98.0.1/24", "fd98::1/64"];
/// Those of the other end.
pub const GATEWAY: [&str; 2] = ["10.98.0.2/24", "fd98::2/64"];

/// The two ends of a link that is there for one program.
#[derive(Debug)]
pub struct PrivateEnds {
    pub terminal: Namespace,
    pub gateway: Namespace,
}

impl PrivateEnds {
    /// Makes both, as root or in a user namespace. To be called before the process has a
    /// second thread.
    pub fn create() -> Result<Self, Failure> {
        let make = || {
            namespace::enter_user_namespace()?;
            Ok(Self {
                terminal: Namespace::create("terminal")?,
                gateway: Namespace::create("gateway")?,
            })
        };
        make().map_err(|error: namespace::NamespaceError| Failure::Runtime(error.into()))
    }
}

/// A program that runs in the terminal's namespace.
#[derive(Debug)]
pub struct Program {
    child: Child,
}

/// Ends the program, also while somebody waits for it.
#[derive(Debug)]
pub struct Terminator(std::os::fd::OwnedFd);

impl Program {
    /// Starts `words`, a program and its arguments, at the terminal's end. `addresses` are
    /// the terminal's and the gateway's, `processors` those that the emulator leaves to it.
    pub fn start(
        ends: &PrivateEnds,
        processors: Option<&Processors>,
        words: &[OsString],
        addresses: [&[IpNet]; 2],
    ) -> Result<(Self, Terminator), Failure> {
        let [program, arguments @ ..] = words else {
            return Err(Failure::Configuration(
                "behind -- there is no program, like bash".into(),
            ));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command.env(GATEWAY_NETNS, ends.gateway.path());
        for (name, addresses) in [TERMINAL_ADDRESS, GATEWAY_ADDRESS]
            .into_iter()
            .zip(addresses)
        {
            if let Some(address) = addresses.first() {
                command.env(name, address.addr().to_string());
            }
        }
        let child = ends
            .terminal
            .run(|| {
                // This thread is for the program alone, which inherits what it may run on.
                processors.map_or(Ok(()), Processors::keep_to)?;
                command.spawn()
            })
            .context("the program's namespace")?
            .with_context(|| format!("cannot start {}", program.display()))?;
        let terminator = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0))
            .ok_or_else(|| anyhow!("the program has no process"))
            .and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?))
            .context("the program")?;
        Ok((Self { child }, Terminator(terminator)))
    }

    /// Waits for its end.
    pub fn wait(mut self) -> std::io::Result<ExitStatus> {
        self.child.wait()
    }
}

impl Terminator {
    /// Asks the program to end, as closing its terminal would: a shell ends on nothing less.
    pub fn terminate(&self) {
        for signal in [Signal::HUP, Signal::TERM] {
            // It may have ended by itself.
            let _ = pidfd_send_signal(&self.0, signal);
        }
    }
}

/// The exit code that a shell gives for such an end.
pub fn exit_code(status: ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1)
}

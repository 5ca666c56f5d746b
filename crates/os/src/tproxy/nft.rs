//! The program `nft`, run with the one capability that it needs.
//!
//! A process that was given CAP_NET_ADMIN by file capabilities or by systemd does not hand
//! it on to programs that it starts. The thread that starts `nft` raises it in its ambient
//! set (capabilities(7)) and ends with it.

use std::io::{self, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

use super::TransparentError;

/// Where distributions keep `nft`; not on everybody's PATH.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// It takes milliseconds, but for long lists on a loaded machine. One that hangs would hold up every
/// start and every stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// Loads a ruleset, all of it or nothing.
pub(crate) async fn load(ruleset: String) -> Result<(), TransparentError> {
    run(&["-f", "-"], ruleset)
        .await
        .map(|_| ())
        .map_err(TransparentError::Nftables)
}

/// Whether there is a table of that name in family inet.
pub(super) async fn table_exists(name: &str) -> Result<bool, String> {
    listing(name).await.map(|listing| listing.is_some())
}

/// The rules of the table of that name in family inet, without counts and elements of sets; none if there is
/// no such table.
pub(super) async fn listing(name: &str) -> Result<Option<String>, String> {
    let words = ["--stateless", "--terse", "list", "table", "inet", name];
    match run(&words, String::new()).await {
        Ok(listing) => Ok(Some(listing)),
        Err(why) if why.contains("No such file or directory") => Ok(None),
        Err(why) => Err(why),
    }
}

/// All rules, as libnftables-json(5).
pub(super) fn list() -> Result<String, String> {
    run_blocking(&["-j", "list", "ruleset"].map(str::to_owned), "")
}

async fn run(arguments: &[&str], input: String) -> Result<String, String> {
    let arguments: Vec<_> = arguments.iter().map(|&word| word.to_owned()).collect();
    tokio::task::spawn_blocking(move || run_blocking(&arguments, &input))
        .await
        .unwrap_or_else(|error| Err(error.to_string()))
}

/// Runs `nft` on a thread of its own, which alone has the ambient capability.
pub(super) fn run_blocking(arguments: &[String], input: &str) -> Result<String, String> {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                if let Err(error) = hand_on_net_admin() {
                    tracing::debug!("CAP_NET_ADMIN cannot be handed on: {error}");
                }
                start(arguments, input)
            })
            .join()
            .unwrap_or_else(|_| Err("its thread has failed".into()))
    })
}

fn hand_on_net_admin() -> io::Result<()> {
    let mut sets = capabilities(None)?;
    if !sets.permitted.contains(CapabilitySet::NET_ADMIN) {
        // nft says what is missing.
        return Ok(());
    }
    sets.inheritable |= CapabilitySet::NET_ADMIN;
    set_capabilities(None, sets)?;
    configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true)?;
    Ok(())
}

fn start(arguments: &[String], input: &str) -> Result<String, String> {
    let said = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            "`nft` is not installed; Debian has it in the package nftables".to_owned()
        }
        _ => format!("`nft`: {error}"),
    };
    // By its path, and so without a fork that would copy page tables and hold listening sockets.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let nft = std::env::split_paths(&path)
        .chain(std::env::split_paths(SBIN))
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join("nft"))
        .find(|file| file.is_file())
        .ok_or_else(|| said(io::ErrorKind::NotFound.into()))?;
    let child = Command::new(nft)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(said)?;
    let output = output(child, input.into(), PATIENCE).map_err(said)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.trim().lines().next().unwrap_or("it did not say why");
    let remedy = if first.contains("Operation not permitted") {
        "; transparent ingress needs root or the capability CAP_NET_ADMIN"
    } else {
        ""
    };
    Err(format!("`nft {}`: {first}{remedy}", arguments.join(" ")))
}

/// Gives a program its input and waits for its end, but not for ever.
fn output(mut child: Child, input: String, patience: Duration) -> io::Result<Output> {
    // Without descriptors it cannot be ended, but need not be waited for.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        if let Some(mut stdin) = child.stdin.take() {
            // A tool that ends without reading says why itself.
            let _ = stdin.write_all(input.as_bytes());
        }
        let _ = ended.send(child.wait_with_output());
    });
    end.recv_timeout(patience).unwrap_or_else(|_| {
        if let Some(process) = process {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("it did not end within {patience:?}"),
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(program: &str) -> Child {
        let mut command = Command::new("sh");
        let command = command.args(["-c", program]).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn what_a_program_says_is_heard_however_much_it_is() {
        let long = "x".repeat(1 << 20);
        let child = start("cat >/dev/null; head -c 1048576 /dev/zero");
        let heard = output(child, long.clone(), Duration::from_secs(60)).unwrap();
        assert!(heard.status.success());
        assert_eq!(heard.stdout.len(), long.len());
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        // One that neither reads nor ends.
        let child = start("exec sleep 600");
        let process = Pid::from_child(&child);
        let failed = output(child, "x".repeat(1 << 20), Duration::from_millis(100)).unwrap_err();
        assert!(failed.to_string().contains("within 100ms"), "{failed}");
        while rustix::process::test_kill_process(process).is_ok() {
            std::thread::yield_now();
        }
    }
}

//! The program `nft`, run with the one capability that it needs.
//!
//! A process that was given CAP_NET_ADMIN by file capabilities or by systemd does not hand
//! it on to programs that it starts. The thread that starts `nft` raises it in its ambient
//! set (capabilities(7)) and ends with it.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

use super::TransparentError;

/// Where distributions keep `nft`; not on everybody's PATH.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Loads a ruleset, all of it or nothing.
pub(crate) async fn load(ruleset: String) -> Result<(), TransparentError> {
    run(&["-f", "-"], ruleset)
        .await
        .map(|_| ())
        .map_err(TransparentError::Nftables)
}

/// Whether there is a table of that name in family inet.
pub(super) async fn table_exists(name: &str) -> Result<bool, String> {
    match run(&["list", "table", "inet", name], String::new()).await {
        Ok(_) => Ok(true),
        Err(why) if why.contains("No such file or directory") => Ok(false),
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
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new("nft")
        .args(arguments)
        .env("PATH", format!("{path}:{SBIN}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(said)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that ends without reading says why itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(said)?;
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

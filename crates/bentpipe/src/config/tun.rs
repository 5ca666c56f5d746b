//! `[ingress.tun]` of `terminal.toml`: this machine's own traffic.

use bentpipe_os::tproxy::OtherProtocols;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Transparent;

/// All traffic of this machine's own programs, by a network interface and a default route: TCP and
/// UDP as by `[ingress.transparent]`, and pings as packets (docs/ip.md). Needs root or
/// CAP_NET_ADMIN.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tun {
    /// Its name. Nothing else here has it.
    pub interface: String,
}

impl Default for Tun {
    fn default() -> Self {
        Self {
            interface: "bentpipe0".into(),
        }
    }
}

impl Tun {
    /// Checks it beside `transparent`.
    pub(super) fn check(&self, transparent: Option<&Transparent>) -> Result<(), String> {
        if let Err(error) = bentpipe_os::tun::check_name(&self.interface) {
            return Err(format!("ingress.tun.interface: {error}"));
        }
        let Some(transparent) = transparent else {
            return Ok(());
        };
        if transparent.interfaces.contains(&self.interface) {
            return Err(format!(
                "ingress.transparent.interfaces: {:?} is the interface of ingress.tun, which takes this machine's own traffic; name those of the LAN",
                self.interface
            ));
        }
        if transparent.other_protocols == Some(OtherProtocols::Pass) {
            return Err("ingress.transparent.other_protocols = \"pass\" does not go with ingress.tun, whose programs have an address that no other network knows; say \"tunnel\" or \"refuse\"".into());
        }
        Ok(())
    }
}

//! Connections of TCP that are taken although the owner's rules have them not tracked (`notrack`).
//!
//! Conntrack marks the others. Of these the terminal's table has a list of its own, by which packets of those that
//! have ended are told from packets of connections that never were the terminal's.

use std::fmt::Write as _;

/// A connection that has been silent for longer is forgotten, and of more than so many those that began last.
const LIMITS: &str = "timeout 1h; size 16384";
/// Of each family: how its addresses are called, its set, and their type.
const FAMILIES: [(&str, &str, &str); 2] = [
    ("ip", "untracked4", "ipv4_addr"),
    ("ip6", "untracked6", "ipv6_addr"),
];
const UNTRACKED: &str = "meta l4proto tcp ct state untracked";

/// The lists.
pub(super) fn sets() -> String {
    of_each(|_, set, kind| {
        let (peer, limits) = (format!("{kind} . inet_service"), LIMITS);
        format!("set {set} {{ type {peer} . {peer}; flags dynamic, timeout; {limits}; }}")
    })
}

/// Takes packets of those that are on the list.
pub(super) fn known() -> String {
    of_each(|ip, set, _| format!("{UNTRACKED} {} @{set} goto take", connection(ip)))
}

/// Puts on the list what is taken.
pub(super) fn note() -> String {
    of_each(|ip, set, _| format!("{UNTRACKED} update @{set} {{ {} }}", connection(ip)))
}

fn connection(ip: &str) -> String {
    format!("{ip} saddr . tcp sport . {ip} daddr . tcp dport")
}

fn of_each(line: impl Fn(&str, &str, &str) -> String) -> String {
    let mut text = String::new();
    for (ip, set, kind) in FAMILIES {
        let _ = writeln!(text, "{}", line(ip, set, kind));
    }
    text
}

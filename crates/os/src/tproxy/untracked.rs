//! Connections of TCP that are taken although the owner's rules have them not tracked (`notrack`).
//!
//! Conntrack marks the others. Of these the terminal's table has a list of its own, by which packets of those that
//! have ended are told from packets of connections that never were the terminal's. One for which the list has no room
//! is not begun, unless what the terminal cannot take may pass.

use std::fmt::Write as _;

/// A connection that has been silent for longer is forgotten.
const KNOWN: &str = "timeout 1h; size 65536";
/// One that its client has ended may send what is left of it for so long (RFC 9293, section 3.4.2).
const LEFT: &str = "2m";
/// Of each family: how its addresses are called, the sets of what is known and of what has ended, and the addresses' type.
const FAMILIES: [(&str, &str, &str, &str); 2] = [
    ("ip", "untracked4", "ended4", "ipv4_addr"),
    ("ip6", "untracked6", "ended6", "ipv6_addr"),
];
const UNTRACKED: &str = "meta l4proto tcp ct state untracked";

/// The lists, and the chain that keeps them; `closed`: nothing may pass.
pub(super) fn sets(closed: bool) -> String {
    let mut text = of_each(|_, known, ended, kind| {
        let connections =
            format!("type {kind} . inet_service . {kind} . inet_service; flags dynamic, timeout");
        format!(
            "set {known} {{ {connections}; {KNOWN}; }}\n\
             set {ended} {{ {connections}; timeout {LEFT}; size 65536; }}"
        )
    });
    text.push_str("chain untracked {\n");
    text.push_str(&of_each(|ip, known, ended, _| {
        let connection = connection(ip);
        // The last packets of a connection do not make it one that goes on.
        format!(
            "tcp flags & (fin | rst) != 0 update @{ended} {{ {connection} }}\n\
             tcp flags & (fin | rst) != 0 update @{known} {{ {connection} timeout {LEFT} }}\n\
             tcp flags & (fin | syn | rst) == 0 {connection} != @{ended} update @{known} {{ {connection} }}\n\
             tcp flags & (fin | syn | rst | ack) == syn update @{known} {{ {connection} }}"
        )
    }));
    if closed {
        text.push_str(&of_each(|ip, known, _, _| {
            let connection = connection(ip);
            format!(
                "tcp flags & (fin | syn | rst | ack) == syn {connection} != @{known} counter drop"
            )
        }));
    }
    text.push_str("}\n");
    text
}

/// Takes packets of those that are on the list.
pub(super) fn known() -> String {
    of_each(|ip, known, _, _| format!("{UNTRACKED} {} @{known} goto take", connection(ip)))
}

/// Puts on the list what is taken.
pub(super) fn note() -> String {
    format!("{UNTRACKED} jump untracked\n")
}

fn connection(ip: &str) -> String {
    format!("{ip} saddr . tcp sport . {ip} daddr . tcp dport")
}

fn of_each(lines: impl Fn(&str, &str, &str, &str) -> String) -> String {
    let mut text = String::new();
    for (ip, known, ended, kind) in FAMILIES {
        let _ = writeln!(text, "{}", lines(ip, known, ended, kind));
    }
    text
}

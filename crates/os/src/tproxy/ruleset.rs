//! The nftables table of transparent ingress, as text for `nft`.
//!
//! A connection is taken when its first packet (SYN) comes in through one of the
//! interfaces and goes to a destination that is not left alone; it then carries a
//! conntrack mark, and all that follows of it goes the same way. What was on its way
//! before the start, and the answers of servers behind the interfaces, have neither. Packets from
//! the middle of a connection that conntrack does not know are none of these, once the terminal has
//! [settled](Ruleset::settled): a host that slept goes on with a connection that was taken and has
//! long been reset, and would do so in the open. The terminal resets it again. Where tracking is
//! switched off, the table has a list of its own of those that were taken ([`super::untracked`]).
//! What comes from an address to which another interface leads is dropped, also what is for this machine itself: the
//! answers would leave by that, in the open.
//! Datagrams have no beginning: those of UDP are taken unless they are such answers, also
//! when their flow is older than the terminal. ICMP errors about what is taken are delivered
//! here as well: they are of the sockets that the terminal has for it.
//!
//! The first packet of a connection that is to wait for its origin ([`super::held`]) is logged to
//! the terminal and dropped; the terminal sends it again by way of loopback, where it is taken.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::held::refused;
use super::tun::{self, Tun};
use super::untracked;
use super::{ApplicationQuic, Capture, Fail, OtherProtocols, Protocols};
use crate::{datagram, dns};

/// Packets of TCP other than a connection's first.
const NOT_FIRST: &str = "tcp flags & (fin | syn | rst | ack) != syn";

/// What the table is made from.
pub(super) struct Ruleset<'a> {
    pub capture: &'a Capture,
    /// The networks that this machine is connected to: what goes there needs no satellite.
    pub connected: Vec<IpNet>,
    pub table: String,
    pub mark: u32,
    /// The mark of packets of other protocols, and the interface that they leave by.
    pub ip_mark: u32,
    pub device: String,
    pub ipv6: bool,
    /// Connections are held back until their origin has answered.
    pub holds: bool,
    /// All connections from before the start are known to conntrack, which may have begun with
    /// these rules.
    pub settled: bool,
}

impl Ruleset<'_> {
    /// The table, replacing one of the same name in the same transaction.
    pub(super) fn text(&self) -> String {
        let Self { table, mark, .. } = self;
        let port = self.capture.port;
        let names = self
            .capture
            .interfaces
            .iter()
            .map(|name| format!("{name:?}"))
            .collect::<Vec<_>>()
            .join(", ");
        let (v4, v6): (Vec<_>, Vec<_>) = IpNet::aggregate(
            &self
                .connected
                .iter()
                .chain(&self.capture.leave)
                .copied()
                .collect(),
        )
        .into_iter()
        .partition(|network| matches!(network, IpNet::V4(_)));
        let (sets, let_in) = match self.holds {
            true => (sets(), self.let_in()),
            false => Default::default(),
        };
        let own = self.capture.tun.as_ref().map(|_| tun::taken(port));
        let own_in = own.map_or_else(String::new, |own| {
            format!("iifname \"lo\" meta mark {own:#x} goto own\n")
        });
        let others = match names.is_empty() {
            true => "return\n".to_owned(),
            false => format!("iifname != {{ {names} }} return\n"),
        };
        let answers = self.answers();
        let known = match self.settled {
            true => "ct state { established, untracked } ",
            false => "",
        };
        let closed = matches!(self.capture.fail, Fail::Closed);
        let (untracked, taken) = (untracked::sets(closed), untracked::known());
        let mut text = format!(
            "table inet {table}\n\
             delete table inet {table}\n\
             table inet {table} {{\n\
             {sets}\
             {untracked}\
             chain ingress {{\n\
             type filter hook prerouting priority mangle; policy accept;\n\
             {let_in}\
             {own_in}\
             {others}\
             fib daddr type {{ local, anycast }} jump here\n\
             fib daddr type {{ local, broadcast, anycast, multicast }} return\n\
             ct mark {mark:#x} goto take\n\
             socket transparent 1 socket wildcard 0 goto take\n\
             ct direction reply {answers}return\n\
             ct state related {answers}return\n\
             {taken}\
             meta l4proto tcp {NOT_FIRST} {known}return\n"
        );
        text.push_str(&self.questions());
        for (family, networks) in [("ip", v4), ("ip6", v6)] {
            if !networks.is_empty() {
                let list: Vec<_> = networks.iter().map(IpNet::to_string).collect();
                let _ = writeln!(text, "{family} daddr {{ {} }} return", list.join(", "));
            }
        }
        text.push_str("goto begin\n}\n");
        let strangers = match names.is_empty() {
            true => String::new(),
            false => format!("fib saddr oifname != {{ {names} }} counter drop\n"),
        };
        let _ = write!(text, "chain begin {{\n{strangers}goto decide\n}}\n");
        // What this machine answers them itself. Addresses of a link are reached by that link.
        let _ = write!(
            text,
            "chain here {{\nip6 saddr fe80::/10 return\n{strangers}}}\n"
        );
        text.push_str(&self.decide());
        text.push_str(&self.rest());
        text.push_str(&self.take());
        text.push_str(&self.marks());
        if self.holds {
            text.push_str(&self.held());
        }
        if self.capture.tunnels_packets() {
            text.push_str(&self.packets());
        }
        if let Some(tun) = &self.capture.tun {
            text.push_str(&self.own(tun));
        }
        text.push_str("}\n");
        text
    }

    /// Where answers go that servers give to those who have asked them past the terminal: back by
    /// the same way, which is not that of this machine's own traffic.
    fn answers(&self) -> String {
        let port = self.capture.port;
        let tun = self.capture.tun.as_ref();
        tun.map_or_else(String::new, |_| {
            format!("meta mark set {:#x} ", tun::past(port))
        })
    }

    /// Questions of DNS that are taken although they go to networks that are left alone.
    fn questions(&self) -> String {
        let Some(tun) = self.capture.tun.as_ref().filter(|tun| tun.dns) else {
            return String::new();
        };
        let mut text = String::new();
        for ipv4 in [true, false] {
            let family = if ipv4 { "ip" } else { "ip6" };
            let left: Vec<_> = IpNet::aggregate(&tun.leave)
                .iter()
                .filter(|network| network.addr().is_ipv4() == ipv4)
                .map(IpNet::to_string)
                .collect();
            let but = match left.is_empty() {
                true => format!("meta nfproto {}", if ipv4 { "ipv4" } else { "ipv6" }),
                false => format!("{family} daddr != {{ {} }}", left.join(", ")),
            };
            let _ = writeln!(
                text,
                "meta l4proto {{ tcp, udp }} th dport {} {but} goto begin",
                dns::PORT
            );
        }
        text
    }

    /// What becomes of the first packets that could be taken.
    fn decide(&self) -> String {
        let mark = self.mark;
        let mut text = "chain decide {\n".to_owned();
        match self.capture.protocols {
            Protocols::Tcp => text.push_str("meta l4proto != tcp return\n"),
            Protocols::TcpAndUdp { quic, other } => {
                if quic == ApplicationQuic::Refuse {
                    text.push_str("udp dport 443 reject with icmpx port-unreachable\n");
                }
                let _ = match other {
                    OtherProtocols::Refuse => writeln!(
                        text,
                        "meta l4proto != {{ tcp, udp }} reject with icmpx admin-prohibited"
                    ),
                    OtherProtocols::Pass => {
                        writeln!(text, "meta l4proto != {{ tcp, udp }} return")
                    }
                    OtherProtocols::Tunnel => writeln!(
                        text,
                        "meta l4proto != {{ tcp, udp }} meta mark set {:#x} accept",
                        self.ip_mark
                    ),
                };
            }
        }
        let _ = writeln!(text, "meta l4proto tcp {NOT_FIRST} goto rest");
        if self.holds {
            text.push_str(&self.hold());
        }
        let _ = write!(text, "ct mark set {mark:#x} goto take\n}}\n");
        text
    }

    /// What becomes of packets from the middle of connections that are not known. Those that
    /// conntrack finds invalid may be of one that is alive and not the tunnel's: they get no reset.
    fn rest(&self) -> String {
        let mark = self.mark;
        format!(
            "chain rest {{\n\
             ct state new ct mark set {mark:#x} goto take\n\
             {}",
            self.drop_while_listening("")
        )
    }

    /// How what is taken is handed to the listeners.
    fn take(&self) -> String {
        let (mark, port) = (self.mark, self.capture.port);
        let note = untracked::note();
        let mut text = format!(
            "chain take {{\n\
             {note}\
             meta l4proto {{ icmp, ipv6-icmp }} meta mark set {mark:#x} accept\n\
             meta nfproto ipv4 meta l4proto {{ tcp, udp }} tproxy ip to {}:{port} meta mark set {mark:#x} accept\n",
            Ipv4Addr::LOCALHOST
        );
        if self.ipv6 {
            let _ = writeln!(
                text,
                "meta nfproto ipv6 meta l4proto {{ tcp, udp }} tproxy ip6 to [{}]:{port} meta mark set {mark:#x} accept",
                Ipv6Addr::LOCALHOST
            );
        }
        text.push_str(self.without_listener());
        text.push_str("}\n");
        text
    }

    /// Tells the listeners of DF, which the kernel does not: when packets come in, after all rules that
    /// go by their mark.
    fn marks(&self) -> String {
        let mark = self.mark;
        format!(
            "chain marks {{\n\
             type filter hook input priority 300; policy accept;\n\
             meta mark {mark:#x} meta l4proto udp ip frag-off & 0x4000 != 0 meta mark set {:#x}\n\
             }}\n",
            mark | datagram::DONT_FRAGMENT
        )
    }

    /// What this machine sends itself and routes to the interface: it takes the way through
    /// loopback, where it comes in. What is forwarded there is none of the interfaces'.
    fn own(&self, tun: &Tun) -> String {
        let (mark, port) = (self.mark, self.capture.port);
        let device = &tun.interface;
        let (taken, past) = (tun::taken(port), tun::past(port));
        let others = match self.capture.tunnels_packets() {
            true => "meta l4proto != { tcp, udp } accept\n",
            false => "",
        };
        format!(
            "chain own {{\n\
             ct mark {mark:#x} goto take\n\
             meta l4proto tcp {NOT_FIRST} reject with tcp reset\n\
             goto decide\n\
             }}\n\
             chain output {{\n\
             type route hook output priority mangle; policy accept;\n\
             oifname \"lo\" return\n\
             ct direction original ct mark {mark:#x} meta mark set {taken:#x} accept\n\
             oifname != \"{device}\" return\n\
             ct direction reply meta mark set {past:#x} accept\n\
             meta l4proto {{ icmp, ipv6-icmp }} ct state related meta mark set {past:#x} accept\n\
             {others}\
             meta mark set {taken:#x} accept\n\
             }}\n\
             chain forward_own {{\n\
             type filter hook forward priority filter; policy accept;\n\
             oifname != \"{device}\" return\n\
             meta mark {:#x} accept\n\
             meta l4proto tcp reject with tcp reset\n\
             reject with icmpx admin-prohibited\n\
             }}\n",
            self.ip_mark
        )
    }

    /// What becomes of what is to be taken when nobody listens at the port.
    fn without_listener(&self) -> &'static str {
        match self.capture.fail {
            Fail::Closed => "counter drop\n",
            Fail::Open => "accept\n",
        }
    }

    /// First packets that the terminal lets in.
    fn let_in(&self) -> String {
        let mark = self.mark;
        format!(
            "iifname \"lo\" meta mark {mark:#x} tcp flags & (fin | syn | rst | ack) == syn ct mark set {mark:#x} goto take\n"
        )
    }

    /// Which first packets are held back.
    fn hold(&self) -> String {
        let ports: Vec<_> = self
            .capture
            .after_origin
            .iter()
            .map(u16::to_string)
            .collect();
        let [refused4, refused6] = refused::SETS;
        format!(
            "tcp dport {{ {} }} goto held\n\
             ip daddr . tcp dport @{refused4} goto held\n\
             ip6 daddr . tcp dport @{refused6} goto held\n",
            ports.join(", ")
        )
    }

    /// What becomes of them.
    fn held(&self) -> String {
        let port = self.capture.port;
        format!(
            "chain held {{\n{}",
            self.drop_while_listening(&format!("log group {port} "))
        )
    }

    /// The end of a chain of TCP that lets nothing through while the terminal runs. A rule with
    /// `tproxy` ends there when nobody listens at the port.
    fn drop_while_listening(&self, log: &str) -> String {
        let port = self.capture.port;
        let mut text = format!(
            "meta nfproto ipv4 meta l4proto tcp tproxy ip to {}:{port} {log}drop\n",
            Ipv4Addr::LOCALHOST
        );
        if self.ipv6 {
            let _ = writeln!(
                text,
                "meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [{}]:{port} {log}drop",
                Ipv6Addr::LOCALHOST
            );
        }
        text.push_str(self.without_listener());
        text.push_str("}\n");
        text
    }

    /// What becomes of packets of other protocols: they leave with the addresses that the gateway
    /// assigns, and what comes back is let in; nobody out there begins.
    fn packets(&self) -> String {
        let device = &self.device;
        format!(
            "chain translate {{\n\
             type nat hook postrouting priority srcnat; policy accept;\n\
             oifname \"{device}\" masquerade\n\
             }}\n\
             chain forward_packets {{\n\
             type filter hook forward priority filter; policy accept;\n\
             iifname \"{device}\" ct state {{ new, invalid }} drop\n\
             }}\n\
             chain input_packets {{\n\
             type filter hook input priority filter; policy accept;\n\
             iifname \"{device}\" ct state {{ new, invalid }} drop\n\
             }}\n"
        )
    }
}

/// The sets of destinations that have refused lately.
fn sets() -> String {
    let (seconds, most) = (refused::REMEMBERED.as_secs(), refused::MOST);
    let families = ["ipv4_addr", "ipv6_addr"];
    let sets = refused::SETS.into_iter().zip(families).map(|(name, family)| {
        format!(
            "set {name} {{ type {family} . inet_service; flags timeout; timeout {seconds}s; size {most}; }}\n"
        )
    });
    sets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Protocols = Protocols::TcpAndUdp {
        quic: ApplicationQuic::Tunnel,
        other: OtherProtocols::Refuse,
    };

    fn text(fail: Fail, protocols: Protocols) -> String {
        text_of(fail, protocols, None)
    }

    fn text_of(fail: Fail, protocols: Protocols, tun: Option<Tun>) -> String {
        let capture = Capture {
            interfaces: vec!["lan0".into()],
            port: 4480,
            leave: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            fail,
            after_origin: vec![22],
            protocols,
            tun,
        };
        Ruleset {
            capture: &capture,
            // Overlapping networks would be refused in a set without auto-merge.
            connected: vec!["10.77.0.0/24".parse().unwrap()],
            table: "bentpipe_4480".into(),
            mark: 0x6270_1180,
            ip_mark: 0x6271_1180,
            device: "bp-ip-4480".into(),
            ipv6: true,
            holds: true,
            settled: true,
        }
        .text()
    }

    #[test]
    fn what_has_no_listener_is_dropped_unless_the_operator_says_otherwise() {
        let closed = text(Fail::Closed, ALL);
        assert!(closed.ends_with("counter drop\n}\n}\n"));
        // Wherever a rule needs a listener the last rule of the chain says what is done without.
        let chains = closed
            .split("chain ")
            .filter(|chain| chain.contains("tproxy"));
        for chain in chains {
            assert!(
                chain
                    .trim_end_matches(['}', '\n'])
                    .ends_with("counter drop"),
                "{chain}"
            );
        }
        for line in text(Fail::Open, ALL).lines() {
            // Whose answers would leave by another interface is dropped in any case.
            assert!(
                !line.contains("drop")
                    || line.contains(" tproxy ")
                    || line.starts_with("fib saddr"),
                "{line}"
            );
        }
    }

    #[test]
    fn questions_are_taken_in_networks_that_are_left_alone_but_for_those_that_are_listed() {
        let tun = |dns| Tun {
            interface: "bentpipe0".into(),
            dns,
            leave: vec!["10.20.0.0/16".parse().unwrap()],
        };
        let taken = text_of(Fail::Closed, ALL, Some(tun(true)));
        let (at, left) = (
            taken.find("th dport 53 ip daddr != { 10.20.0.0/16 } goto begin"),
            taken.find("ip daddr { 10.0.0.0/8 } return"),
        );
        assert!(at.is_some() && at < left, "{taken}");
        assert!(
            taken.contains("th dport 53 meta nfproto ipv6 goto begin"),
            "{taken}"
        );
        for other in [Some(tun(false)), None] {
            assert!(!text_of(Fail::Closed, ALL, other).contains("dport 53"));
        }
    }

    #[test]
    fn what_this_machine_sends_is_looked_at_only_where_it_is_asked_for() {
        assert!(!text(Fail::Closed, ALL).contains("hook output"));
    }

    #[test]
    fn networks_that_overlap_are_merged() {
        assert!(text(Fail::Closed, ALL).contains("ip daddr { 10.0.0.0/8 } return"));
        assert!(text(Fail::Closed, ALL).contains("ip6 daddr { fd00::/8 } return"));
    }

    #[test]
    fn what_is_no_tcp_goes_its_own_way_where_only_tcp_is_taken() {
        let text = text(Fail::Open, Protocols::Tcp);
        assert!(text.contains("meta l4proto != tcp return\n"), "{text}");
        assert!(!text.contains("reject"), "{text}");
    }
}

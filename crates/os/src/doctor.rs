//! What this machine can do, asked in one go.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use serde::Serialize;

use crate::cpu_latency::{self, CpuLatency};
use crate::netlink::Netlink;
use crate::tproxy::{self, Obstacle, Tun};
use crate::ways::{Way, way_to};

/// One capability of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What is asked for.
    pub name: &'static str,
    /// What needs it.
    pub needed_for: &'static str,
    /// How it stands.
    pub state: State,
    /// What was found.
    pub found: String,
    /// How to get it, where it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// How a capability stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There.
    Ok,
    /// It goes without, but worse.
    Worse,
    /// Not there; what needs it cannot run.
    Missing,
}

type Finding = Result<String, (State, String, String)>;

fn missing(found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Err((State::Missing, found.into(), remedy.into()))
}

fn worse(found: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Err((State::Worse, found.into(), remedy.into()))
}

/// Asks everything; the firewall, with regard to connections that come in through
/// `interfaces` (none: any) and are handed to `port`, and the routes, with regard to this
/// machine's own traffic if `tun` takes it. Leaves nothing behind.
pub fn check_all(interfaces: &[String], port: u16, tun: Option<&Tun>) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut ask = |name, needed_for, finding: Finding| {
        checks.push(match finding {
            Ok(found) => Check {
                name,
                needed_for,
                state: State::Ok,
                found,
                remedy: None,
            },
            Err((state, found, remedy)) => Check {
                name,
                needed_for,
                state,
                found,
                remedy: Some(remedy),
            },
        });
    };
    ask(
        "CAP_NET_ADMIN",
        "terminal (transparent), emulate, lab",
        net_admin(),
    );
    ask(
        "/dev/net/tun",
        "terminal and gateway (IP packets), emulate, lab",
        self::tun(),
    );
    ask("ip", "lab", tool("ip", &["-Version"], "iproute2"));
    ask(
        "nft",
        "terminal (transparent)",
        tool("nft", &["--version"], "nftables"),
    );
    ask("TPROXY", "terminal (transparent)", tproxy());
    ask(
        "firewall",
        "terminal (transparent)",
        firewall(interfaces, port),
    );
    ask(
        "first packets",
        "terminal (transparent, after_origin)",
        held(),
    );
    if let Some(tun) = tun {
        ask(
            "own traffic",
            "terminal (tun)",
            own_traffic(port, &tun.interface),
        );
        ask("reverse path", "terminal (tun)", reverse_path());
    }
    ask("network namespaces", "emulate, lab", namespaces());
    ask("IPv6", "IPv6 applications and gateways", ipv6());
    ask("CUBIC", "lab (direct TCP to compare with)", cubic());
    ask("SCHED_FIFO", "emulate (punctuality)", realtime());
    ask(cpu_latency::DEVICE, "emulate (punctuality)", awake());
    ask(
        "UDP buffers",
        "gateway, terminal (bursts at high rates)",
        buffers(),
    );
    ask("open files", "gateway, terminal (many flows)", open_files());
    ask("left behind", "terminal (transparent)", leftovers());
    checks
}

fn net_admin() -> Finding {
    match capabilities(None) {
        Ok(held) if held.effective.contains(CapabilitySet::NET_ADMIN) => Ok("held".into()),
        Ok(_) => missing(
            "not held",
            "run as root, or `setcap cap_net_admin+ep` on the binary; SOCKS5 ingress works without",
        ),
        Err(error) => missing(error.to_string(), "run as root"),
    }
}

fn tun() -> Finding {
    let path = "/dev/net/tun";
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => Ok("opens".into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => missing(
            "not there",
            "`modprobe tun`; in a container pass the device in",
        ),
        Err(error) => missing(
            error.to_string(),
            "run as root, or give this user access to the device",
        ),
    }
}

fn tool(program: &str, arguments: &[&str], package: &str) -> Finding {
    match output(Command::new(program).args(arguments), "") {
        Ok(text) => Ok(text.lines().next().unwrap_or("there").trim().to_owned()),
        Err(why) => missing(why, format!("`apt-get install {package}`")),
    }
}

/// Asks nftables whether it would take a TPROXY rule, without installing it.
fn tproxy() -> Finding {
    let rules = "table inet bentpipe_doctor {\nchain c {\ntype filter hook prerouting priority mangle;\nmeta l4proto tcp meta nfproto ipv4 tproxy ip to 127.0.0.1:1 accept\n}\n}\n";
    match tproxy::nft(&["-c", "-f", "-"], rules) {
        Ok(_) => Ok("nftables takes the rule".into()),
        Err(why) => missing(
            why,
            "a kernel with CONFIG_NFT_TPROXY, and root; SOCKS5 ingress works without",
        ),
    }
}

/// Whether connections can be held back until their origin has answered.
fn held() -> Finding {
    match tproxy::held::check() {
        Ok(()) => Ok("can be held back".into()),
        Err(error) => worse(
            error.to_string(),
            "run as root, or `setcap cap_net_admin,cap_net_raw+ep` on the binary, with a kernel that has CONFIG_NETFILTER_NETLINK_LOG; without, refused connections are made and reset",
        ),
    }
}

/// Whether the machine's own rules let in what the terminal takes.
fn firewall(interfaces: &[String], port: u16) -> Finding {
    let firewall = tproxy::firewall(interfaces, port);
    if let Some(why) = firewall.unknown {
        return worse(
            format!("cannot be read: {why}"),
            "run doctor as root, or give it CAP_NET_ADMIN",
        );
    }
    let legacy = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    if !legacy.trim().is_empty() {
        return worse(
            "the old iptables has rules, which cannot be checked",
            format!(
                "see that its chain INPUT lets packets with mark {:#x} in, or move to iptables-nft",
                tproxy::mark(port)
            ),
        );
    }
    let told = |is: fn(&Obstacle) -> bool| {
        let obstacles = firewall.obstacles.iter().filter(|obstacle| is(obstacle));
        let lines: Vec<_> = obstacles.map(ToString::to_string).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    };
    if let Some(dropped) = told(|obstacle| matches!(obstacle, Obstacle::Dropped { .. })) {
        return missing("connections that the terminal takes are dropped", dropped);
    }
    if let Some(bypassed) = told(|obstacle| matches!(obstacle, Obstacle::Bypassed { .. })) {
        return worse("rules for forwarded traffic are not seen", bypassed);
    }
    Ok("lets in what the terminal takes".into())
}

/// Where this machine's own traffic is routed to, by way of a host of the public internet.
fn own_traffic(port: u16, interface: &str) -> Finding {
    const PUBLIC: [&str; 2] = ["192.0.2.1", "2001:db8::1"];
    let index = Netlink::open().and_then(|mut netlink| netlink.device(interface));
    let device = index.ok().map(|device| device.header.index);
    let ways = PUBLIC.map(|address| way_to(address.parse().expect("addresses"), None).ok());
    let elsewhere = |way: &Option<Way>| way.is_some_and(|way| Some(way.device) != device);
    match (device, tproxy::listens(port)) {
        _ if device.is_some() && ways.iter().any(elsewhere) => missing(
            format!("it is not routed to {interface}"),
            "look for routing rules before those of the terminal (`ip rule`), which are at 97 to 101",
        ),
        (Some(_), _) => Ok(format!("is routed to {interface}")),
        (None, true) => missing(
            format!("there is no interface {interface}"),
            "start the terminal again; its log says why it could not make it",
        ),
        (None, false) if ways.iter().any(elsewhere) => worse(
            "the terminal does not run; it takes its own way",
            "start the terminal; until its first start, and after `bentpipe terminal release`, nothing is held back",
        ),
        (None, false) => worse(
            "the terminal does not run; it is held back",
            "start the terminal, or let it pass with `bentpipe terminal release`",
        ),
    }
}

/// Whether what the gateway answers would be dropped for coming in by another interface than the
/// one that everything is routed to.
fn reverse_path() -> Finding {
    let mode = |device: &str| -> u8 {
        let path = format!("/proc/sys/net/ipv4/conf/{device}/rp_filter");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let all = mode("all");
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let strict = interfaces
        .iter()
        .filter(|interface| !interface.is_loopback())
        .find(|interface| all.max(mode(&interface.name)) == 1);
    match strict {
        None => Ok("is not checked strictly".into()),
        Some(interface) => missing(
            format!("is checked strictly on {} (rp_filter 1)", interface.name),
            "sysctl -w net.ipv4.conf.all.rp_filter=2, and a line of that in /etc/sysctl.d/ for the next start",
        ),
    }
}

fn namespaces() -> Finding {
    match output(Command::new("unshare").args(["--net", "true"]), "") {
        Ok(_) => Ok("can be made".into()),
        Err(_) => match output(
            Command::new("unshare").args(["--user", "--map-root-user", "--net", "true"]),
            "",
        ) {
            Ok(_) => Ok("can be made inside a user namespace".into()),
            Err(why) => missing(
                why,
                "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)",
            ),
        },
    }
}

fn ipv6() -> Finding {
    // Transparent ingress delivers through lo, which may be switched off by itself.
    let off = ["all", "lo"].into_iter().find(|device| {
        let path = format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6");
        std::fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
    });
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return worse("the kernel has none", "IPv4 works without");
    }
    match off {
        None => Ok("on".into()),
        Some(device) => worse(
            format!("off by sysctl net.ipv6.conf.{device}.disable_ipv6"),
            format!(
                "sysctl net.ipv6.conf.{device}.disable_ipv6=0; IPv4 works without, and IPv6 connections that would be taken are held back"
            ),
        ),
    }
}

fn cubic() -> Finding {
    let path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
    let allowed = std::fs::read_to_string(path).unwrap_or_default();
    if allowed.split_whitespace().any(|name| name == "cubic") {
        return Ok("allowed in namespaces".into());
    }
    worse(
        format!("not among the allowed: {}", allowed.trim()),
        format!(
            "sysctl net.ipv4.tcp_allowed_congestion_control='{} cubic' (the lab does so for a run when it is root)",
            allowed.trim()
        ),
    )
}

fn realtime() -> Finding {
    let held =
        capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::SYS_NICE));
    let limit = getrlimit(Resource::Rtprio).current.unwrap_or(u64::MAX);
    if held || limit > 0 {
        return Ok("allowed".into());
    }
    worse(
        "not allowed",
        "root, CAP_SYS_NICE, or a limit `rtprio` in /etc/security/limits.conf; certificates are worse without",
    )
}

fn awake() -> Finding {
    match CpuLatency::claim() {
        (_, Ok(())) => Ok("processors can be kept awake".into()),
        (_, Err(error)) => worse(
            error.to_string(),
            format!(
                "{}; without, processors that sleep are late for packets",
                cpu_latency::remedy(&error)
            ),
        ),
    }
}

fn buffers() -> Finding {
    let read = |name: &str| -> u64 {
        let text = std::fs::read_to_string(Path::new("/proc/sys/net/core").join(name));
        text.ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    };
    let (receive, send) = (read("rmem_max"), read("wmem_max"));
    let found = format!(
        "receive {} KiB, send {} KiB at most",
        receive / 1024,
        send / 1024
    );
    if receive.min(send) >= 4 << 20 {
        return Ok(found);
    }
    worse(
        found,
        "sysctl net.core.rmem_max=4194304 net.core.wmem_max=4194304, for links above 50 Mbit/s",
    )
}

fn open_files() -> Finding {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    if most >= 8192 {
        return Ok(format!("{most} at most"));
    }
    worse(
        format!("{most} at most"),
        "raise the hard limit to 8192 (LimitNOFILE= in a systemd unit): each flow is one",
    )
}

/// Tables of terminals that were killed. Those of running terminals look the same, so
/// this only tells.
fn leftovers() -> Finding {
    let ours = match tproxy::tables() {
        Ok(ours) => ours,
        Err(_) => return Ok("nftables cannot be asked".into()),
    };
    if ours.is_empty() {
        return Ok("nothing".into());
    }
    worse(
        format!("nftables: {}", ours.join(", ")),
        "fine while a terminal runs; if none does, they hold back what they took: start it again, or remove them with `bentpipe terminal release`",
    )
}

fn output(command: &mut Command, input: &str) -> Result<String, String> {
    use std::io::Write as _;
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "not installed".to_owned(),
            _ => error.to_string(),
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that ends without reading says why itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.trim().lines().next().unwrap_or("it failed").to_owned())
}

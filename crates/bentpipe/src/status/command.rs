//! `bentpipe status`: asks the ends that run on this machine how they stand.

use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_tunnel::terminal::quic_choice::{Decision, QuicChoiceSnapshot};
use clap::Args;

use super::{GatewayStatus, SessionStatus, Status};
use crate::daemon;
use crate::failure::Failure;

/// Where daemons answer that were started by their units, or by hand.
const PLACES: [&str; 4] = [
    "/run/bentpipe-terminal/terminal.sock",
    "/run/bentpipe-gateway/gateway.sock",
    "/etc/bentpipe/terminal.sock",
    "/etc/bentpipe/gateway.sock",
];
/// A daemon answers at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the terminal and the gateway stand that run on this machine
///
/// Exit code 1 if none answers.
#[derive(Debug, Args)]
pub struct Command {
    /// As JSON, one line for each end, for programs
    #[arg(long)]
    json: bool,
    /// The configuration of the end that is asked; without, those in the usual places
    #[arg(long)]
    config: Option<PathBuf>,
}

pub fn run(command: &Command) -> Result<(), Failure> {
    let sockets: Vec<PathBuf> = match &command.config {
        Some(config) => of_configuration(config),
        None => PLACES.map(PathBuf::from).to_vec(),
    };
    let mut answers = 0;
    let mut why = Vec::new();
    for socket in sockets {
        match ask(&socket) {
            Ok(text) => {
                answers += 1;
                if command.json {
                    daemon::say(format_args!("{}", text.trim_end()));
                } else {
                    let status: Status =
                        serde_json::from_str(&text).map_err(anyhow::Error::from)?;
                    daemon::say(format_args!("{}", for_people(&status).trim_end()));
                }
            }
            Err(error) => why.push(format!("{}: {error}", socket.display())),
        }
    }
    if answers == 0 {
        return Err(anyhow::anyhow!(
            "no terminal and no gateway answers here ({}); say --config FILE if it runs with another configuration",
            why.join("; ")
        )
        .into());
    }
    Ok(())
}

/// Where the end with that configuration answers: beside it, or where its unit lets it. By its
/// name alone it may be either end's.
fn of_configuration(config: &Path) -> Vec<PathBuf> {
    let roles = ["terminal", "gateway"];
    let named = roles
        .iter()
        .find(|role| config.file_stem() == Some(OsStr::new(role)));
    let roles = named.map_or(&roles[..], std::slice::from_ref);
    let unit = |role: &&str| {
        PLACES
            .iter()
            .find(|place| place.ends_with(&format!("{role}.sock")))
    };
    let beside = roles
        .iter()
        .map(|role| config.with_file_name(format!("{role}.sock")));
    match config.parent() == Some(Path::new("/etc/bentpipe")) {
        true => beside
            .chain(roles.iter().filter_map(unit).map(PathBuf::from))
            .collect(),
        false => beside.collect(),
    }
}

fn ask(socket: &PathBuf) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn for_people(status: &Status) -> String {
    let mut lines = vec![format!(
        "{} {} (process {}), up {}; memory {} (sessions: up to {})",
        status.role,
        status.version,
        status.pid,
        humantime::format_duration(Duration::from_secs(status.uptime_s)),
        mib(status.resident_bytes),
        mib(status.memory_limit_bytes),
    )];
    lines.push(format!(
        "sessions: {} of {}{}",
        status.sessions.len(),
        status.max_sessions,
        if status.sessions.is_empty() {
            "; the log says why"
        } else {
            ""
        }
    ));
    lines.extend(status.sessions.iter().map(session));
    if status.gateways.len() > 1 {
        lines.push(format!("gateways: {}", status.gateways.len()));
        lines.extend(status.gateways.iter().map(gateway));
    }
    if let Some(tun) = &status.tun {
        let addresses: Vec<_> = tun.addresses.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "this machine's own traffic: by {} ({})",
            tun.interface,
            addresses.join(", ")
        ));
    }
    let flows = &status.flows;
    lines.push(format!(
        "flows: {} open, {} ended; {} into the tunnel, {} out of it",
        flows.open,
        flows.ended,
        mib(flows.up_bytes),
        mib(flows.down_bytes)
    ));
    for (cause, count) in &flows.failed {
        lines.push(format!("  {count} failed: {}", cause.replace('_', " ")));
    }
    for (cause, count) in &flows.dropped_datagrams {
        lines.push(format!(
            "  {count} datagrams dropped: {}",
            cause.replace('_', " ")
        ));
    }
    if let Some(dns) = &status.dns {
        lines.push(format!(
            "dns: {} questions, {} answered from what was kept, {} with what had expired, {} not; {} went to the gateway, {} of them ahead of time",
            dns.questions, dns.kept, dns.stale, dns.failed, dns.asked, dns.renewed
        ));
        if dns.too_many > 0 {
            lines.push(format!(
                "  {} not asked: too many of their host were waiting",
                dns.too_many
            ));
        }
    }
    if let Some(choice) = &status.quic {
        lines.extend(quic(choice));
    }
    for name in &status.names {
        lines.push(format!(
            "  {:<40} {} flows; {} into the tunnel, {} out of it",
            name.name,
            name.flows,
            mib(name.up_bytes),
            mib(name.down_bytes)
        ));
    }
    lines.join("\n")
}

/// What becomes of applications' own QUIC, why, and the times behind it.
fn quic(choice: &QuicChoiceSnapshot) -> Vec<String> {
    let decision = match choice.decision {
        Decision::Learning => "tunnelled and refused in turns",
        Decision::Tunnel => "tunnelled",
        Decision::Refuse => "refused",
    };
    let mut lines = vec![format!(
        "quic of applications: {decision}, because {}; {} visits tunnelled, {} refused, one of {} for comparison",
        choice.why, choice.tunnelled, choice.refused, choice.explores_one_of
    )];
    lines.extend(choice.times.iter().map(|times| {
        format!(
            "  first {:>8} bytes: {:.0} ms by QUIC, {:.0} ms by TCP, {} servers",
            times.bytes, times.quic_ms, times.tcp_ms, times.servers
        )
    }));
    lines
}

fn gateway(gateway: &GatewayStatus) -> String {
    let delay = gateway.delay_ms.map_or_else(
        || "no answer".to_owned(),
        |delay| format!("answers after {delay:.0} ms"),
    );
    let in_use = if gateway.in_use { ", in use" } else { "" };
    format!("  {:<45} {delay}{in_use}", gateway.gateway)
}

fn session(session: &SessionStatus) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
    let loss = match session.sent_packets {
        0 => 0.0,
        sent => session.lost_packets as f64 * 100.0 / sent as f64,
    };
    let key = session.key.get(..19).unwrap_or(&session.key);
    format!(
        "  {:<20} {:<24} {}rtt {:.0} ms, window {} kB, sent {}, received {}, lost {loss:.2} %",
        session.name.as_deref().unwrap_or(key),
        session.address,
        if session.silent { "SILENT, " } else { "" },
        session.rtt_ms,
        session.window_bytes / 1000,
        mib(session.sent_bytes),
        mib(session.received_bytes),
    )
}

fn mib(bytes: u64) -> String {
    let tenths = bytes * 10 / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_asked_beside_its_configuration_and_where_its_unit_puts_it() {
        let places = |config: &str| {
            let places = of_configuration(Path::new(config)).into_iter();
            places
                .map(|path| path.display().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(places("a/gateway.toml"), ["a/gateway.sock"]);
        assert_eq!(places("boat.toml"), ["terminal.sock", "gateway.sock"]);
        assert_eq!(
            places("/etc/bentpipe/terminal.toml"),
            ["/etc/bentpipe/terminal.sock", PLACES[0]]
        );
    }
}

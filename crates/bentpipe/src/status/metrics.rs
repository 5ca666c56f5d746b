//! Figures for Prometheus: the text format (version 0.0.4) over HTTP/1.1.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Ask, SessionStatus, Status};

/// A request has to be here by then, and an answer taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// A longer request head is none of Prometheus'.
const LONGEST: usize = 8192;

/// Answers at `listener`, for ever.
pub async fn serve(listener: TcpListener, ask: Ask) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PATIENCE).await;
            continue;
        };
        let ask = ask.clone();
        tokio::spawn(async move {
            // Whoever asked may have gone.
            let _ = tokio::time::timeout(PATIENCE, answer(stream, &ask)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, ask: &Ask) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > LONGEST || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = if head.starts_with(b"GET /metrics ") {
        ("200 OK", text(&ask()))
    } else {
        ("404 Not Found", "the figures are at /metrics\n".to_owned())
    };
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// All figures.
fn text(status: &Status) -> String {
    let mut text = Text(String::new());
    text.one(
        "bentpipe_uptime_seconds",
        "gauge",
        "Time since the start",
        status.uptime_s,
    );
    text.one(
        "bentpipe_resident_bytes",
        "gauge",
        "Resident memory of the process",
        status.resident_bytes,
    );
    text.one(
        "bentpipe_memory_limit_bytes",
        "gauge",
        "What sessions may hold by the configuration",
        status.memory_limit_bytes,
    );
    text.one(
        "bentpipe_sessions",
        "gauge",
        "Open sessions",
        status.sessions.len() as u64,
    );
    text.one(
        "bentpipe_sessions_max",
        "gauge",
        "Sessions that fit the memory",
        status.max_sessions,
    );
    let flows = &status.flows;
    text.one("bentpipe_flows_open", "gauge", "Open flows", flows.open);
    text.one(
        "bentpipe_flows_ended_total",
        "counter",
        "Flows that ended well",
        flows.ended,
    );
    text.one(
        "bentpipe_flow_up_bytes_total",
        "counter",
        "Bytes from local sockets into the tunnel, of flows that are over",
        flows.up_bytes,
    );
    text.one(
        "bentpipe_flow_down_bytes_total",
        "counter",
        "Bytes from the tunnel to local sockets, of flows that are over",
        flows.down_bytes,
    );
    text.head(
        "bentpipe_flows_failed_total",
        "counter",
        "Flows refused or reset, by cause",
    );
    for (cause, count) in &flows.failed {
        text.line("bentpipe_flows_failed_total", &[("cause", cause)], count);
    }
    text.head(
        "bentpipe_datagrams_dropped_total",
        "counter",
        "Datagrams of UDP and IP that this end has dropped, by cause",
    );
    for (cause, count) in &flows.dropped_datagrams {
        text.line(
            "bentpipe_datagrams_dropped_total",
            &[("cause", cause)],
            count,
        );
    }
    if let Some(dns) = &status.dns {
        for (name, help, value) in [
            ("questions", "Questions of applications", dns.questions),
            ("kept", "Questions answered from what was kept", dns.kept),
            (
                "stale",
                "Questions answered with what had expired",
                dns.stale,
            ),
            ("failed", "Questions not answered", dns.failed),
            (
                "too_many",
                "Questions not asked because too many of their host were waiting",
                dns.too_many,
            ),
            ("asked", "Questions that went to the gateway", dns.asked),
            ("renewed", "Questions to renew answers in use", dns.renewed),
        ] {
            text.one(
                &format!("bentpipe_dns_{name}_total"),
                "counter",
                help,
                value,
            );
        }
    }
    if let Some(quic) = &status.quic {
        let name = "bentpipe_quic_visits_total";
        let help = "Visits of hosts to servers that had QUIC of their own, or were refused it";
        text.head(name, "counter", help);
        text.line(name, &[("quic", "tunnelled")], quic.tunnelled);
        text.line(name, &[("quic", "refused")], quic.refused);
        if let Some(ratio) = quic.quic_to_tcp {
            let name = "bentpipe_quic_to_tcp_ratio";
            let help = "How many times as long as by TCP transfers take by applications' own QUIC";
            text.head(name, "gauge", help);
            text.line(name, &[], ratio);
        }
    }
    type Figure = fn(&SessionStatus) -> f64;
    #[expect(
        clippy::cast_precision_loss,
        reason = "Prometheus counts in floating point"
    )]
    let figures: [(&str, &str, &str, Figure); 7] = [
        (
            "bentpipe_session_rtt_seconds",
            "gauge",
            "Smoothed round trip",
            |s| s.rtt_ms / 1e3,
        ),
        (
            "bentpipe_session_window_bytes",
            "gauge",
            "Congestion window",
            |s| s.window_bytes as f64,
        ),
        (
            "bentpipe_session_mtu_bytes",
            "gauge",
            "UDP payload that the path carries",
            |s| s.mtu_bytes as f64,
        ),
        (
            "bentpipe_session_sent_bytes_total",
            "counter",
            "UDP payload sent",
            |s| s.sent_bytes as f64,
        ),
        (
            "bentpipe_session_received_bytes_total",
            "counter",
            "UDP payload received",
            |s| s.received_bytes as f64,
        ),
        (
            "bentpipe_session_sent_packets_total",
            "counter",
            "Datagrams sent",
            |s| s.sent_packets as f64,
        ),
        (
            "bentpipe_session_lost_packets_total",
            "counter",
            "Packets declared lost",
            |s| s.lost_packets as f64,
        ),
    ];
    for (name, kind, help, figure) in figures {
        text.head(name, kind, help);
        for session in &status.sessions {
            let peer = session.name.as_deref().unwrap_or(&session.key);
            text.line(
                name,
                &[("peer", peer), ("key", &session.key)],
                figure(session),
            );
        }
    }
    text.0
}

struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(label, value)| {
                let value = value
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', "\\n");
                format!("{label}=\"{value}\"")
            })
            .collect();
        let _ = match labels.is_empty() {
            true => writeln!(self.0, "{name} {value}"),
            false => writeln!(self.0, "{name}{{{}}} {value}", labels.join(",")),
        };
    }
}

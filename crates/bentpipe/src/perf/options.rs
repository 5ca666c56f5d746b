//! The options of one end's transport, which client and server have alike.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use bentpipe_cc::Choice;
use bentpipe_os::initial_window::InitialWindow;
use bentpipe_os::tcp_options::TcpOptions;
use bentpipe_perf::parameters::{AckRequest, Parameters, Version};
use bentpipe_perf::report::ParametersReport;
use bentpipe_quic::{Events, Selection, Settings};
use bentpipe_units::{Bytes, Rate, Span};
use clap::{Args, ValueEnum};

use super::path::PathFile;
use crate::failure::Failure;
use crate::qlog;

/// What carries the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Over {
    /// QUIC
    Quic,
    /// The kernel's TCP, unencrypted, a connection for each stream
    Tcp,
}

/// How this end sends and what it asks of the other; the other end has its own.
#[derive(Debug, Args)]
#[command(next_help_heading = "This end's transport")]
pub struct Transport {
    /// What carries the bytes, the same at both ends
    #[arg(long, value_enum, default_value_t = Over::Quic)]
    pub over: Over,
    /// Congestion controller of what this end sends: satellite, newreno, cubic (the default),
    /// cubic-search, hybla, bbr3, fixed, bbr3-library; over TCP one of the kernel's
    #[arg(long, value_name = "NAME")]
    controller: Option<String>,
    /// Full packets that may leave before the first acknowledgement [default: 10]; over TCP by
    /// routes of its own (initcwnd), which needs root
    #[arg(long, value_name = "PACKETS")]
    initial_window: Option<u32>,
    /// Round-trip time until it is measured [default: 333 ms]
    #[arg(long, value_name = "TIME")]
    initial_rtt: Option<Span>,
    /// What this end may send, for the controllers fixed and hybla
    #[arg(long, value_name = "RATE")]
    contracted_rate: Option<Rate>,
    /// Packets that the other end may receive without acknowledging (ACK frequency extension)
    #[arg(long, value_name = "PACKETS")]
    ack_threshold: Option<u32>,
    /// The longest that its acknowledgements may wait (ACK frequency extension)
    #[arg(long, value_name = "TIME")]
    ack_max_delay: Option<Span>,
    /// Receive window of a connection and of each stream [default: 32 MiB]; over TCP the socket's
    /// receive buffer, which the kernel tunes by itself if this is left out
    #[arg(long, value_name = "BYTES")]
    window: Option<Bytes>,
    /// Most bytes sent and unacknowledged, whatever the controller allows [default: 32 MiB]; over
    /// TCP the socket's send buffer
    #[arg(long, value_name = "BYTES")]
    send_window: Option<Bytes>,
    /// UDP payload of a full packet, 28 bytes less than the path's MTU over IPv4, 48 over IPv6
    /// [default: 1452]; over TCP the largest segment
    #[arg(long, value_name = "BYTES")]
    packet: Option<u16>,
    /// Begin with 1200 bytes and discover whether --packet comes through (RFC 8899)
    #[arg(long)]
    discover_mtu: bool,
    /// Send as fast as the window allows, not spread over a round trip (RFC 9002, section 7.7): for newreno, cubic and
    /// cubic-search; other controllers are rates
    #[arg(long)]
    no_pacing: bool,
    /// Send packets that are not ECN-capable
    #[arg(long)]
    no_ecn: bool,
    /// Keep what this end learns of the path in FILE, and start from it (Careful Resume, RFC 9959);
    /// what is older than an hour is not believed. For one peer
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// QUIC version: 1 (RFC 9000) or 2 (RFC 9369) [default: a client speaks 1, a server both]
    #[arg(long, value_name = "VERSION", value_parser = ["1", "2"])]
    quic_version: Option<String>,
    /// Write what each connection does into a file of its own in DIR (qlog, JSON-SEQ), which
    /// `bentpipe trace` reads. TLS secrets go where the environment variable SSLKEYLOGFILE says
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
}

/// The delay that goes with a threshold alone, and the other way round: RFC 9000's.
const DEFAULT_ACKS: AckRequest = AckRequest {
    threshold: 1,
    max_delay: Span::from_millis(25),
};
/// UDP payload that fills a packet of 1500 bytes over IPv6.
const PACKET: u16 = 1452;

/// Segments that Linux takes: TCP_MIN_MSS to MAX_TCP_WINDOW.
const SEGMENTS: RangeInclusive<u16> = 88..=32_767;

impl Transport {
    /// Over QUIC, as parameters that have been checked.
    pub fn quic(&self) -> Result<Parameters, Failure> {
        let asked = self.ack_threshold.is_some() || self.ack_max_delay.is_some();
        let Parameters {
            settings,
            window,
            send_window,
            ..
        } = Parameters::default();
        let controller = match &self.controller {
            Some(name) => selection(name)?,
            None => settings.controller,
        };
        if self.path.is_some() && !Option::<Choice>::from(controller).is_some_and(Choice::resumes) {
            return Err(Failure::Configuration(format!(
                "--path has no effect with the controller {controller}, which learns nothing to start from; leave it out"
            )));
        }
        let parameters = Parameters {
            version: match self.quic_version.as_deref() {
                Some("2") => Version::Two,
                _ => Version::One,
            },
            settings: Settings {
                initial_window: self.initial_window.unwrap_or(settings.initial_window),
                initial_rtt: self.initial_rtt.unwrap_or(settings.initial_rtt),
                contracted_rate: self.contracted_rate,
                resume: self.path.is_some(),
                pacing: !self.no_pacing,
                ..settings.with_controller(controller)
            },
            acks: asked.then(|| AckRequest {
                threshold: self.ack_threshold.unwrap_or(DEFAULT_ACKS.threshold),
                max_delay: self.ack_max_delay.unwrap_or(DEFAULT_ACKS.max_delay),
            }),
            window: self.window.unwrap_or(window),
            send_window: self.send_window.unwrap_or(send_window),
            packet: self.packet.unwrap_or(PACKET),
            discover_mtu: self.discover_mtu,
            ecn: !self.no_ecn,
            events: match &self.qlog {
                Some(directory) => qlog::into(directory)?,
                None => Events::default(),
            },
        };
        parameters
            .check()
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        Ok(parameters)
    }

    /// The versions of QUIC that a server speaks.
    pub fn versions(&self) -> Vec<u32> {
        let all = [("1", Version::One), ("2", Version::Two)];
        let wanted = |name| self.quic_version.as_deref().is_none_or(|only| only == name);
        let spoken = all.iter().filter(|(name, _)| wanted(*name));
        spoken.map(|(_, version)| version.number()).collect()
    }

    /// What is known of the path.
    pub fn path(&self) -> Result<PathFile, Failure> {
        PathFile::open(self.path.as_deref())
    }

    /// Over TCP; `mark` is that of the routes with an initial window, if one is wanted.
    pub fn tcp(&self, mark: u32) -> Result<TcpOptions, Failure> {
        let without_effect = [
            ("--initial-rtt", self.initial_rtt.is_some()),
            ("--contracted-rate", self.contracted_rate.is_some()),
            ("--ack-threshold", self.ack_threshold.is_some()),
            ("--ack-max-delay", self.ack_max_delay.is_some()),
            ("--discover-mtu", self.discover_mtu),
            ("--no-pacing", self.no_pacing),
            ("--path", self.path.is_some()),
            ("--quic-version", self.quic_version.is_some()),
            ("--qlog", self.qlog.is_some()),
        ];
        if let Some((name, _)) = without_effect.iter().find(|(_, given)| *given) {
            return Err(Failure::Configuration(format!(
                "{name} has no effect over TCP; leave it out"
            )));
        }
        if self.no_ecn {
            return Err(Failure::Configuration(
                "--no-ecn over TCP: the kernel decides; set it with `sysctl net.ipv4.tcp_ecn=0`"
                    .into(),
            ));
        }
        let buffer = |bytes: Option<Bytes>, name: &str| match bytes.map(Bytes::as_u64) {
            None => Ok(None),
            Some(bytes) if (4 << 10..=1 << 30).contains(&bytes) => Ok(usize::try_from(bytes).ok()),
            Some(bytes) => Err(Failure::Configuration(format!(
                "{name} = {}: give 4 KiB to 1 GiB",
                Bytes::new(bytes)
            ))),
        };
        if let Some(bytes) = self.packet
            && !SEGMENTS.contains(&bytes)
        {
            return Err(Failure::Configuration(format!(
                "--packet {bytes}: over TCP give {} to {} bytes",
                SEGMENTS.start(),
                SEGMENTS.end()
            )));
        }
        let window = match self.initial_window {
            Some(packets) if !(1..=1000).contains(&packets) => {
                return Err(Failure::Configuration(format!(
                    "--initial-window {packets}: give 1 to 1000 packets"
                )));
            }
            window => window.map(|packets| InitialWindow::install(packets, mark)),
        };
        let window = window.transpose();
        Ok(TcpOptions {
            initial_window: window
                .map_err(|error| Failure::Configuration(format!("--initial-window: {error}")))?
                .map(Arc::new),
            controller: self.controller.clone(),
            segment: self.packet.map(u32::from),
            receive_buffer: buffer(self.window, "--window")?,
            send_buffer: buffer(self.send_window, "--send-window")?,
        })
    }
}

/// What a report says of TCP's options.
pub fn reported(options: &TcpOptions) -> ParametersReport {
    let bytes = |size: Option<usize>| size.and_then(|size| u64::try_from(size).ok());
    ParametersReport {
        controller: options.controller.clone(),
        initial_window_packets: options.initial_window.as_ref().map(|it| it.packets()),
        packet_bytes: options.segment.and_then(|size| u16::try_from(size).ok()),
        window_bytes: bytes(options.receive_buffer),
        send_window_bytes: bytes(options.send_buffer),
        ..ParametersReport::default()
    }
}

/// The controller of that name, or the nearest ones.
fn selection(name: &str) -> Result<Selection, Failure> {
    name.parse().map_err(|error| {
        let mut names: Vec<_> = Selection::all().map(Selection::name).collect();
        names.sort_by_key(|known| strsim::damerau_levenshtein(known, name));
        Failure::Configuration(format!("--{error}; the nearest is {}", names[0]))
    })
}

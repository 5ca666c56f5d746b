//! The options of one end's QUIC, which client and server have alike.

use bentpipe_perf::parameters::{AckRequest, Parameters};
use bentpipe_quic::{Selection, Settings};
use bentpipe_units::{Bytes, Rate, Span};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::failure::Failure;

/// How this end sends and what it asks of the other; the other end has its own.
#[derive(Debug, Args)]
#[command(next_help_heading = "This end's transport")]
pub struct Transport {
    /// Congestion controller of what this end sends
    #[arg(long, default_value = "cubic", value_parser = controller())]
    controller: Selection,
    /// Full packets that may leave before the first acknowledgement
    #[arg(long, value_name = "PACKETS", default_value_t = 10)]
    initial_window: u32,
    /// Round-trip time until it is measured
    #[arg(long, value_name = "TIME", default_value = "333 ms")]
    initial_rtt: Span,
    /// What this end may send, for the controllers fixed and hybla
    #[arg(long, value_name = "RATE")]
    contracted_rate: Option<Rate>,
    /// Packets that the other end may receive without acknowledging (ACK frequency extension)
    #[arg(long, value_name = "PACKETS")]
    ack_threshold: Option<u32>,
    /// The longest that its acknowledgements may wait (ACK frequency extension)
    #[arg(long, value_name = "TIME")]
    ack_max_delay: Option<Span>,
    /// Receive window of a connection and of each stream
    #[arg(long, value_name = "BYTES", default_value = "32 MiB")]
    window: Bytes,
    /// Most bytes sent and unacknowledged, whatever the controller allows
    #[arg(long, value_name = "BYTES", default_value = "32 MiB")]
    send_window: Bytes,
    /// UDP payload of a full packet; 28 bytes less than the path's MTU over IPv4, 48 over IPv6
    #[arg(long, value_name = "BYTES", default_value_t = 1452)]
    packet: u16,
    /// Begin with 1200 bytes and discover whether --packet comes through (RFC 8899)
    #[arg(long)]
    discover_mtu: bool,
    /// Send packets that are not ECN-capable
    #[arg(long)]
    no_ecn: bool,
    /// QUIC version; 1 is the only one that the QUIC library speaks
    #[arg(long, value_name = "VERSION", default_value = "1", value_parser = ["1"])]
    quic_version: String,
}

fn controller() -> impl TypedValueParser<Value = Selection> {
    PossibleValuesParser::new(Selection::all().map(Selection::name))
        .map(|name| name.parse().expect("a name from the list of names"))
}

/// The delay that goes with a threshold alone, and the other way round: RFC 9000's.
const DEFAULT_ACKS: AckRequest = AckRequest {
    threshold: 1,
    max_delay: Span::from_millis(25),
};

impl Transport {
    /// The same as parameters that have been checked.
    pub fn parameters(&self) -> Result<Parameters, Failure> {
        let asked = self.ack_threshold.is_some() || self.ack_max_delay.is_some();
        let default = Parameters::default();
        let parameters = Parameters {
            settings: Settings {
                initial_window: self.initial_window,
                initial_rtt: self.initial_rtt,
                contracted_rate: self.contracted_rate,
                ..default.settings.with_controller(self.controller)
            },
            acks: asked.then(|| AckRequest {
                threshold: self.ack_threshold.unwrap_or(DEFAULT_ACKS.threshold),
                max_delay: self.ack_max_delay.unwrap_or(DEFAULT_ACKS.max_delay),
            }),
            window: self.window,
            send_window: self.send_window,
            packet: self.packet,
            discover_mtu: self.discover_mtu,
            ecn: !self.no_ecn,
        };
        parameters
            .check()
            .map_err(|error| Failure::Configuration(error.to_string()))?;
        Ok(parameters)
    }
}

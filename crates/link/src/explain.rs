//! The explanation of a scenario: ceilings, round-trip times, products, queues and bounds.

use bentpipe_units::{Bytes, Rate, Span, rounded};
use schemars::JsonSchema;
use serde::Serialize;

use crate::bound::{self, IP_MTU, TransferBound};
use crate::spec::{DelaySpec, DirectionSpec, LossPer, QueueLimit, QueueSpec, RateSpec, Scenario};
use crate::transmit::modcod;

/// What a TCP segment of that MTU carries: IPv4 header 20 bytes (RFC 791), TCP
/// header 20 (RFC 9293) and timestamps 12 (RFC 7323).
const TCP_PAYLOAD: u64 = 1448;

/// The figures that bound everything measured over a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The scenario's name.
    pub name: String,
    /// The scenario's one line.
    pub title: String,
    /// Where its numbers are from.
    pub source: String,
    /// Satellite hop, there and back, nanoseconds.
    pub satellite_rtt_ns: u64,
    /// Ground hop, there and back, nanoseconds; 0 without one.
    pub ground_rtt_ns: u64,
    /// Both hops, there and back, nanoseconds.
    pub path_rtt_ns: u64,
    /// Gateway to terminal.
    pub forward: DirectionExplanation,
    /// Terminal to gateway.
    pub r#return: DirectionExplanation,
    /// Rate of the ground hop, bit/s.
    pub ground_rate_bit_s: Option<u64>,
    /// Bytes on the wire for each byte of a QUIC stream, in full packets.
    pub wire_per_payload: f64,
    /// First byte of a new flow through split connections over an open session, nanoseconds.
    pub first_byte_ns: u64,
    /// Physical lower bounds of the transfers that were asked for.
    pub bounds: Vec<ExplainedBound>,
}

/// The physical lower bounds of a transfer; see [`bound`].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExplainedBound {
    /// Payload, bytes.
    pub bytes: u64,
    /// Round trips of the path that depend on each other.
    pub round_trips: u32,
    /// Gateway to terminal.
    pub forward: TransferBound,
    /// Terminal to gateway.
    pub r#return: TransferBound,
}

/// One direction's share of an [`Explanation`].
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DirectionExplanation {
    /// Ceiling at the IP level, bit/s.
    pub rate_bit_s: u64,
    /// Ceiling of TCP payload with 1500-byte packets and timestamps, bit/s; losses taken off.
    pub tcp_goodput_bit_s: u64,
    /// Propagation, nanoseconds.
    pub one_way_delay_ns: u64,
    /// Chance of a packet to be lost.
    pub loss: f64,
    /// Rate times the round-trip time of the satellite hop, bytes.
    pub bdp_bytes: u64,
    /// Rate times the round-trip time of the whole path, bytes.
    pub path_bdp_bytes: u64,
    /// What may wait, bytes; a limit in packets counts packets of 1500 bytes.
    pub queue_bytes: u64,
    /// How long the last of a full queue waits, nanoseconds.
    pub queue_ns: u64,
    /// The queue as the scenario writes it.
    pub queue: String,
    /// What else the link does, a line each; empty for a plain one.
    pub stages: Vec<String>,
}

impl Explanation {
    /// Explains `scenario`.
    pub fn of(scenario: &Scenario) -> Self {
        let satellite = scenario.satellite_rtt();
        let path = satellite + scenario.ground_rtt();
        Self {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            source: scenario.source.clone(),
            satellite_rtt_ns: satellite.as_nanos(),
            ground_rtt_ns: scenario.ground_rtt().as_nanos(),
            path_rtt_ns: path.as_nanos(),
            forward: explain(&scenario.forward, satellite, path),
            r#return: explain(&scenario.r#return, satellite, path),
            ground_rate_bit_s: scenario
                .ground
                .as_ref()
                .map(|ground| ground.rate.bits_per_second()),
            wire_per_payload: bound::WIRE_PER_PAYLOAD,
            first_byte_ns: bound::first_byte(satellite, scenario.ground_rtt()).as_nanos(),
            bounds: Vec::new(),
        }
    }

    /// Adds the bounds of a transfer of `payload` in each direction that needs `round_trips`
    /// of the path one after the other.
    pub fn add_bound(&mut self, payload: Bytes, round_trips: u32) {
        let rtt = Span::from_nanos(self.path_rtt_ns);
        let of = |direction: &DirectionExplanation| {
            let rate = Rate::from_bits_per_second(direction.rate_bit_s);
            let transfer = bound::transfer(payload, rate, direction.loss);
            TransferBound::new(transfer, rtt, round_trips)
        };
        self.bounds.push(ExplainedBound {
            bytes: payload.as_u64(),
            round_trips,
            forward: of(&self.forward),
            r#return: of(&self.r#return),
        });
    }
}

fn explain(spec: &DirectionSpec, satellite: Span, path: Span) -> DirectionExplanation {
    let ceiling = spec.rate.ceiling();
    let limit = spec.queue.limit();
    let queue_bytes = match limit.resolved(ceiling, path) {
        QueueLimit::Packets(count) => u64::from(count) * IP_MTU,
        QueueLimit::Bytes(bytes) => bytes.as_u64(),
        QueueLimit::Time(_) | QueueLimit::Bdp(_) => 0,
    };
    let loss = packet_loss(spec);
    let tcp = rounded(
        ceiling.bits_per_second() as f64 * TCP_PAYLOAD as f64 / IP_MTU as f64 * (1.0 - loss),
    );
    DirectionExplanation {
        rate_bit_s: ceiling.bits_per_second(),
        tcp_goodput_bit_s: tcp,
        one_way_delay_ns: spec.delay.typical().span().as_nanos(),
        loss,
        bdp_bytes: ceiling.bytes_in(satellite).as_u64(),
        path_bdp_bytes: ceiling.bytes_in(path).as_u64(),
        queue_bytes,
        queue_ns: ceiling
            .time_for(Bytes::new(queue_bytes))
            .map_or(u64::MAX, Span::as_nanos),
        queue: match spec.queue {
            QueueSpec::DropTail(_) => limit.to_string(),
            QueueSpec::Marking(_) => format!("{limit}, marking"),
            QueueSpec::CoDel(_) => format!("{limit}, CoDel"),
            QueueSpec::FqCoDel(_) => format!("{limit}, FQ-CoDel"),
            QueueSpec::Pie(_) => format!("{limit}, PIE"),
        },
        stages: stages(spec),
    }
}

/// What a direction does beyond constant rate, constant delay and independent loss.
fn stages(spec: &DirectionSpec) -> Vec<String> {
    let mut all = Vec::new();
    match &spec.rate {
        RateSpec::Constant(_) => {}
        RateSpec::Trace(trace) => all.push(format!(
            "rate from a trace of {} points over {}; the ceiling is its mean",
            trace.points.len(),
            trace.length()
        )),
        RateSpec::Mahimahi(trace) => all.push(format!(
            "rate from {} packet-delivery opportunities",
            trace.opportunities.len()
        )),
        RateSpec::DvbS2(carrier) => {
            let coding = match carrier.modcod.and_then(modcod::dvb_s2) {
                Some(modcod) => format!("{} {}", modcod.modulation, modcod.code_rate),
                None => "adaptive coding; the ceiling is that of a clear sky".into(),
            };
            let symbols = carrier.bandwidth.hertz() as f64 / (1.0 + carrier.roll_off) / 1e6;
            all.push(format!("DVB-S2 carrier of {symbols:.2} Mbaud, {coding}"));
        }
        RateSpec::DvbRcs2(terminal) => {
            all.push(format!(
                "DVB-RCS2, superframes of {}: {} always, up to {} of RBDC and {} of VBDC when asked for",
                terminal.superframe, terminal.cra, terminal.rbdc, terminal.vbdc
            ));
            for others in &terminal.others {
                all.push(format!("other terminals that ask for {}", others.rate));
            }
        }
    }
    match &spec.delay {
        DelaySpec::Constant(_) | DelaySpec::Orbit(_) => {}
        DelaySpec::Trace(trace) => all.push(format!(
            "delay from a trace of {} points over {}; the one-way delay is its mean",
            trace.points.len(),
            trace.length()
        )),
        DelaySpec::Relay(relay) => all.push(format!(
            "handed on every {} at the ends and every {} at the satellite",
            relay.poll, relay.satellite_poll
        )),
    }
    if let Some(jitter) = &spec.jitter {
        let each = jitter
            .every
            .map_or("each packet".into(), |every| format!("every {every}"));
        all.push(format!(
            "jitter: up to {} more delay, drawn for {each}",
            jitter.up_to
        ));
    }
    if let Some(unit) = spec.loss_per.filter(|unit| *unit != LossPer::Packet) {
        all.push(format!("losses count each {}", unit.name()));
    }
    if !spec.outages.is_empty() {
        all.push(format!("outages: {}", spec.outages.len()));
    }
    if let Some(change) = &spec.reconfigure {
        all.push(format!(
            "another satellite every {}: up to {} more delay, a gap of {}",
            change.every, change.step, change.gap
        ));
    }
    for cross in &spec.cross {
        all.push(format!("cross traffic of {}", cross.rate));
    }
    for change in &spec.change {
        let what = if change.change.link.is_some() {
            "another link takes over"
        } else {
            "a planned change"
        };
        all.push(format!("at {}: {what}", change.at));
    }
    all
}

/// The chance of a packet of 1500 bytes to be lost on the air, without outages.
fn packet_loss(spec: &DirectionSpec) -> f64 {
    let loss = spec.loss.mean();
    let frame = match (&spec.rate, spec.loss_per) {
        (RateSpec::DvbS2(carrier), Some(LossPer::Bbframe)) => carrier
            .modcod
            .and_then(modcod::dvb_s2)
            .map(|modcod| modcod.bytes),
        (RateSpec::DvbRcs2(terminal), Some(LossPer::Burst)) => {
            modcod::dvb_rcs2(terminal.waveform).map(|waveform| waveform.bytes)
        }
        _ => return loss,
    };
    // Cut at random places, a packet lies in one frame more than its length needs.
    let frames = 1.0 + IP_MTU as f64 / f64::from(frame.unwrap_or(7274));
    1.0 - (1.0 - loss).powf(frames)
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |nanos: u64| format!("{:.1} ms", nanos as f64 / 1e6);
        let megabit = |bits: u64| Rate::from_bits_per_second(bits / 1000 * 1000).to_string();
        writeln!(out, "{}  {}", self.name, self.title)?;
        if !self.source.is_empty() {
            writeln!(out, "source: {}", self.source)?;
        }
        writeln!(out)?;
        writeln!(
            out,
            "round trip, satellite   {:>12}",
            ms(self.satellite_rtt_ns)
        )?;
        writeln!(
            out,
            "round trip, ground      {:>12}",
            ms(self.ground_rtt_ns)
        )?;
        writeln!(out, "round trip, path        {:>12}", ms(self.path_rtt_ns))?;
        writeln!(out)?;
        writeln!(out, "{:<24}{:>16}{:>16}", "", "forward", "return")?;
        let mut row = |name: &str, cell: &dyn Fn(&DirectionExplanation) -> String| {
            writeln!(
                out,
                "{name:<24}{:>16}{:>16}",
                cell(&self.forward),
                cell(&self.r#return)
            )
        };
        row("ceiling, IP", &|d| megabit(d.rate_bit_s))?;
        row("ceiling, TCP payload", &|d| megabit(d.tcp_goodput_bit_s))?;
        row("one-way delay", &|d| ms(d.one_way_delay_ns))?;
        row("loss", &|d| {
            let exact = bentpipe_units::Probability::new(d.loss)
                .unwrap_or_default()
                .to_string();
            // What is worked out has more digits than meaning.
            if exact.len() > 12 {
                format!("{:.3} %", d.loss * 100.0)
            } else {
                exact
            }
        })?;
        row("BDP, satellite", &|d| Bytes::new(d.bdp_bytes).to_string())?;
        row("BDP, path", &|d| Bytes::new(d.path_bdp_bytes).to_string())?;
        row("queue", &|d| d.queue.clone())?;
        row("queue, full", &|d| ms(d.queue_ns))?;
        row("queue / BDP, satellite", &|d| {
            format!("{:.2}", d.queue_bytes as f64 / d.bdp_bytes.max(1) as f64)
        })?;
        for bound in &self.bounds {
            let trips = match bound.round_trips {
                1 => String::new(),
                trips => format!(", {trips} round trips"),
            };
            let seconds = |nanos: u64| format!("{:.3} s", nanos as f64 / 1e9);
            writeln!(out, "\nat least, {}{trips}", Bytes::new(bound.bytes))?;
            let (there, back) = (bound.forward, bound.r#return);
            for (name, there, back) in [
                ("  session open", there.warm_ns, back.warm_ns),
                ("  with a handshake", there.cold_ns, back.cold_ns),
            ] {
                writeln!(out, "{name:<24}{:>16}{:>16}", seconds(there), seconds(back))?;
            }
        }
        for (name, direction) in [("forward", &self.forward), ("return", &self.r#return)] {
            for stage in &direction.stages {
                write!(out, "\n{name:<8}{stage}")?;
            }
        }
        if self.forward.stages.len() + self.r#return.stages.len() > 0 {
            writeln!(out)?;
        }
        Ok(())
    }
}

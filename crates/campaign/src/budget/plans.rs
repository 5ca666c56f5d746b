//! The links, transports and runs of the budgets, and the figures read off them.

use bentpipe_cc::{Choice, Settings};
use bentpipe_link::scenario::{DirectionSpec, QueueLimit};
use bentpipe_quic::ConnectionParameters;
use bentpipe_units::{Bytes, OneWayDelay, Probability, Rate, Span};

use bentpipe_sim::plan::{FlowPlan, LinkPlan, Move, Plan, Transfer, What};
use bentpipe_sim::record::{Records, TransferRecord};

/// Bytes at the IP level for a byte of payload.
const HEADERS: f64 = 1500.0 / 1437.0;
pub(super) const MIB_10: Bytes = Bytes::new(10 << 20);
pub(super) const MB_2: Bytes = Bytes::new(2_000_000);
/// More than any run can carry: a flow that never ends.
pub(super) const ENDLESS: Bytes = Bytes::new(1 << 50);
pub(super) const GEO: Span = Span::from_millis(600);

pub(super) fn rate(bits: u64) -> Rate {
    Rate::from_bits_per_second(bits)
}

pub(super) fn direction(bits: u64, rtt: Span, loss: f64, queue: QueueLimit) -> DirectionSpec {
    DirectionSpec::new(
        rate(bits),
        OneWayDelay::new(Span::from_nanos(rtt.as_nanos() / 2)),
        Probability::new(loss).unwrap_or_default(),
        queue,
    )
}

/// A queue of one bandwidth-delay product.
pub(super) fn bdp(bits: u64, rtt: Span) -> QueueLimit {
    QueueLimit::Bytes(rate(bits).bytes_in(rtt))
}

pub(super) fn link(forward: u64, back: u64, rtt: Span, loss: f64, queue: QueueLimit) -> LinkPlan {
    LinkPlan::new(
        direction(forward, rtt, loss, queue),
        direction(back, rtt, 0.0, bdp(back, rtt)),
    )
}

pub(super) fn geo(loss: f64, queue: QueueLimit) -> LinkPlan {
    link(20_000_000, 2_000_000, GEO, loss, queue)
}

pub(super) fn geo_bdp() -> QueueLimit {
    bdp(20_000_000, GEO)
}

pub(super) fn transport(controller: Choice, forward: u64, rtt: Span) -> ConnectionParameters {
    let mut settings = Settings::new(controller);
    settings.initial_rtt = rtt;
    settings.know_rate(rate(forward));
    let mut transport = ConnectionParameters::new(settings);
    transport.rate = rate(forward);
    transport
}

pub(super) fn plan(seed: u64, link: LinkPlan, flows: Vec<FlowPlan>, seconds: u64) -> Plan {
    Plan {
        seed,
        links: vec![link],
        flows,
        until: Span::from_millis(seconds * 1000),
        sample_every: Span::from_millis(20),
    }
}

/// One download over a new connection.
pub(super) fn first(controller: Choice, seed: u64, link: LinkPlan, bytes: Bytes) -> Plan {
    let flow = FlowPlan::new(
        transport(controller, 20_000_000, GEO),
        vec![Transfer::now(bytes)],
    );
    plan(seed, link, vec![flow], 2000)
}

/// One download over a connection that has carried 15 MB and then been idle for a minute.
pub(super) fn warm(controller: Choice, seed: u64, link: LinkPlan, bytes: Bytes) -> Plan {
    let transfers = vec![
        Transfer::now(Bytes::new(15_000_000)),
        Transfer::after(Span::from_millis(60_000), bytes),
    ];
    let flow = FlowPlan::new(transport(controller, 20_000_000, GEO), transfers);
    let mut plan = plan(seed, link, vec![flow], 4000);
    plan.sample_every = Span::from_millis(1000);
    plan
}

// --- figures ------------------------------------------------------------------------

pub(super) fn last(records: &Records) -> Option<&TransferRecord> {
    records.transfers.last()
}

pub(super) fn payload_seconds(bytes: Bytes, bits: f64, loss: f64) -> f64 {
    bytes.as_u64() as f64 * 8.0 * HEADERS / (bits * (1.0 - loss))
}

pub(super) fn ratio(records: &Records, bound: Option<f64>) -> f64 {
    let seconds = last(records).and_then(TransferRecord::seconds);
    seconds.unwrap_or(f64::INFINITY) / bound.unwrap_or(f64::NAN)
}

/// Bytes that the gateway sent, in units of what the payload needs.
pub(super) fn overhead(records: &Records) -> f64 {
    last(records)
        .filter(|last| last.done_ns.is_some())
        .map_or(f64::INFINITY, |last| {
            last.sent_ip_bytes as f64 / (last.bytes as f64 * HEADERS) - 1.0
        })
}

/// Mbit/s of payload that `flow` received between two moments, seconds.
pub(super) fn goodput(records: &Records, flow: usize, from: f64, to: f64) -> f64 {
    let at = |seconds: f64| {
        (records.samples.iter())
            .filter(|sample| sample.flow == flow && sample.at_ns as f64 <= seconds * 1e9 + 1.0)
            .map(|sample| sample.received)
            .next_back()
            .unwrap_or(0)
    };
    (at(to) - at(from)) as f64 * 8e-6 / (to - from)
}

/// Waiting times of flow 0's packets between two moments, seconds, by looks.
pub(super) fn waits(
    records: &Records,
    from: f64,
    to: f64,
) -> impl Iterator<Item = (f64, f64)> + '_ {
    records.samples.iter().filter_map(move |sample| {
        let at = sample.at_ns as f64 / 1e9;
        let inside = sample.flow == 0 && at >= from && at <= to;
        let (mean, most) = (sample.waited_ns?, sample.waited_most_ns?);
        inside.then_some((mean as f64 / 1e9, most as f64 / 1e9))
    })
}

pub(super) fn mean_wait(records: &Records, from: f64, to: f64) -> f64 {
    let (sum, count) = waits(records, from, to).fold((0.0, 0.0), |(sum, count), (mean, _)| {
        (sum + mean, count + 1.0)
    });
    sum / count
}

pub(super) fn no_bound() -> Option<f64> {
    None
}

pub(super) const PATH_60: Span = Span::from_millis(60);
/// Payload of 10 Mbit/s.
pub(super) const PAYLOAD_10: f64 = 10.0 / HEADERS;

pub(super) fn bujari(controller: Choice, seed: u64) -> Plan {
    let queue = bdp(10_000_000, PATH_60);
    let near = link(10_000_000, 10_000_000, PATH_60, 0.0, queue);
    let far = link(10_000_000, 10_000_000, Span::from_millis(120), 0.0, queue);
    let mut flow = FlowPlan::new(
        transport(controller, 10_000_000, PATH_60),
        vec![Transfer::now(ENDLESS)],
    );
    flow.transport.rate = rate(50_000_000);
    flow.moves = vec![Move {
        at: Span::from_millis(90_000),
        path: vec![1],
    }];
    let mut plan = plan(seed, near, vec![flow], 180);
    plan.links.push(far);
    plan
}

/// Round trips of 120 ms from the change until a second begins that carries 95 %.
pub(super) fn recovery(records: &Records) -> f64 {
    let steps = (0..500).map(|step| f64::from(step) * 0.02);
    let mut good =
        steps.filter(|after| goodput(records, 0, 90.0 + after, 91.0 + after) >= 0.95 * PAYLOAD_10);
    good.next().map_or(f64::INFINITY, |after| after / 0.12)
}

pub(super) fn fall(controller: Choice, seed: u64) -> Plan {
    let link = link(50_000_000, 5_000_000, GEO, 0.0, bdp(50_000_000, GEO)).change(
        Span::from_millis(5_000),
        What::ForwardRate(rate(10_000_000)),
    );
    let flow = FlowPlan::new(
        transport(controller, 50_000_000, GEO),
        vec![Transfer::now(ENDLESS)],
    );
    plan(seed, link, vec![flow], 60)
}

/// 95th percentile of the queue from four round trips after the fall, in units of the
/// new bandwidth-delay product.
pub(super) fn queue_after_fall(records: &Records) -> f64 {
    let mut waits: Vec<_> = waits(records, 5.0 + 4.0 * 0.6, 60.0)
        .map(|(_, most)| most)
        .collect();
    waits.sort_by(f64::total_cmp);
    waits
        .get(waits.len() * 95 / 100)
        .map_or(f64::NAN, |wait| wait / 0.6)
}

/// The third download begins at 600 s of the run and is in the dark from 602 s to 604 s.
pub(super) fn blackout(controller: Choice, seed: u64) -> Plan {
    let transfers = vec![
        Transfer::now(Bytes::new(40_000_000)),
        Transfer::at(Span::from_millis(500_000), MIB_10),
        Transfer::at(Span::from_millis(600_000), MIB_10),
    ];
    let flow = FlowPlan::new(transport(controller, 20_000_000, GEO), transfers);
    let link = geo(0.0, geo_bdp()).change(
        Span::from_millis(602_000),
        What::Blackout(Span::from_millis(2_000)),
    );
    let mut plan = plan(seed, link, vec![flow], 900);
    plan.sample_every = Span::from_millis(1000);
    plan
}

/// Seconds that the third download took longer than the second, which saw the light.
pub(super) fn extra(records: &Records) -> f64 {
    let [.., light, dark] = &records.transfers[..] else {
        return f64::INFINITY;
    };
    match (light.seconds(), dark.seconds()) {
        (Some(light), Some(dark)) => dark - light,
        _ => f64::INFINITY,
    }
}

/// Two flows over the same forward capacity, one with a narrow way back.
pub(super) fn narrow(controller: Choice, seed: u64) -> Plan {
    let flow = |link: usize| {
        let mut flow = FlowPlan::new(
            transport(controller, 50_000_000, GEO),
            vec![Transfer::now(ENDLESS)],
        );
        flow.path = vec![link];
        flow
    };
    let one = link(50_000_000, 500_000, GEO, 0.0, bdp(50_000_000, GEO));
    let mut plan = plan(seed, one, vec![flow(0), flow(1)], 40);
    plan.links
        .push(link(50_000_000, 10_000_000, GEO, 0.0, bdp(50_000_000, GEO)));
    plan
}

pub(super) fn ack_share(records: &Records) -> f64 {
    let flow = &records.flows[0];
    flow.return_ip_bytes as f64 / flow.forward_ip_bytes as f64
}

pub(super) fn beside(controller: Choice, other: Choice, seed: u64) -> Plan {
    let flow = |controller, start| {
        let mut flow = FlowPlan::new(
            transport(controller, 20_000_000, GEO),
            vec![Transfer::now(ENDLESS)],
        );
        flow.start = Span::from_millis(start);
        flow
    };
    // The second comes while the first is settled; seeds shift it by up to three seconds.
    let flows = vec![flow(controller, 0), flow(other, 5_000 + 100 * (seed % 30))];
    plan(seed, geo(0.0, geo_bdp()), flows, 120)
}

/// Shares of both flows from 15 s on.
pub(super) fn shares(records: &Records) -> (f64, f64) {
    let [one, other] = [0, 1].map(|flow| goodput(records, flow, 15.0, 119.9));
    (one / (one + other), other / (one + other))
}

pub(super) fn jain(records: &Records) -> f64 {
    let (one, other) = shares(records);
    (one + other).powi(2) / (2.0 * (one * one + other * other))
}

/// Mbit/s of payload that fit into `mbit` at the IP level.
pub(super) fn payload(mbit: f64) -> f64 {
    mbit / HEADERS
}

//! Runs in virtual time: QUIC connections, or terminals and a gateway, over modelled links.
//!
//! A [`Plan`] says which links there are and which nodes communicate over them. [`run`]
//! runs it, and hands over each [`Record`] when it is known. The same plan gives the same
//! records, byte for byte: everything random derives from the plan's seed.
//!
//! - [`plan`]: links, nodes, times
//! - [`quic`]: QUIC connections alone, on the library's sans-I/O core or on the async runtime
//! - [`tunnel`]: terminals and a gateway, the code of the daemons on the async runtime's
//!   paused clock
//! - [`record`]: what a run recorded

mod problem;
pub mod plan;
mod identity;
pub mod quic;
pub mod tunnel;
pub mod record;

use std::time::Instant;

pub use plan::{LinkPlan, Nodes, Plan, Towards};
pub use problem::{Move, PlanError};
pub use record::{Record, Records};

/// Bytes of the request for a transfer or a flow: as many as a small HTTP one has.
const REQUEST: usize = 100;

/// Runs `plan`; `record` is given what is recorded, in an order that depends on nothing but
/// the plan. `base` is any [`Instant`]; the QUIC library wants some, and only differences to
/// it matter.
pub fn run(plan: &Plan, base: Instant, record: &mut dyn FnMut(Record)) -> Result<(), PlanError> {
    plan.check()?;
    match &plan.nodes {
        Nodes::Quic(flows) => quic::run(plan, flows, base, record),
        Nodes::QuicOnRuntime(flows) => quic::run_on_runtime(plan, flows, &[], record),
        Nodes::Split(split) => quic::run_on_runtime(plan, &split.flows, &split.proxies, record),
        Nodes::Tunnel(tunnel) => tunnel::run(plan, tunnel, record),
    }
    Ok(())
}

/// A seed for what draws beside the links; `number` tells them apart.
fn seed_of(run: u64, number: u64) -> u64 {
    // Spreads numbers over 64 bits: 2^64 divided by the golden ratio.
    run ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

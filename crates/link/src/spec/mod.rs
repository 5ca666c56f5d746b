//! A link as plain data: what each stage of a direction is told, in the packet's order.
//!
//! The types are written and read as the scenario grammar has it, and describe that form
//! as JSON Schema. Nothing here reads a file or runs; `scenario` turns text into these.

mod text_or_table;
mod trace;
mod on_off;
mod queue;
mod cross;
mod rate;
mod radio;
mod dvb_s2;
mod contending;
mod dvb_rcs2;
mod outage;
mod loss;
mod corrupt;
mod reorder;
mod delay;
mod reconfigure;
mod orbit;
mod link_outage;
mod direction;
mod link_change;
mod scenario;

pub use contending::ContendingTerminals;
pub use corrupt::CorruptSpec;
pub use cross::Cross;
pub use delay::{DelaySpec, Jitter, Orbit, Relay};
pub use direction::{Change, DirectionSpec, ScheduledChange};
pub use dvb_rcs2::DvbRcs2;
pub use dvb_s2::{Acm, DvbS2, Prefer};
pub use link_change::{Directions, LinkChange};
pub use link_outage::LinkOutage;
pub use loss::{Bounded, Fragmented, GilbertElliott, LossPer, LossSpec, LossTrace, Periodic};
pub use orbit::{Constellation, GroundPoint, OrbitSpec, Walker};
pub use outage::{Outage, OutagePackets};
pub use queue::{CoDelSpec, FqCoDelSpec, MarkingSpec, PieSpec, QueueLimit, QueueSpec};
pub use radio::Radio;
pub use rate::{Mahimahi, RateSpec};
pub use reconfigure::Reconfigure;
pub use reorder::Reorder;
pub use scenario::{GroundSpec, Scenario, Switch};
pub use trace::{AtEnd, Between, Trace, Value};

pub(crate) use on_off::OnOff;

//! Active queue management: who keeps the queue short, one file each.

pub mod codel;
pub mod fq_codel;
pub mod pie;

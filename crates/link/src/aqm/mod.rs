//! Active queue management, one algorithm per file.

pub mod codel;
pub mod fq_codel;
pub mod pie;

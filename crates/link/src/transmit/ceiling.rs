//! The ceiling of each kind of rate.

use bentpipe_units::{Rate, rounded};

use super::{dvb_rcs2, dvb_s2};
use crate::spec::RateSpec;

impl RateSpec {
    /// What the link sends at best at the IP level: in packets of 1500 bytes,
    /// averaged over a trace, under a clear sky.
    pub fn ceiling(&self) -> Rate {
        let rate = |bits: f64| Rate::from_bits_per_second(rounded(bits));
        match self {
            Self::Constant(rate) => *rate,
            Self::Trace(trace) => rate(trace.mean()),
            Self::Mahimahi(trace) => {
                let seconds = trace.opportunities.last().map_or(0, |ms| *ms).max(1) as f64 / 1e3;
                rate(trace.opportunities.len() as f64 * 1504.0 * 8.0 / seconds)
            }
            Self::DvbS2(spec) => rate(dvb_s2::ceiling(spec)),
            Self::DvbRcs2(spec) => rate(dvb_rcs2::ceiling(spec)),
        }
    }
}

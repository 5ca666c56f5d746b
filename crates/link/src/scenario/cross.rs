//! The checks of other sources: cross traffic, and contending terminals.

use super::on_off;
use super::problem::{Problem, wrong};
use crate::spec::{ContendingTerminals, Cross};

impl Cross {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        if self.rate.bits_per_second() == 0 {
            return wrong(
                &format!("{field}.rate"),
                self.rate,
                "it sends nothing; leave it out",
            );
        }
        if !(20..=65_535).contains(&self.packet.as_u64()) {
            return wrong(
                &format!("{field}.packet"),
                self.packet,
                "not between 20 B and 65535 B, which IP packets are",
            );
        }
        // Ten million packets a second are more than anything here can follow.
        if self.rate.bits_per_second() / 8 / self.packet.as_u64() > 10_000_000 {
            return wrong(
                &format!("{field}.rate"),
                self.rate,
                "more than ten million packets a second",
            );
        }
        on_off::check(field, self.on, self.off)
    }
}

impl ContendingTerminals {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        if self.rate.bits_per_second() == 0 {
            return Err(Problem::new(
                format!("{field}.rate"),
                self.rate.to_string(),
                "they ask for nothing; leave them out",
            ));
        }
        on_off::check(field, self.on, self.off)
    }
}

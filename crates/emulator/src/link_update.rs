//! Updates of a link while it runs, and what the certificate tells of them.

use std::fmt;

use bentpipe_link::{Directions, LinkChange};
use bentpipe_os::tun::TunError;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::NoAddress;

/// What is to change about one link, in the model and of what the model does not know. All
/// of it happens between two packets, or nothing.
#[derive(Debug, Clone, Default)]
pub struct LinkUpdate {
    /// The link's place among the plans.
    pub link: usize,
    /// What changes in the model.
    pub change: LinkChange,
    /// The terminal's device gets another address.
    pub address: Option<NewAddress>,
    /// What the certificate says of it.
    pub what: String,
}

impl LinkUpdate {
    /// The directions that it changes.
    pub(super) fn directions(&self) -> Directions {
        match (
            self.change.forward.is_empty(),
            self.change.r#return.is_empty(),
        ) {
            (false, true) => Directions::Forward,
            (true, false) => Directions::Return,
            _ => Directions::Both,
        }
    }
}

/// Another address for the terminal's device of a link, in place of those that the
/// emulator has given to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewAddress {
    /// In each network the next address that neither end has.
    Next,
    /// These, in place of those of the same families.
    These(Vec<IpNet>),
}

/// A change that was made, as the certificate tells it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AppliedChange {
    /// When, since the run began.
    pub at_s: f64,
    /// The link's name.
    pub link: String,
    /// Of which of its directions.
    pub direction: Directions,
    /// What was changed.
    pub what: String,
    /// Whether the scenario planned it; otherwise it was asked for from outside.
    pub planned: bool,
    /// The addresses that the terminal's device has had since then, if they changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub addresses: Vec<IpNet>,
}

impl fmt::Display for AppliedChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Directions::Both => "",
            direction => &format!(" {}", direction.name()),
        };
        write!(
            out,
            "{:.3} s: {}{direction}: {}",
            self.at_s, self.link, self.what
        )?;
        if self.planned {
            out.write_str(" (planned)")?;
        }
        for (number, address) in self.addresses.iter().enumerate() {
            let before = if number == 0 {
                ", the terminal is now "
            } else {
                " and "
            };
            write!(out, "{before}{address}")?;
        }
        Ok(())
    }
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// The device would not take its new address.
    #[error(transparent)]
    Address(#[from] TunError),
    /// There is no address to be had.
    #[error(transparent)]
    NoAddress(#[from] NoAddress),
    /// The certificate lists every change, and has no room for more.
    #[error("{MOST} changes have been made to this run, which is all that its certificate lists")]
    TooMany,
    /// The run has ended, or has no time to answer.
    #[error("the emulator did not answer within {} s: it is ending, or has no time", PATIENCE.as_secs())]
    Silent,
}

/// Changes that a certificate lists.
pub(super) const MOST: usize = 10_000;
/// How long to wait for the loop.
pub(super) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

//! What changes during a run: a plan's link, as people write it, and the terminal's address.

use bentpipe_link::{Change, Scenario};
use bentpipe_sim::{LinkPlan, Move, Towards};
use bentpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An element of the plan's `change`. What it says is added to the changes and outages
/// that the link has already.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeFile {
    /// When, since the run began.
    pub at: Span,
    /// The rate of the forward direction from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_rate: Option<Rate>,
    /// The rate of the return direction from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_rate: Option<Rate>,
    /// An outage of both directions, so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blackout: Option<Span>,
}

impl ChangeFile {
    /// `link` with this change.
    pub fn of(&self, mut link: LinkPlan) -> LinkPlan {
        let rates = [
            (Towards::Terminal, self.forward_rate),
            (Towards::Gateway, self.return_rate),
        ];
        for (towards, rate) in rates {
            if rate.is_some() {
                let change = Change {
                    rate,
                    ..Change::default()
                };
                link = link.change(self.at, towards, change);
            }
        }
        match self.blackout {
            Some(length) => link.blackout(self.at, length),
            None => link,
        }
    }
}

/// The changes of address of a terminal over `link`, the first link of the run, which changes at
/// the same moments by itself.
pub fn moves(link: &Scenario) -> Vec<Move> {
    let switches = link.switch.iter().filter(|switch| switch.new_address);
    switches
        .map(|switch| Move {
            at: switch.at,
            path: vec![0],
        })
        .collect()
}

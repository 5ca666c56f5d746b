//! One direction: filled in from the other and from files, and checked.

use bentpipe_units::Span;

use super::carrier::Hop;
use super::files::Files;
use super::problem::Problem;
use crate::spec::{DirectionSpec, LossPer};

/// Both directions of a hop, with `ground` the round trip behind it.
pub(super) fn resolve_pair(
    forward: (&mut DirectionSpec, &str),
    back: (&mut DirectionSpec, &str),
    ground: Span,
    files: &mut Files<'_>,
) -> Result<(), Problem> {
    // Delays first: rates and queues of either direction need both.
    forward
        .0
        .delay
        .resolve(&format!("{}.delay", forward.1), files)?;
    back.0.delay.resolve(&format!("{}.delay", back.1), files)?;
    let (there, here) = (
        forward.0.delay.typical().span(),
        back.0.delay.typical().span(),
    );
    let rtt = there + here + ground;
    forward.0.resolve(forward.1, files, here, rtt)?;
    back.0.resolve(back.1, files, there, rtt)
}

impl DirectionSpec {
    /// Fills in what depends on the other direction or on files, and checks.
    pub(super) fn resolve(
        &mut self,
        table: &str,
        files: &mut Files<'_>,
        other_delay: Span,
        rtt: Span,
    ) -> Result<(), Problem> {
        let hop = Hop {
            own_delay: self.delay.typical().span(),
            other_delay,
        };
        self.rate.resolve(&format!("{table}.rate"), files, &hop)?;
        self.delay.resolve(&format!("{table}.delay"), files)?;
        if let Some(jitter) = &self.jitter {
            jitter.check(&format!("{table}.jitter"))?;
        }
        self.loss.resolve(&format!("{table}.loss"), files)?;
        self.corrupt.check(&format!("{table}.corrupt"))?;
        self.check_loss_unit(table)?;
        self.check_resequencing(table)?;
        let ceiling = self.rate.ceiling();
        self.queue = self.queue.without_products(ceiling, rtt);
        self.queue
            .resolved(ceiling, rtt)
            .check(&format!("{table}.queue"))?;
        for (number, outage) in self.outages.iter().enumerate() {
            outage.check(&format!("{table}.outages.{number}"))?;
        }
        if let Some(reconfigure) = &self.reconfigure {
            reconfigure.check(&format!("{table}.reconfigure"))?;
        }
        for (number, cross) in self.cross.iter().enumerate() {
            cross.check(&format!("{table}.cross.{number}"))?;
        }
        let mut before = Span::ZERO;
        for (number, change) in self.change.iter_mut().enumerate() {
            let field = format!("{table}.change.{number}");
            change.change.resolve(&field, files)?;
            if change.at < before {
                return Err(Problem::new(
                    format!("{field}.at"),
                    change.at.to_string(),
                    "before the change above it; they stand in the order in which they happen",
                ));
            }
            before = change.at;
        }
        Ok(())
    }

    fn check_resequencing(&self, table: &str) -> Result<(), Problem> {
        let Some(frames) = self.resequence else {
            return Ok(());
        };
        let why = match self.loss_per {
            None | Some(LossPer::Packet) => {
                "only missing frames are waited for: say loss_per = \"bbframe\" or \"burst\", or leave it out"
            }
            // The number of a frame is a byte in OpenSAND.
            _ if !(1..=255).contains(&frames) => "not between 1 and 255 frames",
            _ => return Ok(()),
        };
        let field = format!("{table}.resequence");
        Err(Problem::new(field, frames.to_string(), why))
    }

    fn check_loss_unit(&self, table: &str) -> Result<(), Problem> {
        let wrong =
            |value: &str, why: String| Err(Problem::new(format!("{table}.loss_per"), value, why));
        match (self.loss_per, self.rate.frame()) {
            (None, Some(frame)) if self.loss.mean() > 0.0 => wrong(
                "",
                format!(
                    "this link sends frames, so say what the losses count: loss_per = \"packet\" or \"{}\"",
                    frame.name()
                ),
            ),
            (Some(LossPer::Packet) | None, _) => Ok(()),
            (Some(unit), Some(frame)) if unit == frame => Ok(()),
            (Some(unit), Some(frame)) => wrong(
                unit.name(),
                format!("this link has none; say \"packet\" or \"{}\"", frame.name()),
            ),
            (Some(unit), None) => wrong(
                unit.name(),
                "this link sends packets one by one; say \"packet\" or leave it out".into(),
            ),
        }
    }
}

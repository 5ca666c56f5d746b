//! The check of queues.

use bentpipe_units::Span;

use super::problem::Problem;
use crate::spec::{QueueLimit, QueueSpec};

/// IPv6 needs 1280 bytes of every link (RFC 8200, section 5).
const SMALLEST_QUEUE_BYTES: u64 = 1280;

impl QueueSpec {
    pub(crate) fn check(&self, field: &str) -> Result<(), Problem> {
        let wrong = |name: &str, value: String, why: &str| {
            Err(Problem::new(format!("{field}{name}"), value, why))
        };
        let positive = |model: &str, name: &str, span: Span| {
            if span == Span::ZERO {
                wrong(
                    &format!(".{model}.{name}"),
                    span.to_string(),
                    "it must be more than nothing",
                )
            } else {
                Ok(())
            }
        };
        match self {
            Self::DropTail(_) => {}
            Self::Marking(spec) => {
                let never = match (spec.above, spec.limit) {
                    (QueueLimit::Packets(above), QueueLimit::Packets(limit)) => above >= limit,
                    (QueueLimit::Bytes(above), QueueLimit::Bytes(limit)) => above >= limit,
                    _ => false,
                };
                if never {
                    return wrong(
                        ".marking.above",
                        spec.above.to_string(),
                        &format!(
                            "not below limit = \"{}\": nothing would ever be marked",
                            spec.limit
                        ),
                    );
                }
            }
            Self::CoDel(spec) => {
                positive("codel", "target", spec.target)?;
                positive("codel", "interval", spec.interval)?;
            }
            Self::FqCoDel(spec) => {
                positive("fq-codel", "target", spec.target)?;
                positive("fq-codel", "interval", spec.interval)?;
                if spec.flows == 0 {
                    return wrong(".fq-codel.flows", "0".into(), "at least one queue");
                }
                if spec.quantum.as_u64() < 256 {
                    return wrong(
                        ".fq-codel.quantum",
                        spec.quantum.to_string(),
                        "too small to be served in turns; give about one packet, like \"1514 B\"",
                    );
                }
            }
            Self::Pie(spec) => {
                positive("pie", "target", spec.target)?;
                // Shorter updates only cost time; RFC 8033 has 15 ms.
                if !(Span::from_millis(1)..=Span::from_millis(10_000)).contains(&spec.update) {
                    return wrong(
                        ".pie.update",
                        spec.update.to_string(),
                        "not between 1 ms and 10 s; RFC 8033 has \"15 ms\"",
                    );
                }
            }
        }
        match self.limit() {
            QueueLimit::Bytes(bytes) if bytes.as_u64() < SMALLEST_QUEUE_BYTES => wrong(
                "",
                self.limit().to_string(),
                "too small for one packet of 1280 bytes, which IPv6 requires of every link (RFC 8200, section 5)",
            ),
            _ => Ok(()),
        }
    }
}

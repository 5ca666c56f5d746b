//! Which flow's bytes go first.
//!
//! The sender's queue is ours, so the choice is too: small and young flows before
//! long ones, and flows of one class in turn. A download must not slow the page
//! beside it.

/// How urgent a flow's next bytes are; larger goes first.
pub type Urgency = i32;

/// Bytes after which a flow is no longer small. The median web object is below
/// 64 KiB; a page of them stays ahead of any download.
const SMALL: u64 = 64 * 1024;
/// Bytes after which a flow is bulk.
const BULK: u64 = 2 * 1024 * 1024;

/// The urgency of a flow that has sent `sent` bytes so far.
pub fn urgency(sent: u64) -> Urgency {
    match sent {
        0..SMALL => 2,
        SMALL..BULK => 1,
        _ => 0,
    }
}

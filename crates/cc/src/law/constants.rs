//! Every constant of the controller, with its unit and where it is from.

use bentpipe_units::Span;

// --- the round-trip time ------------------------------------------------------------

/// How long a round-trip time counts for the base: BBR's MinRTTFilterLen
/// (draft-ietf-ccwg-bbr, section 2.16).
pub(super) const BASE_MEMORY: Span = Span::from_millis(10_000);
/// Without a sample near the base for so long, the queue is drained: BBR's
/// ProbeRTTInterval (section 2.16).
pub(super) const DRAIN_INTERVAL: Span = Span::from_millis(5_000);
/// The standing queue is the least sample of this share of a round trip: Copa uses half
/// (NSDI 2018, section 2.1).
pub(super) const STANDING_WINDOW: f64 = 0.25;
/// But of no fewer samples than HyStart++'s N_RTT_SAMPLE (RFC 9406, section 4.3).
pub(super) const STANDING_SAMPLES: usize = 8;

// --- the queue that is wanted ---------------------------------------------------------

/// Own packets in the queue, in units of the square root of the packets that fill the
/// pipe: flows with equal base round trips settle at equal rates.
pub(super) const TARGET: f64 = 0.3;
/// Seconds of queue that are wanted at least: timers and acknowledgements tremble so much.
pub(super) const LEAST_TARGET: f64 = 0.002;
/// Packets of queue that are wanted at least: fewer cannot be told from none.
pub(super) const LEAST_TARGET_PACKETS: f64 = 1.0;
/// Share of the own pipe that is wanted at most, if it is more than those two packets.
pub(super) const MOST_TARGET: f64 = 0.12;
/// Seconds in which the most that the path has carried is forgotten.
pub(super) const CAPACITY_MEMORY: f64 = 40.0;
/// Share of the queue's error that a round trip corrects: FAST TCP's gamma is 0.5
/// (INFOCOM 2004); the queue seen is up to a round trip old, 0.3 does not swing.
pub(super) const CORRECTION: f64 = 0.3;

// --- growth ---------------------------------------------------------------------------

/// What the window grows by in a round without a queue, step by step: three small ones,
/// because a queue of 25 packets is 2.5 % of a GEO pipe, then doubling.
pub(super) const STEPS: [f64; 8] = [0.01, 0.01, 0.02, 0.04, 0.08, 0.16, 0.3, 0.5];
/// The first step after the start, and when the window was larger a short while ago.
pub(super) const SOONER: usize = 4;
/// Rounds in which a larger window of before is expected to fit again.
pub(super) const EXPECTED_ROUNDS: u32 = 30;

// --- a queue that is too long -----------------------------------------------------------

/// Share of the base round trip that a queue must stand for to be too long, for all of
/// [`LONG_ROUNDS`] rounds: held packets are late for one.
pub(super) const LONG: f64 = 0.15;
/// And so many targets.
pub(super) const LONG_TARGETS: f64 = 4.0;
pub(super) const LONG_ROUNDS: u32 = 2;
/// Share of the pipe that is left in flight to drain the queue: BBR's Down has a gain of 0.9
/// (section 5.6.1).
pub(super) const DRAIN: f64 = 0.9;
/// A queue of which this share stays although the own part is drained is somebody else's;
/// one of two equals leaves half of it.
pub(super) const OTHERS: f64 = 0.35;
/// Round trips after which a drain that cannot be seen is over.
pub(super) const DRAIN_ROUNDS: f64 = 4.0;

// --- losses -----------------------------------------------------------------------------

/// RFC 9438, section 4.6.
pub(super) const BETA: f64 = 0.7;
/// RFC 8511: after a mark CUBIC keeps 0.85.
pub(super) const BETA_MARK: f64 = 0.85;
/// RFC 9438, section 5: packets per second cubed.
pub(super) const C: f64 = 0.4;
/// RFC 9438, section 4.3.
pub(super) const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Losses come from a full queue if it is longer than so many targets,
pub(super) const LOSS_TARGETS: f64 = 1.6;
/// and than this share of the longest one of late.
pub(super) const LOSS_FULL: f64 = 0.5;
/// What the longest queue of late loses per round.
pub(super) const FORGET_LONGEST: f64 = 0.02;
/// Share of a round's packets that may be lost without a question: BBR's LossThresh
/// (section 2.9).
pub(super) const LOSS_FREE: f64 = 0.02;
/// The same as a factor of what the air is known to take.
pub(super) const LOSS_AIR: f64 = 1.5;
/// Fewer lost packets in a round are chance.
pub(super) const LOSS_PACKETS: u64 = 3;
/// And so many sent packets without them are judged together.
pub(super) const LOSS_JUDGED: u64 = 64;
/// A share of losses that is doubted whenever it comes: no air that is used takes a fifth.
pub(super) const LOSS_MUCH: f64 = 0.2;
/// What is left of the window to see whether fewer are lost then: what was delivered,
/// within these.
pub(super) const TRIAL_LEAST: f64 = 0.2;
pub(super) const TRIAL_MOST: f64 = 0.85;
/// Rounds that still tell of before.
pub(super) const TRIAL_BLIND: u32 = 1;
/// And those after which a trial is over, however few packets it had.
pub(super) const TRIAL_ROUNDS: u32 = 3;
/// Rounds after a full verdict in which the window grows by the first steps only.
pub(super) const CAREFUL_ROUNDS: u32 = 20;
pub(super) const CAREFUL_STEP: usize = 1;
/// From this share of what was delivered then.
pub(super) const CAREFUL_FROM: f64 = 0.9;
/// If this share of the losses stays, they are the air's.
pub(super) const TRIAL_STAYS: f64 = 0.5;
/// Rounds until the air's losses are doubted again, doubling to the second.
pub(super) const TRIAL_WAIT: (u32, u32) = (8, 128);
/// How fast the air's losses are followed, per round.
pub(super) const AIR_GAIN: f64 = 0.1;

// --- the start ----------------------------------------------------------------------------

/// First rate after the packet train, as a share of what it showed: it saw 20 packets, the
/// rest may belong to others.
pub(super) const FIRST: f64 = 0.75;
/// And once a round at that rate stood no queue.
pub(super) const SECOND: f64 = 0.97;
/// A path remembered from an earlier connection is tried at half its rate (RFC 9959,
/// section 4.3).
pub(super) const REMEMBERED: f64 = 0.5;
/// Growth per acknowledged byte without a train: slow start's (RFC 9002, section 7.3.1).
pub(super) const CLIMB: f64 = 1.0;
/// And packets leave so many times faster than the window would: it doubles.
pub(super) const CLIMB_PACE: f64 = 1.6;
/// A standing queue of this share of the base round trip ends a start without a train.
pub(super) const CLIMB_QUEUE: f64 = 0.25;
/// Judged when the first rate has been coming back for so much of a round trip.
pub(super) const JUDGED: f64 = 0.05;
/// Acknowledgements later than the first by so many seconds come in lumps perhaps.
pub(super) const SMOOTH: f64 = 0.005;

// --- silence --------------------------------------------------------------------------------

/// Without any acknowledgement for so many round trips the path is dark.
pub(super) const DARK: f64 = 1.1;
/// While dark, packets per round trip.
pub(super) const DARK_PACKETS: f64 = 8.0;
/// Most of them in a row; then the QUIC library's probe timer is alone.
pub(super) const DARK_MOST: u32 = 80;

// --- pacing -----------------------------------------------------------------------------------

/// Packets leave this much faster than the window would: it is the window that bounds.
pub(super) const PACE: f64 = 1.01;
/// And at most so many times faster, when the window was not filled.
pub(super) const PACE_MOST: f64 = 1.5;

// --- gaps ---------------------------------------------------------------------------------------

/// Silence between acknowledgements that is a gap: so many times the usual one, and so many
/// seconds more.
pub(super) const GAP_USUAL: f64 = 3.0;
pub(super) const GAP_LEAST: f64 = 0.005;
/// Packets for which the peer acknowledges at once, less a few (`Acks` asks for at most ten).
pub(super) const ACK_PACKETS: f64 = 8.0;
/// How fast gaps are followed, per round.
pub(super) const GAP_GAIN: f64 = 0.1;
/// Share of the base round trip that is wanted as queue for their sake at most.
pub(super) const GAP_MOST: f64 = 0.5;

// --- a rate that varies ---------------------------------------------------------------------------

/// A rate that has fallen is back when the window without a queue is so many times what it fell to.
pub(super) const VARYING_AGAIN: f64 = 1.3;
/// So often within its memory, and the window is kept for the next rise.
pub(super) const VARYING_TIMES: f64 = 1.5;
/// Seconds in which rises and the largest window are forgotten.
pub(super) const VARYING_MEMORY: f64 = 20.0;
/// Share of the largest window that is kept.
pub(super) const VARYING_KEEPS: f64 = 0.9;

//! Constants of the law, each with its unit and what it rests on.
//!
//! Evidence is a specification's section, arithmetic that stands beside it, or runs: "rows" are
//! those of `bentpipe sim budgets`, "drawn links" those of `bentpipe sim never-worst`, "busy host"
//! is GEO at 20/5 Mbit/s with `HostSpec::BUSY` at both ends. docs/model.md has the law,
//! docs/decisions/0003-satellite-mended.md what was tried instead.

use bentpipe_units::Span;

// --- the wanted queue ---------------------------------------------------------------------

/// Own packets that should stand in the queue, in square roots of the packets that fill the pipe:
/// 9 of 1000 on GEO at 20 Mbit/s, 2 of 50 at 10 Mbit/s and 60 ms. The square root makes flows of
/// one bottleneck equal (docs/model.md). Row: two alike.
pub(super) const TARGET: f64 = 0.3;
/// Least target, seconds of queue: timestamps of a busy machine are off by as much.
pub(super) const MIN_TARGET: f64 = 0.002;
/// Largest target, share of the own pipe: the row "mean RTT" leaves 0.06, this twice that.
pub(super) const MAX_TARGET: f64 = 0.12;
/// Time constant with which the highest rate seen is forgotten, seconds. Rows: four and eight alike.
pub(super) const CAPACITY_DECAY: f64 = 40.0;
/// Share of the queue's error corrected per round trip. With the measurement one to two round
/// trips old, more than about 0.4 would oscillate.
pub(super) const QUEUE_GAIN: f64 = 0.3;
/// Packets that the peer acknowledges at once, less a few: ten are asked for at most.
pub(super) const ACK_PACKETS: f64 = 8.0;
/// Window beyond the pipe, share of the pipe: acknowledgements come in groups.
pub(super) const WINDOW_MARGIN: f64 = 0.10;
/// The same in packets: two groups of ten, and some.
pub(super) const WINDOW_MARGIN_PACKETS: f64 = 24.0;

// --- the standing queue -------------------------------------------------------------------

/// How long a round-trip time counts for the base: BBR's MinRTTFilterLen
/// (draft-ietf-ccwg-bbr, section 2.14.1).
pub(super) const BASE_WINDOW: Span = Span::from_millis(10_000);
/// The least of fewer samples than this is mostly jitter, if their round trip has as many. Row:
/// jitter of up to 50 ms.
pub(super) const MIN_SAMPLES: usize = 12;
/// How long fewer samples are waited for: late timers delay no longer (busy host), and a flow with
/// few samples would be slow to yield.
pub(super) const FEW_SAMPLES_LIMIT: Span = Span::from_millis(75);
/// Steps that an acknowledgement waiting for more packets makes anyway: ten at 24 Mbit/s.
pub(super) const ACK_DELAY_STEP: Span = Span::from_millis(5);
/// Less jitter than this, nanoseconds, is other flows'. Row: eight alike.
pub(super) const NOISY_JITTER: f64 = 2e6;
/// One step counts for no more: a queue that collapses is no jitter. Just below DVB-RCS2's slot of 45 ms.
pub(super) const MAX_STEP: Span = Span::from_millis(40);
/// Samples over which the jitter is averaged, and as how many the first ones count: 2000 and 320
/// packets.
pub(super) const JITTER_SAMPLES: u32 = 200;
pub(super) const MIN_JITTER_SAMPLES: u32 = 32;
/// The least of so many steps of jitter is near the least there is. Rows: slots, jitter.
pub(super) const JITTER_STEPS: f64 = 150.0;

// --- the start ----------------------------------------------------------------------------

/// Packets of a train. Twice the acknowledgement group of ten, and fewer than the
/// smallest queue of the studies (25 packets, Endres). Trains of ten show no rate (drawn links).
pub(super) const TRAIN_PACKETS: u32 = 20;
/// Bytes per second at which a train leaves, 100 Mbit/s: faster than the links it measures, slow
/// enough for one timer per few packets.
pub(super) const TRAIN_RATE: u64 = 12_500_000;
/// A larger gap starts another train: ten packets at 24 Mbit/s.
pub(super) const TRAIN_GAP: Span = Span::from_millis(5);
/// Fewer packets between first and last acknowledgement show nothing: a quarter of the train.
pub(super) const TRAIN_MIN_ACKED: u64 = 5;
/// A train that came back at more than this share of the rate at which it left was not
/// spread by the path: the application had no more for it.
pub(super) const SPREAD_SHARE: f64 = 0.8;
/// Unless it left at this share of its own rate: the path is at least as fast.
pub(super) const FAST_SENDING: f64 = 0.5;
/// Acknowledgements of a train that are all later by more seconds than this may have come in a
/// lump: a busy host's stalls are of 3 ms and more.
pub(super) const SMOOTH_ACKS: f64 = 0.005;
/// They did if, at the rate that they show, so many trains would have had to stand before this one.
/// Busy host, seed 9: 2.9.
pub(super) const LUMP_TRAINS: f64 = 2.0;
/// First rate after the train, share of what it showed: it saw 20 packets, the rest may belong
/// to others.
pub(super) const TRIAL_SHARE: f64 = 0.75;
/// How long the trial rate must have been coming back before it is judged, share of a round trip.
pub(super) const TRIAL_TIME: f64 = 0.05;
/// Rate after a trial that made no queue, share of what the train showed: a queue of 25 packets is
/// 2.5 % of a GEO pipe. Row: queue of 25 packets.
pub(super) const CRUISE_SHARE: f64 = 0.97;
/// What is tried beyond a rate that has never met a limit: twice what was kept back.
pub(super) const CONFIRM_GAIN: f64 = 0.06;
/// Rounds in which that must meet one; else the train showed too little, a late host's for
/// example, and slow start goes on from it: one until it is sent, two until it shows. Busy host,
/// seed 1: worst five seconds 4.7 Mbit/s without, 16.7 with.
pub(super) const CONFIRM_ROUNDS: u32 = 3;
/// Rounds in which the rate that a train has shown is given up when acknowledgements turn out to
/// come in slots, or through jitter. Rows: slots, jitter.
pub(super) const TRAIN_DOUBT_ROUNDS: u32 = 12;
/// Growth of the window in a round of slow start, share of itself. Doubling would fill a queue
/// of one bandwidth-delay product before the first of it is seen.
pub(super) const SLOW_START_GROWTH: f64 = 0.75;
/// Standing queue that ends slow start, share of the base round trip.
pub(super) const FULL_QUEUE: f64 = 0.25;
/// Growth of the average round trip that ends slow start, share of the base round trip; HyStart++
/// takes an eighth (RFC 9406, section 4.3).
pub(super) const EXIT_RTT_GROWTH: f64 = 0.1;
/// A path remembered from an earlier connection is tried at half its rate (RFC 9959, section 4.3).
pub(super) const RESUME_SHARE: f64 = 0.5;

// --- a rate that rises --------------------------------------------------------------------

/// Shares of the delivered rate that are tried beyond it while no queue stands, step by step; then
/// slow start goes on. Slow at first: a queue of 25 packets is 2.5 % of a GEO pipe (Endres).
pub(super) const PROBE_GAINS: [f64; 6] = [0.0, 0.01, 0.03, 0.08, 0.15, 0.25];
/// Rounds without a queue before the next of these steps; what is tried shows after two.
pub(super) const PROBE_ROUNDS: [u32; 6] = [2, 4, 2, 2, 2, 2];
/// A flow with less than this share of the highest rate that it had takes two of these steps at
/// once, and checks whether the path has become longer where a queue stands.
pub(super) const REDUCED_RATE: f64 = 0.9;
/// A pause in which this share of the pipe could have left and did not: the sender had
/// too little, and what comes back a round trip later says nothing about the path.
pub(super) const PAUSE: f64 = 0.05;
/// Shortest pause of a sender, seconds; a shorter one is a late timer's (busy host).
pub(super) const MIN_PAUSE: f64 = 0.025;

// --- a rate that falls --------------------------------------------------------------------

/// A standing queue of this share of the base round trip is beyond what the controller itself
/// makes: the path carries less than it did. More than [`MAX_TARGET`].
pub(super) const RATE_FALL_QUEUE: f64 = 0.15;
/// Shortest interval over which a fallen rate is measured. Less may be the gap between two
/// satellites, of some 40 ms (row: LEO).
pub(super) const MIN_RATE_INTERVAL: Span = Span::from_millis(100);
// --- packets that are held, and blackouts -------------------------------------------------

/// Share of a round trip without an acknowledgement that is a silence: four are asked for.
pub(super) const SILENCE: f64 = 0.25;
/// Share of what the rate would have brought in a silence that must come at its end, in this share
/// of a round trip, where packets were held. Drawn links, seed 1, link 12: 0.51 of CUBIC without, 0.95 with.
pub(super) const HELD_SHARE: f64 = 0.5;
pub(super) const HELD_TIME: f64 = 0.125;
/// The path is in a blackout after so many round trips without any acknowledgement.
pub(super) const BLACKOUT_ROUND_TRIPS: f64 = 1.1;
/// Packets per round trip in a blackout: the first that comes through ends it without waiting
/// for a backed-off timer. Row: 2 s blackout.
pub(super) const BLACKOUT_PROBES: f64 = 8.0;
/// Most of these in a row: ten round trips. Then the probe timer (RFC 9002, section 6.2) is alone.
pub(super) const MAX_BLACKOUT_PROBES: u32 = 80;

// --- losses -------------------------------------------------------------------------------

/// Losses beyond this share of a round are congestion whatever the queue looks like.
pub(super) const HIGH_LOSS: f64 = 0.2;
/// Fewer lost packets than this have no share to speak of.
pub(super) const MIN_HIGH_LOSS_PACKETS: f64 = 8.0;
/// Losses told by one ACK frame are a burst when they are so many times the bytes that arrived.
pub(super) const BURST: u64 = 2;
/// Share of the packets that may be lost without a question: BBR's LossThresh
/// (draft-ietf-ccwg-bbr, section 2.9).
pub(super) const FREE_LOSS: f64 = 0.02;
/// The same as a factor of what the radio is known to lose.
pub(super) const KNOWN_LOSS: f64 = 1.5;
/// Packets that are judged together: so many lost ones, or so many sent.
pub(super) const LOST_PACKETS: u64 = 3;
pub(super) const JUDGED_PACKETS: u64 = 64;
/// A share that is doubted whenever it comes and never believed to be the radio's.
pub(super) const MUCH_LOSS: f64 = 0.2;
/// Bounds of the share of the rate that is sent in a trial.
pub(super) const LOSS_TRIAL: (f64, f64) = (0.2, 0.95);
/// Roots of the expected number that are chance, twice that of losses one by one.
pub(super) const CHANCE: f64 = 2.0;
/// Rounds of a trial that still tell of before, and those after which it is over.
pub(super) const BLIND_ROUNDS: u32 = 1;
pub(super) const LOSS_TRIAL_ROUNDS: u32 = 3;
/// If this share of the losses stays in a trial, they are the radio's.
pub(super) const LOSS_STAYS: f64 = 0.5;
/// Rounds until the radio's losses are doubted again: at first, and after many trials. Row: 5 %
/// random loss.
pub(super) const LOSS_WAIT: (u32, u32) = (8, 128);
/// Gain with which the radio's losses are followed, per judgement.
pub(super) const LOSS_GAIN: f64 = 0.1;
/// Rounds in which a rate that lost packets for want of room is not tried again but by the first
/// step ...
pub(super) const CAREFUL_ROUNDS: u32 = 20;
/// ... from this share of it on.
pub(super) const CAREFUL_FROM: f64 = 0.8;

// --- marks --------------------------------------------------------------------------------

/// Share of the rate that is kept after a mark (RFC 8511).
pub(super) const MARK_SHARE: f64 = 0.85;
/// And of the wanted queue: a mark says that the queue management wants a shorter one ...
pub(super) const MARK_TARGET: f64 = 0.7;
/// ... at least this is left ...
pub(super) const LEAST_MARKED_TARGET: f64 = 0.2;
/// ... and a round without a mark gives back this. Row: FQ-CoDel.
pub(super) const MARK_FORGOTTEN: f64 = 0.02;

// --- drain probes -------------------------------------------------------------------------

/// Time between drain probes: one dry moment is always inside [`BASE_WINDOW`].
pub(super) const DRAIN_INTERVAL: Span = Span::from_millis(5_000);
/// Share of the rate that a periodic probe leaves unsent, until twice the own queue could run
/// off: a tenth for a part of a round trip costs less than 1 % of the throughput.
pub(super) const PERIODIC_REDUCTION: f64 = 0.1;
/// Own queues that a periodic probe gives time to run off.
pub(super) const PERIODIC_QUEUES: f64 = 2.0;
/// Share of the rate that a probe in doubt leaves unsent, until all that stands could run off.
pub(super) const DOUBT_REDUCTION: f64 = 0.5;
/// Round trips in doubt until a probe; each that shows a true queue doubles them. Row: base delay
/// grows.
pub(super) const DOUBT_ROUNDS: u32 = 4;
/// A queue that moved by less than this share of what was left unsent is none: eight flows
/// alike move it by an eighth each, one that is being starved by less.
pub(super) const MIN_RESPONSE: f64 = 0.04;
/// Or by less than this many seconds: timestamps of a busy machine are off by as
/// much. A queue of twice that shows nothing.
pub(super) const TIMING_NOISE: f64 = 0.0005;

// --- competitive mode ---------------------------------------------------------------------

/// A standing queue of this share of the base round trip is beyond the own target: others fill it.
pub(super) const FOREIGN_QUEUE: f64 = 0.2;
/// Whoever has no more in flight than so many times its pipe ...
pub(super) const OWN_QUEUE_GONE: f64 = 1.15;
/// ... and so many packets, for acknowledgements come in groups, has no share in a foreign queue.
pub(super) const OWN_QUEUE_GONE_PACKETS: f64 = 12.0;
/// Rounds with a long queue that is not the own one before a drain probe is due, and before the
/// mode begins. What is sent shows after two.
pub(super) const DETECTION_ROUNDS: u32 = 2;
/// Rounds with a short queue that end the mode: a loss may empty a short queue for a round, and
/// BBR drains it for some every five seconds (draft-ietf-ccwg-bbr, section 5.3.4).
pub(super) const EXIT_ROUNDS: u32 = 16;
/// Rounds in which a competing flow that was there is expected again. Row: beside CUBIC.
pub(super) const EXPECTED_ROUNDS: u32 = 20;
/// Multiplicative decrease (RFC 9438, section 4.6): share of the window that is left.
pub(super) const CUBIC_BETA: f64 = 0.7;
/// C (RFC 9438, section 5), packets per second cubed.
pub(super) const CUBIC_C: f64 = 0.4;

//! What the satellite controller has constants for: all of them, with unit and evidence.
//!
//! Where no evidence is named it is the runs of `docs/model.md`, that is `bentpipe sim budgets`.

use bentpipe_units::Span;

// The target queue.

/// Own packets in the standing queue, in units of the square root of the packets
/// that fill the pipe: 9 of 1000 on GEO at 20 Mbit/s, 2 of 50 at 10 Mbit/s and
/// 60 ms. The square root makes flows of one bottleneck equal (`docs/model.md`).
///
/// A flow that has less of the path than it saw there, because others share it, aims
/// for more by the square of that ratio: this is what makes shares equal soon.
pub(super) const TARGET: f64 = 0.3;
/// Least target, seconds of queue: timestamps of a busy machine are off by as much.
pub(super) const MIN_TARGET: f64 = 0.002;
/// Largest target, share of the own pipe.
pub(super) const MAX_TARGET: f64 = 0.12;
/// Target where hosts stand still now and then, multiples of the mean step between round-trip samples: stalls are few and long. Over 50
/// Mbit/s and 40 ms between busy hosts 0, 4, 8 and 14 of them carry 38.0, 38.8, 40.4 and 41.7 Mbit/s (before the limits below), CUBIC 42.6.
pub(super) const STALLS: f64 = 14.0;
/// Its most, seconds: shares of eight on GEO are less equal from there on.
pub(super) const MAX_STALLS: f64 = 0.01;
/// And share of the base round trip.
pub(super) const MAX_STALLS_SHARE: f64 = 0.25;
/// Time constant with which the highest rate seen is forgotten, seconds.
pub(super) const CAPACITY_DECAY: f64 = 40.0;
/// Share of the queue's error corrected per round trip. With the measurement one
/// to two round trips old, more than about 0.4 would oscillate.
pub(super) const QUEUE_GAIN: f64 = 0.3;
/// Bounds of what is sent by it, shares of the rate.
pub(super) const LEAST_GAIN: f64 = 0.5;
/// See [`LEAST_GAIN`].
pub(super) const MOST_GAIN: f64 = 2.0;
/// A flow with less than this share of the highest rate that it had, and a queue, checks whether
/// the path has become longer; and somebody else is there, if queue management drops or marks.
pub(super) const REDUCED_RATE: f64 = 0.9;

// Growth.

/// Shares of the delivered rate that are tried beyond it while no queue stands, step by step.
/// Slow at first: a queue of 25 packets is 2.5 % of a GEO pipe (Endres et al.).
pub(super) const PROBE_GAINS: [f64; 7] = [0.0, 0.01, 0.03, 0.08, 0.15, 0.25, 0.5];
/// Rounds without a queue before the next of these steps; what is tried shows after two.
pub(super) const PROBE_ROUNDS: [u32; 7] = [2, 4, 2, 2, 2, 2, 2];
/// Rounds in which a rate that was too high is not tried again but by the first step.
pub(super) const CAREFUL_ROUNDS: u32 = 20;
/// Share of that rate from which on the first step is all that is tried.
pub(super) const CAREFUL_FROM: f64 = 0.8;

// The start.

/// Rate that is tried after a packet train, share of what the train showed: the
/// train saw 20 packets, the rest may belong to others.
pub(super) const TRIAL_SHARE: f64 = 0.75;
/// The same of a flow that knows no other rate, behind a train that is sure (decision 0005, *Behind a train*).
pub(super) const SURE_TRIAL_SHARE: f64 = 0.85;
/// Most initial windows behind a train that a short queue has cut (decision 0005, *Behind a train*).
pub(super) const CUT_WINDOWS: f64 = 3.0;
/// Rate after a trial that made no queue, share of what the train showed.
pub(super) const CRUISE_SHARE: f64 = 0.97;
/// How long the trial rate must have been coming back before it is judged, share of a round trip.
pub(super) const TRIAL_TIME: f64 = 0.05;
/// Packets of it that must have come back by then: fewer show no rate (decision 0005, *The first 100 kB*).
pub(super) const TRIAL_PACKETS: f64 = 8.0;
/// A path remembered from an earlier connection is tried at half its rate (RFC 9959, section 4.3).
pub(super) const RESUME_SHARE: f64 = 0.5;
/// A base round trip that falls by more seconds than this with a train was not known before it.
pub(super) const BASE_NOISE: f64 = 0.001;
/// Rounds in which the rate that a train has shown is given up when acknowledgements turn out
/// to come in slots, or through jitter.
pub(super) const TRAIN_DOUBT_ROUNDS: u32 = 12;
/// Jitter of more than this share of the time that a train took may have spread it: packets that do not overtake show the lesser part of theirs.
/// 0.7 left worst seeds at a seventh of the link (decision 0005, *Trains through jitter*).
pub(super) const TRAIN_JITTER: f64 = 0.28;
/// For so long a receiver may wait with an acknowledgement (max_ack_delay, RFC 9000, section 18.2).
pub(super) const MAX_ACK_DELAY: Span = Span::from_millis(25);
/// Growth of the window in a round of slow start, share of itself. Doubling would fill a queue
/// of one bandwidth-delay product before the first of it is seen.
pub(super) const SLOW_START_GROWTH: f64 = 0.75;
/// Growth of the average round trip that ends slow start, share of the base round trip.
pub(super) const EXIT_RTT_GROWTH: f64 = 0.1;
/// Round trips for which held packets, and late reads, count in the average round trip: it forgets an eighth with each
/// acknowledgement (RFC 9002, section 5.3).
pub(super) const SILENCE_IN_AVERAGE: f64 = 3.0;
/// Time since a silence in which a rate can be measured, share of what it is measured over: before that what was held comes all
/// at once (over 2 Mbit/s and 647 ms, 278 ms held every 1.5 s, 33 Mbit/s were believed).
pub(super) const MEASURED_BEHIND_SILENCE: f64 = 0.5;
/// Standing queue that says that the path is full, share of the base round trip: it ends slow start.
pub(super) const FULL_QUEUE: f64 = 0.25;
/// Own packets in it from which it says how much the path carries; one of fewer is made by others, or
/// stands where the acknowledgements come from (`campaigns/tunnel-beam.toml`: 2, 4 and 8 are alike).
pub(super) const FULL_QUEUE_PACKETS: f64 = 4.0;

// Later trains.

/// Trains that ask once more in the slow start behind a whole one that has shown nothing to be believed; evidence in
/// docs/decisions/0005-satellite-mended.md, *Trains in slow start*.
pub(super) const START_TRAINS: u32 = 4;
/// Rounds without a queue until another train asks whether the path carries more.
pub(super) const TRAIN_ROUNDS: u32 = 6;
/// Most rounds until another train: each that shows no more doubles them.
pub(super) const MOST_TRAIN_ROUNDS: u32 = 48;
/// No train is sent to a pipe of fewer packets.
pub(super) const TRAIN_PIPE: f64 = 40.0;
/// No train is sent by a flow with more than this share of the train's own rate.
pub(super) const TRAIN_MOST_SHARE: f64 = 0.5;
/// A pause after which the path is asked with a train: what was known is older than the base round
/// trip may be.
pub(super) const LONG_PAUSE: Span = queue::BASE_WINDOW;
/// A train that shows so many times the rate is tried.
pub(super) const TRAIN_MORE: f64 = 1.25;
/// Beside marks so much of what a train has shown is tried, for so many round trips, until a queue of such a share of one stands: then
/// others use a tenth of the path, or more (decision 0005, *Alone behind a queue that drops*).
pub(super) const MARKED_TRIAL_SHARE: f64 = 0.95;
/// See [`MARKED_TRIAL_SHARE`].
pub(super) const MARKED_TRIAL_TIME: f64 = 1.0;
/// See [`MARKED_TRIAL_SHARE`].
pub(super) const MARKED_TRIAL_QUEUE: f64 = 0.05;
/// Packets of window for a train on its way.
pub(super) const TRAIN_ROOM: f64 = 20.0;

// The delivered rate.

/// A pause in which this share of the pipe could have left and did not: the sender had
/// too little, and what comes back a round trip later says nothing about the path.
pub(super) const PAUSE: f64 = 0.125;
/// Shortest pause of a sender, seconds; a shorter one is a late timer's.
pub(super) const MIN_PAUSE: f64 = 0.025;
/// The same where hosts stand still: as long as they do (decision 0005, *Hosts that stall*).
pub(super) const MIN_STALLED_PAUSE: f64 = 0.05;
/// Share of its pipe that a round must have carried for the rate to be remembered.
pub(super) const USED: f64 = 0.5;
/// Share of its rate that a round must have carried to confirm it: a tenth is the round's own measure's error.
pub(super) const CONFIRMED: f64 = 0.9;
/// A standing queue of this share of the base round trip is beyond what the controller itself
/// makes: the path carries less than it did.
pub(super) const RATE_FALL_QUEUE: f64 = 0.15;
/// Shortest interval over which a fallen rate is measured. Less may be the gap between two
/// satellites, of some 40 ms.
pub(super) const MIN_RATE_INTERVAL: Span = Span::from_millis(100);
/// Packets that the peer acknowledges at once, less a few: ten are asked for at most.
pub(super) const ACK_PACKETS: f64 = 8.0;

// The window.

/// Pace of a window, in units of it per round trip: a little more, so that the window is what bounds.
pub(super) const WINDOW_PACE: f64 = 1.05;
/// Window beyond the pipe, share of the pipe: acknowledgements come in groups.
pub(super) const WINDOW_MARGIN: f64 = 0.10;
/// Window beyond the pipe and that share of it, packets: two groups of ten, and some.
pub(super) const WINDOW_MARGIN_PACKETS: f64 = 24.0;
/// Where no more packets fill the pipe a window says little (RFC 6928 begins with as many).
pub(super) const SHORT_PIPE: f64 = 10.0;

// A queue that others fill.

/// A standing queue of this share of the base round trip is beyond the own target: others fill it.
pub(super) const FOREIGN_QUEUE: f64 = 0.2;
/// And so many times the target that stalls ask for.
pub(super) const FOREIGN_STALLS: f64 = 2.0;
/// Whoever has no more in flight than so many times its pipe, and [`OWN_QUEUE_GONE_PACKETS`], has no
/// share in a foreign queue.
pub(super) const OWN_QUEUE_GONE: f64 = 1.15;
/// Packets beyond that share: acknowledgements come in groups.
pub(super) const OWN_QUEUE_GONE_PACKETS: f64 = 12.0;
/// But two, and those of so many seconds: no acknowledgement waits for longer. At 60 kbit/s twelve packets are a queue of 2.4 s, and were
/// taken for somebody else's (decision 0005, *Slow links whose rate steps*).
pub(super) const OWN_QUEUE_GONE_TIME: f64 = 0.1;

// Losses and marks.

/// Rounds over which the share of lost packets is averaged.
pub(super) const LOSS_ROUNDS: f64 = 64.0;

/// Losses beyond this share of a round are congestion whatever the queue looks like.
pub(super) const HIGH_LOSS: f64 = 0.2;
/// Fewer lost packets than this have no share to speak of.
pub(super) const MIN_HIGH_LOSS_PACKETS: f64 = 8.0;
/// Multiple of what a full path brings of a round of which it drops a fifth, above which the rate was never the path's (decision 0005, *A
/// flood behind the peer's window*).
pub(super) const OVERESTIMATE: f64 = 2.0;
/// So many times that may be what the path carries: the round had pauses in which the peer's window was full.
pub(super) const MAY_CARRY: f64 = 1.25;
/// Losses told by one ACK frame are a burst when they are so many times the bytes that arrived.
pub(super) const BURST: u64 = 2;
/// Share of what came through that is sent at least in a trial of less; 0.9 still overflows three packets of queue (decision 0005,
/// *Losses that nobody bounded*).
pub(super) const DELIVERED_SHARE: f64 = 0.8;
/// Share of the rate that is kept after a mark (RFC 8511).
pub(super) const MARK_SHARE: f64 = 0.85;
/// Share of the target that is kept after a mark: the queue management wants a shorter queue.
pub(super) const MARK_TARGET: f64 = 0.7;
/// Share of the target that marks leave at least.
pub(super) const LEAST_MARKED_TARGET: f64 = 0.2;
/// Share of the target that comes back in a round without a mark.
pub(super) const MARK_FORGOTTEN: f64 = 0.02;

// Silences and blackouts.

/// Share of a round trip without an acknowledgement that is a silence: packets are held. A gap
/// between two satellites or slots of a return link, some 45 ms, is less of a GEO round trip.
pub(super) const SILENCE: f64 = 0.1;
/// Shortest silence, seconds: a busy machine stands still for as long.
pub(super) const MIN_SILENCE: f64 = 0.05;
/// Fewest usual intervals between acknowledgements that are a silence.
pub(super) const SILENT_INTERVALS: f64 = 4.0;
/// Seconds without an acknowledgement behind which several at one moment were read late, or held (decision 0005, *Acknowledgements read
/// late in slow start*).
pub(super) const LATE_READ: f64 = 0.005;
/// The path is in a blackout after so many round trips without any acknowledgement.
pub(super) const BLACKOUT_ROUND_TRIPS: f64 = 1.1;
/// Packets per round trip in a blackout: the first that comes through ends it without waiting
/// for a backed-off timer.
pub(super) const BLACKOUT_PROBES: f64 = 8.0;
/// Most packets in a row in a blackout: ten round trips. Then the probe timer (RFC 9002, section 6.2) is alone.
pub(super) const MAX_BLACKOUT_PROBES: u32 = 80;

/// The packet train.
pub(super) mod train {
    use bentpipe_units::Span;

    /// Packets of a train. Twice the acknowledgement group of ten, and fewer than the
    /// smallest queue of the studies (25 packets, Endres).
    pub(in crate::satellite) const PACKETS: u32 = 20;
    /// A train leaves at 100 Mbit/s: faster than the links it measures, slow enough for
    /// one timer per few packets.
    pub(in crate::satellite) const RATE: u64 = 12_500_000;
    /// A larger gap starts another train.
    pub(in crate::satellite) const GAP: Span = Span::from_millis(5);
    /// Fewer packets between first and last acknowledgement show nothing.
    pub(in crate::satellite) const MIN_ACKED: u64 = 5;
    /// Of fewer that arrived the delay shows nothing: others were lost, and what waited is not known.
    pub(in crate::satellite) const WHOLE: u64 = 15;
    /// Packets' time without an acknowledgement, in the middle of a train: more than any acknowledgement waits for, and the path stands still.
    pub(in crate::satellite) const STOPPED: f64 = 8.0;
    /// A first acknowledgement that is later by so many seconds than without a queue may have come in
    /// one lump with the others; and so much of the time that a train has taken is late timers'.
    pub(in crate::satellite) const LATE: f64 = 0.005;
    /// It has, if the acknowledgements show so many times the rate that the train's delay leaves.
    pub(in crate::satellite) const LUMP: f64 = 2.0;
    /// Most that it shows, in rates at which it left: no bottleneck spaces packets closer than they came to it, but jitter and acknowledgements for
    /// many do; and a pacer lets ten go at once, faster than they leave on average (decision 0005, *The rate at which a train left*).
    pub(in crate::satellite) const PRESSED: f64 = 2.0;
    /// Its first acknowledgement came too soon for the rate that it shows, if after less than this share of the time that its packets take: 0.55
    /// to 0.58 on ideal hosts, 0.0 to 0.38 where a stall between the two acknowledgements showed half of 20 Mbit/s or less.
    pub(in crate::satellite) const SOON: f64 = 0.4;
    /// A train that came back at more than this share of the rate at which it left was not
    /// spread by the path: the application had no more for it.
    pub(in crate::satellite) const SPREAD_SHARE: f64 = 0.8;
    /// Unless it left at this share of its own rate: the path is at least as fast.
    pub(in crate::satellite) const FAST_SENDING: f64 = 0.5;
    /// A base round trip that falls by more than this share of itself with a train was not known before it.
    pub(in crate::satellite) const BASE_FALL: f64 = 0.02;
    /// What a cut train took is longer than it seems by this factor: a base from a handshake has two of its packets in it, and eight
    /// or more of the train's arrived.
    pub(in crate::satellite) const UNSEEN: f64 = 1.3;
    /// Nor did it come more than so many times faster than its acknowledgements: the first of them may be one for many.
    pub(in crate::satellite) const SPACED: f64 = 1.25;
    /// A path that brings so many times more of it later gives what it was asked for.
    pub(in crate::satellite) const MORE_LATER: f64 = 2.0;
}

/// The standing queue.
pub(super) mod queue {
    use bentpipe_units::Span;

    /// How long a round-trip time counts for the base: BBR's MinRTTFilterLen
    /// (draft-ietf-ccwg-bbr, section 2.14.1).
    pub(in crate::satellite) const BASE_WINDOW: Span = Span::from_millis(10_000);
    /// Half of that: how often the queue is let run dry, so that one dry moment is always inside.
    pub(in crate::satellite) const HALF_BASE_WINDOW: Span = Span::from_millis(5_000);
    /// Share of a full packet by which one may be shorter and takes as long.
    pub(in crate::satellite) const SHORT: f64 = 0.1;
    /// The least of fewer samples than this is mostly jitter, if their round trip has as many.
    pub(in crate::satellite) const MIN_SAMPLES: usize = 12;
    /// How long fewer samples are waited for: late timers delay no longer, and a flow with few
    /// samples would be slow to yield.
    pub(in crate::satellite) const FEW_SAMPLES_LIMIT: Span = Span::from_millis(75);
    /// Steps that an acknowledgement waiting for more packets makes anyway.
    pub(in crate::satellite) const ACK_DELAY_STEP: Span = Span::from_millis(5);
    /// Less jitter than this, nanoseconds, is other flows'.
    pub(in crate::satellite) const NOISY_JITTER: f64 = 2e6;
    /// One step counts for no more: a queue that collapses is no jitter.
    pub(in crate::satellite) const MAX_STEP: Span = Span::from_millis(40);
    /// Samples over which the jitter is averaged, and as how many the first ones count.
    pub(in crate::satellite) const JITTER_SAMPLES: u32 = 200;
    pub(in crate::satellite) const MIN_JITTER_SAMPLES: u32 = 32;
    /// The least of so many steps of jitter is near the least there is.
    pub(in crate::satellite) const JITTER_STEPS: f64 = 150.0;
}

/// Jitter that lasts; evidence in docs/decisions/0005-satellite-mended.md, *Jitter that lasts*.
pub(super) mod lasting_jitter {
    use bentpipe_units::Span;

    /// Not looked for where the round trip is as long as this: slots of 512 kbit/s on GEO look alike, and cost 6 % there.
    pub(in crate::satellite) const LONG: Span = Span::from_millis(200);
    /// Frames come too fast in less than this share of the time that the path takes for what they acknowledge, and in which it left.
    pub(in crate::satellite) const FAST: f64 = 0.5;
    /// Least that is counted, seconds: timestamps of a busy machine are off by as much.
    pub(in crate::satellite) const LEAST: f64 = 0.001;
    /// Behind a gap of this share of the fall a host has read late.
    pub(in crate::satellite) const HOST: f64 = 0.5;
    /// Round trips for which one counts, and fewest and most that do.
    pub(in crate::satellite) const ROUND_TRIPS: u64 = 20;
    pub(in crate::satellite) const FEWEST: usize = 2;
    pub(in crate::satellite) const MOST: usize = 16;
    /// Half of the most by which two values differ that are drawn evenly, in mean differences.
    pub(in crate::satellite) const HALF: f64 = 1.5;
    /// And what is taken for jitter in this way at most, share of the base round trip: twice that is no queue.
    pub(in crate::satellite) const MOST_SHARE: f64 = 0.5;
}

/// Queues that come and go within a round trip.
pub(super) mod brief_queue {
    /// Share of the target above which a sample may have met a queue.
    pub(in crate::satellite) const HIGH: f64 = 0.5;
    /// Share of the pipe that meets a queue that stays. On a full path all of it does, or nearly; jitter redrawn some
    /// sixty times a round trip made a sixth to a third of it (decision 0005, *Jitter on fast links*).
    pub(in crate::satellite) const STAYING_SHARE: f64 = 0.5;
    /// Rounds with high samples and no queue that stays, until such samples are taken for jitter. One round more or
    /// less: decision 0005, there.
    pub(in crate::satellite) const BRIEF_ROUNDS: u32 = 2;
}

/// The drain probe.
pub(super) mod drain_probe {
    use bentpipe_units::Span;

    /// Time between probes, so that one dry moment is always inside the memory of the base.
    pub(in crate::satellite) const INTERVAL: Span =
        crate::satellite::constants::queue::HALF_BASE_WINDOW;
    /// Share of the rate that a periodic probe leaves unsent, until twice the own queue could run
    /// off: a tenth for a part of a round trip costs less than 1 % of the throughput.
    pub(in crate::satellite) const PERIODIC_REDUCTION: f64 = 0.1;
    /// Own queues that a periodic probe gives time to run off.
    pub(in crate::satellite) const PERIODIC_QUEUES: f64 = 2.0;
    /// Share of the rate that a probe in doubt leaves unsent, until all that stands could run off.
    pub(in crate::satellite) const DOUBT_REDUCTION: f64 = 0.5;
    /// Round trips in doubt until a probe; each that shows a true queue doubles them.
    pub(in crate::satellite) const DOUBT_ROUNDS: u32 = 4;
    /// A queue that moved by less than this share of what was left unsent is none: eight flows
    /// alike move it by an eighth each, one that is being starved by less.
    pub(in crate::satellite) const MIN_RESPONSE: f64 = 0.04;
    /// Or by less than this many seconds: timestamps of a busy machine are off by as
    /// much. A queue of twice that shows nothing.
    pub(in crate::satellite) const TIMING_NOISE: f64 = 0.0005;
}

/// Whether what stands is a queue: more is sent for a moment. Evidence in docs/decisions/0005-satellite-mended.md, *Raise probes*.
pub(super) mod raise_probe {
    /// Share of the rate that is sent beyond it.
    pub(in crate::satellite) const GAIN: f64 = 0.25;
    /// Steps between the means of rounds that are averaged.
    pub(in crate::satellite) const STEPS: u32 = 16;
    /// So many of these steps are sent beyond the rate: half of the mean of two rounds is 2.3 of its errors then.
    pub(in crate::satellite) const NOISE: f64 = 4.0;
    /// Least of it, seconds, most, and most as a share of the base round trip: what a full path must bear.
    pub(in crate::satellite) const LEAST: f64 = 0.002;
    pub(in crate::satellite) const MOST: f64 = 0.016;
    pub(in crate::satellite) const MOST_SHARE: f64 = 0.5;
    /// Share of it by which a full path's mean round trip follows: before it shows, the rate has given way by a third.
    pub(in crate::satellite) const RESPONSE: f64 = 0.4;
    /// Rounds that are averaged, before and afterwards: where less may be sent than is wanted, more.
    pub(in crate::satellite) const LEAST_ROUNDS: f64 = 2.0;
    pub(in crate::satellite) const MOST_ROUNDS: usize = 8;
    /// Jitter moves the mean of an eighth of a round trip by at least so many times what it moves a whole one's: 0.4 to 1.3 seen, and 0.13 to
    /// 0.3 where flows alike share a GEO queue.
    pub(in crate::satellite) const EIGHTH_SHARE: f64 = 0.5;
    /// Fewer steps of whole ones show nothing.
    pub(in crate::satellite) const LEAST_STEPS: u32 = 3;
    /// The most by which two values differ that are drawn evenly, in mean differences between the means of some of them, times the root of
    /// their number: the root of three times pi.
    pub(in crate::satellite) const UNIFORM: f64 = 3.07;
    /// So many of an eighth of a round trip differ each for itself at most: jitter lasts, and a short queue changes slowly.
    pub(in crate::satellite) const APART: u32 = 9;
    /// Less of it, seconds, is timestamps'.
    pub(in crate::satellite) const JITTER: f64 = 0.0001;
    /// Rounds held back that make a probe due: at first, and after many that have shown a queue.
    pub(in crate::satellite) const LEAST_WAIT: u32 = 6;
    pub(in crate::satellite) const MOST_WAIT: u32 = 96;
}

/// A rate that steps; evidence in docs/decisions/0005-satellite-mended.md, *Rates that step*.
pub(super) mod rate_steps {
    /// Less than so many times what the rate fell to is no step.
    pub(in crate::satellite) const STEP: f64 = 1.25;
    /// Rounds of which the highest rate counts: 6 and 16 are alike but for the shares of four on GEO.
    pub(in crate::satellite) const ROUNDS: usize = 10;
    /// Rounds within which a fall is taken back by a step: 10 and 24 win less.
    pub(in crate::satellite) const RETURN_ROUNDS: u32 = 16;
    /// Rounds for which another is expected: with 64 four on GEO share less equally, and rates that step are carried alike.
    pub(in crate::satellite) const EXPECTED_ROUNDS: u32 = 32;
    /// Pipes of that rate that stay in flight behind the first return, and behind more: one alone may be others'.
    pub(in crate::satellite) const FIRST_PIPES: f64 = 1.0;
    pub(in crate::satellite) const PIPES: f64 = 1.25;
    /// Share of the window that comes back in a round without a loss.
    pub(in crate::satellite) const LOSS_FORGOTTEN: f64 = 0.02;
    /// Rounds without a queue until a train.
    pub(in crate::satellite) const TRAIN_ROUNDS: u32 = 2;
    /// Packets that stand where few fill the pipe (decision 0005, *Slow links whose rate steps*).
    pub(in crate::satellite) const TARGET_PACKETS: f64 = 2.0;
}

/// Links on demand; evidence in docs/decisions/0005-satellite-mended.md, *Links on demand*.
pub(super) mod on_demand {
    /// A standing queue of this share of the base round trip, and a packet, keeps the path busy whatever waits for its slot.
    pub(in crate::satellite) const BUSY_QUEUE: f64 = 0.06;
    /// So many times what was known comes while a queue stands, and is believed.
    pub(in crate::satellite) const MORE_THAN_KNOWN: f64 = 1.25;
    /// Packets beyond it that may have come in one go: a thin link brings eight in half a round trip.
    pub(in crate::satellite) const IN_ONE_GO: f64 = 2.0;
    /// Round trips after which a link has given what was asked for: a request waits for its turn (a second, OpenSAND), and goes up and down.
    pub(in crate::satellite) const ROUNDS: f64 = 4.0;
    /// Most that is in flight in slow start, pipes of what the path has given at best.
    pub(in crate::satellite) const MOST_PIPES: f64 = 3.0;
    /// Pipes more that may be in flight in cruise, while they wait for what they have asked for.
    pub(in crate::satellite) const WAITING_PIPES: f64 = 1.0;
    /// Rounds with a queue until a path of which nothing is known is asked: at first, and after many that have shown no more.
    pub(in crate::satellite) const LEAST_WAIT: u32 = 8;
    pub(in crate::satellite) const MOST_WAIT: u32 = 96;
    /// Fewer packets in the pipe show nothing: over 64 kbit/s and 6 kB of queue a quarter was lost.
    pub(in crate::satellite) const FEW_PACKETS: f64 = 4.0;
    /// Nor is it asked by a flow with less than this share of the highest rate that it had: others have the rest (eight alike on GEO: Jain 0.583 if
    /// asked, 0.786 if not, with 0.4 as with 0.6).
    pub(in crate::satellite) const ALONE_SHARE: f64 = 0.5;
    /// Pipes in flight that ask it.
    pub(in crate::satellite) const ASK_PIPES: f64 = 1.3;
    /// First window behind a pause, pipes.
    pub(in crate::satellite) const FIRST_PIPES: f64 = 2.0;
}

/// Losses without a queue.
pub(super) mod losses {
    /// Share of the packets that may be lost without a question: BBR's LossThresh
    /// (draft-ietf-ccwg-bbr, section 2.9).
    pub(in crate::satellite) const LOSS_THRESH: f64 = 0.02;
    /// The same as a factor of what the radio is known to lose.
    pub(in crate::satellite) const RADIO_MARGIN: f64 = 1.5;
    /// Packets that are judged together: so many lost ones, or so many sent.
    pub(in crate::satellite) const LOST_PACKETS: u64 = 3;
    pub(in crate::satellite) const JUDGED_PACKETS: u64 = 64;
    /// A share that is doubted whenever it comes and never believed to be the radio's.
    pub(in crate::satellite) const MOST_RADIO: f64 = 0.2;
    /// Bounds of the share of the rate that is sent in a trial.
    pub(in crate::satellite) const TRIAL_SHARES: (f64, f64) = (0.2, 0.95);
    /// Roots of the expected number that are chance, twice that of losses one by one.
    pub(in crate::satellite) const CHANCE: f64 = 2.0;
    /// Rounds of a trial that still tell of before, and those after which it is over.
    pub(in crate::satellite) const BLIND_ROUNDS: u32 = 1;
    pub(in crate::satellite) const TRIAL_ROUNDS: u32 = 3;
    /// If this share of the losses stays in a trial, they are the radio's.
    pub(in crate::satellite) const STAYS: f64 = 0.5;
    /// Rounds until the radio's losses are doubted again: at first, and after many trials.
    pub(in crate::satellite) const WAIT: (u32, u32) = (8, 128);
    /// Gain with which the radio's losses are followed, per judgement.
    pub(in crate::satellite) const GAIN: f64 = 0.1;
}

/// Losses of a queue that stands high; evidence in docs/decisions/0005-satellite-mended.md, *Losses of a shared queue*.
pub(super) mod queue_losses {
    /// Rounds whose queues are known.
    pub(in crate::satellite) const ROUNDS: usize = 64;
    /// Mean rank of losses that have nothing to do with the queue, and the first guess.
    pub(in crate::satellite) const CHANCE: f64 = 0.5;
    /// Gain with which the mean follows.
    pub(in crate::satellite) const GAIN: f64 = 0.125;
    /// Mean rank from which losses are the queue's, and the same where jitter that lasts blurs ranks (decision 0005, *Jitter that lasts*).
    pub(in crate::satellite) const HIGH: f64 = 0.75;
    pub(in crate::satellite) const HIGH_IN_JITTER: f64 = 0.65;
}

/// Beside somebody who keeps the queue full.
pub(super) mod competitive_mode {
    /// Rounds with a long queue that is not the own one before a drain probe is due, and before the
    /// mode begins. What is sent shows after two.
    pub(in crate::satellite) const DETECTION_ROUNDS: u32 = 2;
    /// Rounds with a short queue that end the mode: a loss may empty a short queue for a round, and
    /// BBR drains it for some every five seconds (draft-ietf-ccwg-bbr, section 5.3.4).
    pub(in crate::satellite) const EXIT_ROUNDS: u32 = 16;
    /// Rounds in which a competing flow that was there is expected again.
    pub(in crate::satellite) const EXPECTED_ROUNDS: u32 = 20;
    /// Multiplicative decrease (RFC 9438, section 4.6): share of the window that is left.
    pub(in crate::satellite) const BETA: f64 = 0.7;
    /// C (RFC 9438, section 5), packets per second cubed.
    pub(in crate::satellite) const C: f64 = 0.4;
}

/// What CUBIC would have with the same marks; evidence in docs/decisions/0005-satellite-mended.md, *Marks*.
pub(super) mod marked_window {
    /// Share of the window that a mark leaves (RFC 8511, section 3).
    pub(in crate::satellite) const SHARE: f64 = 0.85;
    /// Packets per round trip of W_est (RFC 9438, section 4.3), with its decrease of 0.7: with another's
    /// CUBIC the bound would be slower than that.
    pub(in crate::satellite) const ALPHA: f64 = 0.53;
    /// Share of the window that a mark finds at least, whatever was in flight.
    pub(in crate::satellite) const UNUSED: f64 = 0.8;
    /// The bound ends after so many times K and so many round trips without a mark, when it is
    /// this share of the own window.
    pub(in crate::satellite) const EPOCHS: f64 = 2.0;
    pub(in crate::satellite) const ROUNDS: f64 = 8.0;
    pub(in crate::satellite) const REACHED: f64 = 0.9;
}

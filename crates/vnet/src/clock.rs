//! The clock of a run through terminal and gateway: the async runtime's paused one,
//! moved from event to event.
//!
//! The runtime's own timers have whole milliseconds. Links and QUIC are exact to the
//! nanosecond here: what they wait for stands in a queue of its own. When nothing can
//! run any more, the clock moves to the millisecond of the next event by the runtime's
//! timers, so that none of those is passed by, and from there to the event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bentpipe_units::{Span, Time};
use noq::{AsyncTimer, AsyncUdpSocket, Runtime};

use crate::host::{Host, HostSpec};
use crate::timer;

/// What the runtime's timers count in.
const TICK: Span = Span::from_millis(1);

/// The clock of one run. Clones are the same clock.
#[derive(Clone)]
pub struct Clock {
    shared: Arc<Shared>,
    /// Whose programs it wakes up; ideal ones, where it is nobody's.
    host: Option<Arc<Mutex<Host>>>,
}

struct Shared {
    start: tokio::time::Instant,
    granularity: Span,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When, in which order, and whose; entries that their place does not know are over.
    queue: BinaryHeap<Reverse<(Time, u64, usize)>>,
    order: u64,
    places: Vec<Place>,
    free: Vec<usize>,
    driver: Option<Waker>,
    /// Nothing can run.
    idle: bool,
    /// The millisecond that the driver waits for.
    waits_for: Option<Time>,
}

/// One that waits for a moment.
#[derive(Default)]
struct Place {
    due: Option<Time>,
    /// Its entry in the queue, at `due` or before.
    queued: Option<(Time, u64)>,
    fired: bool,
    waker: Option<Waker>,
    call: Option<Call>,
}

/// What is called when it is due.
type Call = Arc<Mutex<dyn FnMut(Time) + Send>>;

/// Runs `work` in virtual time to its end, and everything that it spawns as long.
///
/// `granularity`: QUIC's timers fire at the next multiple of this, as those of a real
/// runtime do; zero for exact ones.
pub fn virtual_time<F: Future>(granularity: Span, work: impl FnOnce(Clock) -> F) -> F::Output {
    // The hook is there before the clock is.
    let clock: Arc<Mutex<Option<Clock>>> = Arc::default();
    let hook = clock.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(move || {
            if let Some(clock) = &*lock(&hook) {
                clock.idle();
            }
        })
        .build()
        .expect("a runtime without I/O asks the machine for nothing");
    let output = runtime.block_on(async {
        let here = Clock::new(granularity);
        *lock(&clock) = Some(here.clone());
        tokio::spawn(Driver {
            clock: here.clone(),
            tick: Box::pin(tokio::time::sleep_until(here.shared.start)),
            settles: false,
        });
        work(here).await
    });
    // What is called at its time may hold the clock.
    let here = lock(&clock).take();
    let calls: Vec<_> = here
        .iter()
        .flat_map(|clock| {
            let mut state = clock.lock();
            let calls = state
                .places
                .iter_mut()
                .filter_map(|place| place.call.take());
            calls.collect::<Vec<_>>()
        })
        .collect();
    drop(calls);
    output
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's paused clock is the virtual one"
    )]
    fn new(granularity: Span) -> Self {
        let shared = Arc::new(Shared {
            start: tokio::time::Instant::now(),
            granularity,
            state: Mutex::default(),
        });
        Self { shared, host: None }
    }

    /// The same clock on a machine of its own: it tells the time exactly, and its timers wake up
    /// as late as `spec` says. `seed` makes the machine's draws.
    pub fn on(&self, spec: HostSpec, seed: u64) -> Self {
        let host = Host::new(spec, seed);
        Self {
            shared: self.shared.clone(),
            host: (!host.is_ideal()).then(|| Arc::new(Mutex::new(host))),
        }
    }

    /// The machine, unless it is an ideal one.
    pub(crate) fn host(&self) -> Option<Arc<Mutex<Host>>> {
        self.host.clone()
    }

    /// The moment.
    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's paused clock is the virtual one"
    )]
    pub fn now(&self) -> Time {
        let since = tokio::time::Instant::now().saturating_duration_since(self.shared.start);
        Time::from_nanos(nanos(since))
    }

    /// Waits until `at`, exactly on an ideal machine.
    pub async fn sleep_until(&self, at: Time) {
        let timer = self.timer();
        timer.set(Some(at));
        std::future::poll_fn(|context| timer.poll_fired(context)).await;
    }

    /// Waits for `span`, exactly on an ideal machine.
    pub async fn sleep(&self, span: Span) {
        self.sleep_until(self.now() + span).await;
    }

    /// A timer that is not set.
    pub fn timer(&self) -> Timer {
        Timer(Alarm {
            clock: self.clone(),
            place: self.lock().place(None),
        })
    }

    /// Something that is called at the times that it is set to, whatever the machine.
    pub fn alarm(&self, call: impl FnMut(Time) + Send + 'static) -> Alarm {
        Alarm {
            clock: self.clone(),
            place: self.lock().place(Some(Arc::new(Mutex::new(call)))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.shared.state)
    }

    fn time(&self, at: Instant) -> Time {
        Time::from_nanos(nanos(
            at.saturating_duration_since(self.shared.start.into_std()),
        ))
    }

    /// The runtime is about to wait: nothing can run at this moment any more.
    fn idle(&self) {
        let mut state = self.lock();
        let next = state.next();
        if next.map(tick) == state.waits_for {
            // The runtime's timers bring us there, and may have something before.
            return;
        }
        state.idle = true;
        if let Some(driver) = &state.driver {
            driver.wake_by_ref();
        }
    }

    /// Lets happen what is due.
    fn fire(&self, now: Time) {
        loop {
            let mut state = self.lock();
            let Some((at, place)) = state.pop(now) else {
                return;
            };
            let it = &mut state.places[place];
            match it.due {
                None => {}
                Some(due) if due > at => state.queue_up(place, due),
                Some(_) => {
                    it.due = None;
                    if let Some(call) = it.call.clone() {
                        drop(state);
                        (lock(&call))(now);
                    } else {
                        it.fired = true;
                        if let Some(waker) = it.waker.take() {
                            drop(state);
                            waker.wake();
                        }
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Clock")
    }
}

impl State {
    fn place(&mut self, call: Option<Call>) -> usize {
        let place = Place {
            call,
            ..Place::default()
        };
        if let Some(free) = self.free.pop() {
            self.places[free] = place;
            return free;
        }
        self.places.push(place);
        self.places.len() - 1
    }

    fn set(&mut self, place: usize, due: Option<Time>) {
        let it = &mut self.places[place];
        it.due = due;
        it.fired = false;
        if let Some(due) = due
            && it.queued.is_none_or(|(at, _)| due < at)
        {
            self.queue_up(place, due);
        }
    }

    fn queue_up(&mut self, place: usize, at: Time) {
        self.order += 1;
        self.places[place].queued = Some((at, self.order));
        self.queue.push(Reverse((at, self.order, place)));
    }

    /// The first moment in the queue.
    fn next(&mut self) -> Option<Time> {
        while let Some(&Reverse((at, order, place))) = self.queue.peek() {
            if self.places[place].queued == Some((at, order)) {
                return Some(at);
            }
            self.queue.pop();
        }
        None
    }

    /// The first in the queue, if it is there by `now`.
    fn pop(&mut self, now: Time) -> Option<(Time, usize)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((at, _, place)) = self.queue.pop()?;
        self.places[place].queued = None;
        Some((at, place))
    }
}

/// Moves the clock when everything else waits.
struct Driver {
    clock: Clock,
    tick: Pin<Box<tokio::time::Sleep>>,
    /// The runtime's timers of this very moment have their turn first.
    settles: bool,
}

impl Future for Driver {
    type Output = Infallible;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Infallible> {
        let this = self.get_mut();
        let clock = this.clock.clone();
        let mut state = clock.lock();
        if state.waits_for.is_some() && Future::poll(this.tick.as_mut(), context).is_ready() {
            state.waits_for = None;
        }
        state.driver = Some(context.waker().clone());
        if !std::mem::take(&mut state.idle) || std::mem::take(&mut this.settles) {
            return Poll::Pending;
        }
        let Some(next) = state.next() else {
            state.waits_for = None;
            return Poll::Pending;
        };
        let now = clock.now();
        let there = tick(next);
        if there <= now {
            drop(state);
            advance(next.since(now));
            clock.fire(clock.now());
            return Poll::Pending;
        }
        // From one whole millisecond to another, or the runtime would land beside them.
        let rest = now.as_nanos() % TICK.as_nanos();
        if rest > 0 {
            let whole = Span::from_nanos(TICK.as_nanos() - rest);
            advance(whole);
            if now + whole == there {
                this.settles = true;
                return Poll::Pending;
            }
        }
        this.tick
            .as_mut()
            .reset(clock.shared.start + there.since(Time::ZERO).as_duration());
        state.waits_for = Some(there);
        let _ = Future::poll(this.tick.as_mut(), context);
        Poll::Pending
    }
}

/// Moves the runtime's clock.
fn advance(by: Span) {
    if by > Span::ZERO {
        // Its first step moves the clock; the second would only let others run.
        let step = pin!(tokio::time::advance(by.as_duration()));
        let _ = step.poll(&mut Context::from_waker(Waker::noop()));
    }
}

/// The millisecond that `at` lies in.
fn tick(at: Time) -> Time {
    Time::from_nanos(at.as_nanos() / TICK.as_nanos() * TICK.as_nanos())
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the clock's queue.
#[derive(Debug)]
pub struct Alarm {
    clock: Clock,
    place: usize,
}

impl Alarm {
    /// Is called at `due` and not before; never, if that is nothing.
    pub fn set(&self, due: Option<Time>) {
        self.clock.lock().set(self.place, due);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let mut state = self.clock.lock();
        let gone = std::mem::take(&mut state.places[self.place]);
        state.free.push(self.place);
        drop(state);
        drop(gone);
    }
}

/// Something to wait for.
#[derive(Debug)]
pub struct Timer(Alarm);

impl Timer {
    /// Fires at `due` and not before; never, if that is nothing.
    pub fn set(&self, due: Option<Time>) {
        let clock = &self.0.clock;
        self.0.set(match &clock.host {
            Some(host) => due.map(|due| lock(host).timer(due, clock.now())),
            None => due,
        });
    }

    /// Whether it has fired since it was set last.
    pub fn poll_fired(&self, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_exactly(context));
        let clock = &self.0.clock;
        let Some(host) = &clock.host else {
            return Poll::Ready(());
        };
        let now = clock.now();
        let runs = lock(host).runs(now);
        if runs <= now {
            return Poll::Ready(());
        }
        self.0.set(Some(runs));
        self.poll_exactly(context)
    }

    /// The same, whether the machine stalls or not.
    fn poll_exactly(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.clock.lock();
        let it = &mut state.places[self.0.place];
        if it.fired {
            return Poll::Ready(());
        }
        it.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncTimer for Timer {
    fn reset(self: Pin<&mut Self>, at: Instant) {
        let clock = &self.0.clock;
        let fires = timer::fires(clock.time(at), clock.now(), clock.shared.granularity);
        Self::set(&self, Some(fires));
    }

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_fired(context));
        Poll::Ready(())
    }
}

impl Runtime for Clock {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let mut timer = Box::pin(self.timer());
        AsyncTimer::reset(timer.as_mut(), at);
        timer
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(future);
    }

    fn wrap_udp_socket(
        &self,
        _socket: std::net::UdpSocket,
    ) -> std::io::Result<Box<dyn AsyncUdpSocket>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn now(&self) -> Instant {
        self.shared.start.into_std() + self.now().since(Time::ZERO).as_duration()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn events_happen_in_order_among_the_runtimes_timers() {
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let all = virtual_time(Span::ZERO, async |clock| {
            for micros in [500_u64, 12_345, 12_000, 11_999, 3_000, 3_001] {
                let (here, seen) = (clock.clone(), seen.clone());
                tokio::spawn(async move {
                    here.sleep(Span::from_nanos(1000 * micros)).await;
                    lock(&seen).push((here.now().as_nanos() / 1000, "ours"));
                });
            }
            for millis in [3_u64, 12] {
                let (here, seen) = (clock.clone(), seen.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                    lock(&seen).push((here.now().as_nanos() / 1000, "the runtime's"));
                });
            }
            clock.sleep(Span::from_millis(100)).await;
            assert_eq!(clock.now().as_nanos(), 100 * MS);
            lock(&seen).clone()
        });
        let expected = [
            (500, "ours"),
            (3_000, "the runtime's"),
            (3_000, "ours"),
            (3_001, "ours"),
            (11_999, "ours"),
            (12_000, "the runtime's"),
            (12_000, "ours"),
            (12_345, "ours"),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn a_timer_that_is_always_due_does_not_stop_time() {
        virtual_time(Span::ZERO, async |clock| {
            let mut timer = Runtime::new_timer(&clock, Runtime::now(&clock));
            for _ in 0..1000 {
                timer.as_mut().reset(Runtime::now(&clock));
                std::future::poll_fn(|context| timer.as_mut().poll(context)).await;
            }
            assert_eq!(clock.now(), Time::ZERO + Span::from_millis(1));
        });
    }

    #[test]
    fn coarse_timers_round_up() {
        virtual_time(Span::from_millis(1), async |clock| {
            for (wanted, fires) in [(1, MS), (MS + 1, 2 * MS), (3 * MS, 3 * MS)] {
                let at = clock.shared.start.into_std() + Duration::from_nanos(wanted);
                let mut timer = Runtime::new_timer(&clock, at);
                std::future::poll_fn(|context| timer.as_mut().poll(context)).await;
                assert_eq!(clock.now().as_nanos(), fires);
            }
        });
    }

    /// Timers, and what waits in a stall; the clock itself is exact.
    #[test]
    fn a_machines_timers_are_as_late_as_it_is() {
        let spec = HostSpec {
            stall_every: Span::from_millis(50),
            stall: (Span::from_millis(20), Span::from_millis(20)),
            ..HostSpec::IDEAL
        };
        let late = virtual_time(Span::ZERO, async |clock| {
            let machine = clock.on(spec, 1);
            let far = machine.timer();
            far.set(Some(Time::ZERO + Span::from_millis(3_600_000)));
            let mut late = Vec::new();
            for millis in 1..=1000 {
                let wanted = Time::ZERO + Span::from_millis(millis);
                if wanted > clock.now() {
                    machine.sleep_until(wanted).await;
                    late.push(machine.now().since(wanted).as_nanos() / MS);
                }
            }
            assert_eq!(machine.now(), clock.now());
            late
        });
        let stalls = late.iter().filter(|late| **late > 0).count();
        // 1000 ms hold 14 stalls of 20 ms with 50 ms between them on average.
        assert!((8..=22).contains(&stalls), "{stalls}: {late:?}");
        assert!(late.iter().all(|late| *late <= 20), "{late:?}");
    }

    #[test]
    fn a_timer_that_is_set_anew_fires_once_at_its_last_time() {
        virtual_time(Span::ZERO, async |clock| {
            let fired = Arc::<Mutex<Vec<u64>>>::default();
            let seen = fired.clone();
            let alarm = clock.alarm(move |now| lock(&seen).push(now.as_nanos()));
            for at in [5 * MS, 9 * MS, 7 * MS] {
                alarm.set(Some(Time::from_nanos(at)));
            }
            let never = clock.alarm(|_| unreachable!("it was put off"));
            never.set(Some(Time::from_nanos(MS)));
            never.set(None);
            clock.sleep(Span::from_millis(20)).await;
            assert_eq!(*lock(&fired), [7 * MS]);
        });
    }
}

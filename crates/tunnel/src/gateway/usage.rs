//! What a terminal uses of its policy: flows, rate and volume, over all its sessions.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bentpipe_quic::clock::now;
use bentpipe_units::Rate;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::policy::{Policies, Policy};
use crate::identity::Fingerprint;
use crate::sockets::Socket;
use crate::wire::proxy_status::{ErrorKind, Refusal};

/// What may be carried at once after a pause, as time at the rate.
const BURST: Duration = Duration::from_millis(100);
/// A flow counts what it has carried when it is so much, bytes, and at its end.
const COUNT: u64 = 256 * 1024;

/// The usage of all terminals that have flows.
#[derive(Default)]
pub struct Usages(Mutex<BTreeMap<Fingerprint, Weak<Usage>>>);

/// The usage of one terminal.
#[derive(Debug)]
pub struct Usage {
    key: Fingerprint,
    flows: AtomicU32,
    /// Into the tunnel, out of it.
    directions: [Mutex<Credit>; 2],
}

/// What may be carried now: negative when more was carried than there was.
#[derive(Debug, Clone, Copy)]
struct Credit {
    bytes: f64,
    at: Instant,
}

/// A flow's place among its terminal's; given back when it is dropped.
pub struct Place {
    usage: Arc<Usage>,
    /// As it was when the flow began.
    policy: Arc<Policy>,
    policies: Arc<dyn Policies>,
    /// Carried and not yet counted, bytes.
    uncounted: u64,
}

impl Usages {
    /// A flow of the terminal with `key` begins, if its policy lets it.
    pub fn enter(&self, key: Fingerprint, policies: &Arc<dyn Policies>) -> Result<Place, Refusal> {
        let refusal = |detail: String| {
            Err(Refusal {
                kind: ErrorKind::ConnectionLimitReached,
                detail,
            })
        };
        let policy = policies.of(&key);
        if let Some(most) = policy.monthly_volume
            && policies.carried(&key, 0) >= most.as_u64()
        {
            return refusal(format!(
                "this terminal's volume of {most} for this month is used up"
            ));
        }
        let usage = self.usage(key);
        let open = usage.flows.fetch_add(1, Ordering::Relaxed);
        let place = Place {
            usage,
            policy: policy.clone(),
            policies: policies.clone(),
            uncounted: 0,
        };
        match policy.flows {
            Some(most) if open >= most => refusal(format!(
                "this terminal has {most} flows open, as many as it may"
            )),
            _ => Ok(place),
        }
    }

    fn usage(&self, key: Fingerprint) -> Arc<Usage> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(usage) = all.get(&key).and_then(Weak::upgrade) {
            return usage;
        }
        all.retain(|_, usage| usage.strong_count() > 0);
        let credit = || {
            Mutex::new(Credit {
                bytes: 0.0,
                at: now(),
            })
        };
        let usage = Arc::new(Usage {
            key,
            flows: AtomicU32::new(0),
            directions: [credit(), credit()],
        });
        all.insert(key, Arc::downgrade(&usage));
        usage
    }
}

impl Place {
    /// The terminal's policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// `bytes` were carried, to be counted at the flow's end.
    pub fn add(&mut self, bytes: u64) {
        self.uncounted += bytes;
    }

    /// Counts what was carried; all of this month.
    fn count(&mut self) -> u64 {
        let bytes = std::mem::take(&mut self.uncounted);
        self.policies.carried(&self.usage.key, bytes)
    }

    /// `socket` held to the policy's rate and volume.
    pub fn meter<S: Socket>(self, socket: S) -> Metered<S> {
        Metered {
            socket,
            place: self,
            waits: [None, None],
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.count();
        self.usage.flows.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Credit {
    /// Takes note of the time; how long it is until something may be carried.
    fn wait(&mut self, rate: Rate, now: Instant) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
        let per_second = rate.bits_per_second() as f64 / 8.0;
        let most = per_second * BURST.as_secs_f64();
        let earned = per_second * now.saturating_duration_since(self.at).as_secs_f64();
        self.bytes = (self.bytes + earned).min(most);
        self.at = now;
        // Rounded up to the runtime's millisecond, so that nobody wakes for nothing.
        (self.bytes < 0.0)
            .then(|| Duration::from_secs_f64(-self.bytes / per_second) + Duration::from_millis(1))
    }
}

/// A socket that is held to a policy's rate and volume.
pub struct Metered<S> {
    socket: S,
    place: Place,
    waits: [Option<Pin<Box<Sleep>>>; 2],
}

/// From the origin into the tunnel, and the other way.
const IN: usize = 0;
const OUT: usize = 1;

impl<S> Metered<S> {
    /// Waits until `direction` may carry something.
    fn poll_credit(&mut self, direction: usize, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(wait) = &mut self.waits[direction] {
                ready!(wait.as_mut().poll(context));
                self.waits[direction] = None;
            }
            let Some(rate) = self.place.policy.rate else {
                return Poll::Ready(());
            };
            let wait = self.credit(direction).wait(rate, now());
            match wait {
                None => return Poll::Ready(()),
                Some(time) => self.waits[direction] = Some(Box::pin(tokio::time::sleep(time))),
            }
        }
    }

    fn credit(&self, direction: usize) -> std::sync::MutexGuard<'_, Credit> {
        let credit = &self.place.usage.directions[direction];
        credit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `bytes` were carried.
    fn carried(&mut self, direction: usize, bytes: usize) -> io::Result<()> {
        if self.place.policy.rate.is_some() {
            #[expect(clippy::cast_precision_loss, reason = "a buffer is far below 2^53")]
            let spent = bytes as f64;
            self.credit(direction).bytes -= spent;
        }
        self.place.uncounted += bytes as u64;
        if self.place.uncounted >= COUNT {
            let all = self.place.count();
            let most = self.place.policy.monthly_volume;
            if most.is_some_and(|most| all >= most.as_u64()) {
                return Err(io::Error::other(
                    "this terminal's volume of the month is used up",
                ));
            }
        }
        Ok(())
    }
}

impl<S: Socket> Socket for Metered<S> {
    fn close(self) {
        self.socket.close();
    }

    fn reset(&self) -> impl Future<Output = io::Error> + Send + 'static {
        self.socket.reset()
    }
}

impl<S: Socket> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_credit(IN, context));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        let bytes = buffer.filled().len() - before;
        Poll::Ready(self.carried(IN, bytes))
    }
}

impl<S: Socket> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_credit(OUT, context));
        let bytes = ready!(Pin::new(&mut self.socket).poll_write(context, data))?;
        self.carried(OUT, bytes)?;
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

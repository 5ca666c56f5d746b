//! What all requests of a session share.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use h3::quic::StreamId;
use noq::{PathId, VarInt};
use tokio::sync::watch;

use crate::datagrams::Datagrams;
use crate::drops::Drops;
use crate::schedule::{Class, LEAST_SEND_WINDOW, Scheduler};
use crate::windows::Windows;

/// What all requests of a session share.
#[derive(Clone)]
pub struct Flows {
    pub(super) connection: noq::Connection,
    /// Where the peer's refusals to read on are learnt.
    pub stops: Stops,
    /// Whose bytes are sent next.
    pub scheduler: Scheduler,
    /// How far the peer may send.
    pub windows: Windows,
    /// What is sent beside the streams.
    pub datagrams: Datagrams,
    /// What of the library's send window is in use.
    send_window: Arc<AtomicU64>,
    /// The peer speaks HTTP/3 with us.
    accepted: Arc<watch::Sender<bool>>,
}

impl Flows {
    pub(super) fn new(connection: noq::Connection, windows: Windows, drops: Drops) -> Self {
        Self {
            windows,
            datagrams: Datagrams::new(connection.clone(), drops),
            connection,
            stops: Stops::default(),
            scheduler: Scheduler::default(),
            send_window: Arc::default(),
            accepted: Arc::new(watch::Sender::new(false)),
        }
    }

    /// The peer has begun to speak HTTP/3.
    pub(super) fn accept(&self) {
        self.accepted.send_replace(true);
    }

    /// Waits until the peer has begun to speak HTTP/3, which it does when it takes the
    /// session; `false` if it has been closed instead.
    pub async fn accepted(&self) -> bool {
        let mut accepted = self.accepted.subscribe();
        tokio::select! {
            heard = accepted.wait_for(|accepted| *accepted) => heard.is_ok(),
            _ = self.connection.closed() => false,
        }
    }

    /// Sets the window of the whole session.
    pub(super) fn adjust(&self, window: Option<VarInt>) {
        if let Some(window) = window {
            self.connection.set_receive_window(window);
        }
    }

    /// Bounds what the library holds of what was written, for a flow of `class`.
    pub(super) fn bound_queue(&self, class: Class) {
        let path = self.connection.path_stats(PathId::ZERO);
        // Without a path to ask it is the memory that bounds it.
        let window = path.map_or(u64::MAX, |path| class.send_window(path.cwnd));
        let window = window.min(self.windows.most().max(LEAST_SEND_WINDOW));
        if self.send_window.swap(window, Ordering::Relaxed) != window {
            self.connection.set_send_window(window);
        }
    }
}

/// Learns that the peer will not read on although nothing is being sent.
///
/// HTTP/3's API tells of STOP_SENDING only when something is written. A relay that
/// waits for its origin would keep the origin open for nobody.
#[derive(Clone, Default)]
pub struct Stops(Arc<Mutex<BTreeMap<u64, noq::Stopped>>>);

impl Stops {
    pub(super) fn watch(&self, stream: &noq::SendStream) {
        let stopped = stream.stopped();
        self.lock()
            .insert(VarInt::from(stream.id()).into_inner(), stopped);
    }

    /// Resolves when the peer has said that it reads no more of stream `id`, or has
    /// acknowledged all of it, or the connection is lost. Once for each stream.
    pub fn stopped(&self, id: StreamId) -> impl Future<Output = ()> + Send + use<> {
        let watched = self.lock().remove(&id.into_inner());
        async move {
            if let Some(stopped) = watched {
                let _ = stopped.await;
            }
        }
    }

    pub(super) fn forget(&self, id: u64) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, noq::Stopped>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

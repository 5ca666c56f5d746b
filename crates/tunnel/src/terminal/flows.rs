//! The flows of a terminal: applications' connections, each carried to the gateway.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot, watch};

use super::connector::Connector;
use super::hosts::Hosts;
use super::places::Places;
use super::session::{DownStream, Session};
use crate::flow::stalled::{Held, StalledFlows};
use crate::flow::tally::{OpenFlow, Tally};
use crate::flow::{Carried, FlowError, tcp};
use crate::session::BidiStream;
use crate::sockets::{Resolve, Socket};
use crate::target::Target;
use crate::transport::{MAX_FLOWS, MAX_UDP_FLOWS};
use crate::wire::proxy_status::Refusal;

/// How long a flow waits for a session before it is reset. Browsers give up on a
/// connection after some 20 s; a GEO session opens in two.
const SESSION_WAIT: Duration = Duration::from_secs(10);

/// How long the gateway has to say whether the origin accepts: the ten seconds that it
/// gives the origin, and a satellite there and back. A gateway that has vanished is not
/// waited for until its session times out.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(15);

type RequestStream = h3::client::RequestStream<BidiStream, Bytes>;

/// A running terminal. Clones are the same terminal.
#[derive(Clone)]
pub struct Terminal {
    session: watch::Receiver<Option<Session>>,
    flows: Arc<Semaphore>,
    pub(super) hosts: Hosts,
    stalled: StalledFlows,
    pub(super) udp: Places,
    pub(super) tally: Tally,
}

impl Terminal {
    /// A terminal, and the task that keeps its session: run it for as long as the
    /// terminal is to work.
    pub fn new<R: Resolve>(connector: Connector<R>) -> (Self, impl Future<Output = Infallible>) {
        let (current, session) = watch::channel(None);
        let stalled = StalledFlows::default();
        let terminal = Self {
            session,
            flows: Arc::new(Semaphore::new(MAX_FLOWS as usize)),
            hosts: Hosts::default(),
            stalled,
            udp: Places::new(MAX_UDP_FLOWS),
            tally: Tally::default(),
        };
        (terminal, async move { connector.keep(&current).await })
    }

    /// The current session, also when it changes.
    pub fn session(&self) -> watch::Receiver<Option<Session>> {
        self.session.clone()
    }

    /// The counts of its flows.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Carries one application's connection to `target`; returns when it has ended.
    pub async fn carry(&self, socket: impl Socket, target: Target) {
        self.carry_numbered(socket, target, 0).await;
    }

    /// The same for the host `client`: hosts have equal shares, whatever their number of flows.
    pub async fn carry_for(&self, client: IpAddr, socket: impl Socket, target: Target) {
        let host = self.hosts.enter(client);
        self.carry_numbered(socket, target, host.number()).await;
    }

    /// The same for an application that is told first whether the origin accepts: `told` hears
    /// it, and the socket is there after that.
    pub async fn carry_accepted<S: Socket>(
        &self,
        client: IpAddr,
        target: Target,
        told: oneshot::Sender<Result<(), Refusal>>,
        socket: impl Future<Output = io::Result<S>> + Send,
    ) {
        let host = self.hosts.enter(client);
        let Some((_place, _open)) = self.begin(&target) else {
            return;
        };
        let accepted = async {
            let (session, mut stream) = self.open(&target, host.number()).await?;
            let answer = tokio::time::timeout(ANSWER_WAIT, stream.recv_response()).await;
            Refusal::read(&answer.map_err(|_| FlowError::Unanswered)??)?;
            Ok((session, stream))
        };
        let (carried, result) = match accepted.await {
            Ok((session, stream)) => {
                // Whoever does not hear it has no socket either.
                let _ = told.send(Ok(()));
                match socket.await {
                    Ok(socket) => self.relay(socket, session, stream, true).await,
                    Err(error) => (Carried::default(), Err(FlowError::Local(error))),
                }
            }
            Err(error) => {
                let _ = told.send(Err(FlowError::refusal(&error)));
                (Carried::default(), Err(error))
            }
        };
        self.over(&target, carried, &result);
    }

    async fn carry_numbered(&self, socket: impl Socket, target: Target, host: u32) {
        let Some((_place, _open)) = self.begin(&target) else {
            return;
        };
        let (carried, result) = match self.open(&target, host).await {
            Ok((session, stream)) => self.relay(socket, session, stream, false).await,
            Err(error) => (Carried::default(), Err(error)),
        };
        self.over(&target, carried, &result);
    }

    /// A place for a flow to `target`, if there is one.
    fn begin(&self, target: &Target) -> Option<(SemaphorePermit<'_>, OpenFlow)> {
        let Ok(place) = self.flows.try_acquire() else {
            tracing::warn!(%target, "flow reset: {MAX_FLOWS} flows are open already");
            self.tally.failed("too_many_flows");
            return None;
        };
        Some((place, self.tally.open()))
    }

    /// Carries both directions; the gateway has `answered` that the origin accepts, or will.
    async fn relay(
        &self,
        socket: impl Socket,
        session: Session,
        stream: RequestStream,
        answered: bool,
    ) -> (Carried, Result<(), FlowError>) {
        let stopped = session.flows().stops.stopped(stream.id());
        let stream_number = stream.id().into_inner();
        let (up, down) = stream.split();
        let opened = async |down: &mut DownStream| {
            if answered {
                return Ok(());
            }
            let answer = tokio::time::timeout(ANSWER_WAIT, down.recv_response());
            let answer = answer.await.map_err(|_| FlowError::Unanswered)??;
            Refusal::read(&answer).map_err(FlowError::Refused)
        };
        let held = Held {
            windows: session.flows().windows.clone(),
            stream: stream_number,
        };
        tcp::carry(socket, up, down, opened, stopped, &self.stalled, &held).await
    }

    /// Counts a flow that is over, and logs how it ended.
    fn over(&self, target: &Target, carried: Carried, result: &Result<(), FlowError>) {
        self.tally.over(carried, result);
        let Carried { up, down } = carried;
        match result {
            Ok(()) => tracing::debug!(%target, up, down, "flow ended"),
            // An application that goes away is no failure of the tunnel's.
            Err(error @ (FlowError::Local(_) | FlowError::Stopped)) => {
                tracing::debug!(%target, up, down, "flow reset: {error}");
            }
            Err(error) => tracing::info!(%target, up, down, "flow reset: {error}"),
        }
    }

    async fn open(
        &self,
        target: &Target,
        host: u32,
    ) -> Result<(Session, RequestStream), FlowError> {
        let session = self.open_session().await?;
        let stream = session.connect(target, host).await?;
        let id = stream.id().into_inner();
        session.flows().scheduler.set_host(id, host.into());
        Ok((session, stream))
    }

    /// The session, as soon as there is one; flows wait for it, but not for long.
    pub(super) async fn open_session(&self) -> Result<Session, FlowError> {
        let mut current = self.session.clone();
        let wait = current.wait_for(|session| session.as_ref().is_some_and(|s| !s.is_closed()));
        match tokio::time::timeout(SESSION_WAIT, wait).await {
            Ok(Ok(session)) => session.clone().ok_or(FlowError::NoSession),
            _ => Err(FlowError::NoSession),
        }
    }
}

//! The flows of a terminal: applications' connections, each carried to the gateway.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h3::error::StreamError;
use http::Response;
use tokio::sync::{oneshot, watch};
use tracing::field;

use super::connector::Connector;
use super::gateways::{GatewayState, Gateways};
use super::hosts::{Hosts, OfHost};
use super::names::Names;
use super::places::{NoPlace, Place, Places};
use super::quic_choice::{Kind, QuicChoice};
use super::server_name::Hello;
use super::session::{DownStream, Session};
use crate::flow::ahead::Ahead;
use crate::flow::by_name::ByName;
use crate::flow::stalled::{Held, StalledFlows};
use crate::flow::tally::{OpenFlow, Tally};
use crate::flow::transfer_time::Meter;
use crate::flow::watched::Watched;
use crate::flow::{Carried, FlowError, tcp};
use crate::session::BidiStream;
use crate::sockets::{Resolve, Socket};
use crate::target::{HTTPS, Host, Target};
use crate::wire::proxy_status::Refusal;

/// How long a flow waits for a session before it is reset. Browsers give up on a
/// connection after some 20 s; a GEO session opens in two.
const SESSION_WAIT: Duration = Duration::from_secs(10);

/// How long a gateway that is heard has to say whether the origin accepts: the ten seconds that it
/// gives the origin, a satellite there and back, and what many requests that begin together wait for
/// each other on a slow link.
const ANSWER_WAIT: Duration = Duration::from_secs(60);

/// The ports of UDP whose first datagrams may go out in early data unless somebody says otherwise: that of QUIC, whose
/// handshake does nothing when it comes twice, and whose own early data is by its own rules what may (RFC 9001,
/// section 9.2). Of others it is not known.
pub const EARLY_UDP_PORTS: [u16; 1] = [HTTPS];

type RequestStream = h3::client::RequestStream<BidiStream, Bytes>;

/// A request is given up when nothing was heard of the gateway for so long.
const SILENCE_WAIT: Duration = Duration::from_secs(8);

/// A running terminal. Clones are the same terminal.
#[derive(Clone)]
pub struct Terminal {
    session: watch::Receiver<Option<Session>>,
    /// One whose handshake is under way, for what may be sent twice.
    early: watch::Receiver<Option<Session>>,
    gateways: watch::Receiver<Vec<GatewayState>>,
    pub(super) hosts: Hosts,
    pub(super) places: Places,
    stalled: StalledFlows,
    pub(super) early_udp_ports: Arc<[u16]>,
    pub(super) tally: Tally,
    names: Names,
    by_name: ByName,
    quic: QuicChoice,
}

impl Terminal {
    /// A terminal, and the task that keeps its session: run it for as long as the
    /// terminal is to work.
    pub fn new<R: Resolve>(connector: Connector<R>) -> (Self, impl Future<Output = Infallible>) {
        Self::with_gateways(vec![connector])
    }

    /// The same with several gateways, of which it uses the nearest that answers.
    pub fn with_gateways<R: Resolve>(
        mut connectors: Vec<Connector<R>>,
    ) -> (Self, impl Future<Output = Infallible>) {
        let tally = Tally::default();
        let early = Arc::<watch::Sender<_>>::default();
        for connector in &mut connectors {
            connector.kept.drops = tally.drops().clone();
            connector.kept.early = early.clone();
        }
        let (current, session) = watch::channel(None);
        let (keeper, gateways) = Gateways::new(connectors, current);
        let stalled = StalledFlows::default();
        let terminal = Self {
            session,
            early: early.subscribe(),
            gateways,
            hosts: Hosts::default(),
            places: Places::new(),
            stalled,
            early_udp_ports: EARLY_UDP_PORTS.into(),
            tally,
            names: Names::default(),
            by_name: ByName::default(),
            quic: QuicChoice::default(),
        };
        (terminal, async move { keeper.keep().await })
    }

    /// The ports whose first datagrams may go out in early data, in place of [`EARLY_UDP_PORTS`].
    pub fn set_early_udp_ports(&mut self, ports: &[u16]) {
        self.early_udp_ports = ports.into();
    }

    /// No more than `most` flows are open from now on, each of which is a socket, nor more than a
    /// session has; of datagrams three quarters of that.
    pub fn limit_flows(&self, most: usize) {
        self.places.limit(most);
    }

    /// The current session, also when it changes.
    pub fn session(&self) -> watch::Receiver<Option<Session>> {
        self.session.clone()
    }

    /// How its gateways stand, in the order in which they were given.
    pub fn gateways(&self) -> Vec<GatewayState> {
        self.gateways.borrow().clone()
    }

    /// The counts of its flows.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Carries one application's connection to `target`; returns when it has ended.
    pub async fn carry(&self, socket: impl Socket, target: Target) {
        self.carry_of(socket, target, None).await;
    }

    /// The same for the host `client`: hosts have equal shares, whatever their number of flows.
    /// Says why the gateway has refused it, if it has.
    pub async fn carry_for(
        &self,
        client: IpAddr,
        socket: impl Socket,
        target: Target,
    ) -> Option<Refusal> {
        let host = self.hosts.enter(client);
        let socket = Watched::new(socket, self.meter(Kind::Tcp, client, &target));
        let ((carried, refusal), name) = match self.name(client, &target) {
            Some(name) => {
                let over = self.carry_of(socket, target, Some(&host)).await;
                (over, Some(name))
            }
            None => {
                let (hello, name) = Hello::new();
                let socket = Watched::new(socket, hello);
                let over = self.carry_of(socket, target, Some(&host)).await;
                (over, name.get().map(|name| name.as_str().into()))
            }
        };
        if let Some(name) = name {
            self.by_name.over(&name, carried);
        }
        refusal
    }

    /// What the server of `target` is called, as far as `client` has said or asked.
    fn name(&self, client: IpAddr, target: &Target) -> Option<Arc<str>> {
        match &target.host {
            Host::Name(name) => Some(name.to_ascii_lowercase().into()),
            Host::Address(address) => self.names.of(client.to_canonical(), *address),
        }
    }

    /// `target` by name, where `client` has asked for that name before.
    #[must_use]
    pub fn named(&self, client: IpAddr, target: Target) -> Target {
        let host = self
            .name(client, &target)
            .and_then(|name| Host::name(&name));
        let host = host.unwrap_or(target.host);
        Target { host, ..target }
    }

    /// Whether applications' own QUIC is tunnelled.
    pub fn quic_choice(&self) -> &QuicChoice {
        &self.quic
    }

    /// What measures a flow of `client`'s to an HTTPS server, if its kind is chosen by that.
    pub(super) fn meter(&self, kind: Kind, client: IpAddr, target: &Target) -> Option<Meter> {
        let name = || {
            let name = self.name(client, target);
            name.unwrap_or_else(|| target.to_string().into())
        };
        (target.port == HTTPS).then(|| self.quic.meter(kind, name))?
    }

    /// What addresses are called, for who learns it.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// The counts of flows by their servers' names.
    pub fn by_name(&self) -> &ByName {
        &self.by_name
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
        let Some((mut place, _open)) = self.begin(&target, Some(&host)) else {
            return;
        };
        let accepted = async {
            let (session, mut stream, _) = self
                .open(&target, host.number(), None::<&mut Ahead<S>>)
                .await?;
            let answer = answered(&session, stream.recv_response()).await?;
            Refusal::read(&answer)?;
            Ok((session, stream))
        };
        let accepted = place.keeps(accepted).await;
        let (carried, result) = match accepted {
            Ok((session, stream)) => {
                // Whoever does not hear it has no socket either.
                let _ = told.send(Ok(()));
                match socket.await {
                    Ok(socket) => self.relay(socket, session, stream, place, true).await,
                    Err(error) => (Carried::default(), Err(FlowError::Local(error))),
                }
            }
            Err(error) => {
                let _ = told.send(Err(FlowError::refusal(&error)));
                (Carried::default(), Err(error))
            }
        };
        self.over(&target, carried, &result);
        if let Some(name) = self.name(client, &target) {
            self.by_name.over(&name, carried);
        }
    }

    async fn carry_of(
        &self,
        socket: impl Socket,
        target: Target,
        host: Option<&OfHost>,
    ) -> (Carried, Option<Refusal>) {
        let Some((mut place, _open)) = self.begin(&target, host) else {
            return (Carried::default(), None);
        };
        let mut socket = Ahead::new(socket);
        let opening = self.open(&target, OfHost::number_of(host), Some(&mut socket));
        let (carried, result) = match place.keeps(opening).await {
            Ok((session, stream, said)) => {
                socket.skip(said);
                let (carried, result) = self.relay(socket, session, stream, place, false).await;
                let up = carried.up + said as u64;
                (Carried { up, ..carried }, result)
            }
            Err(error) => (Carried::default(), Err(error)),
        };
        self.over(&target, carried, &result);
        match result {
            Err(FlowError::Refused(refusal)) => (carried, Some(refusal)),
            _ => (carried, None),
        }
    }

    /// A place for a flow of `host` to `target`, if there is one.
    fn begin(&self, target: &Target, host: Option<&OfHost>) -> Option<(Place, OpenFlow)> {
        match self.places.take(OfHost::number_of(host)) {
            Ok(place) => Some((place, self.tally.open())),
            Err(NoPlace { of_host, of_all }) => {
                let host = host.map(|host| field::display(host.address()));
                tracing::warn!(%target, host, "flow reset: of this host {of_host} are open already, of all {of_all}");
                self.tally.failed("too_many_flows");
                None
            }
        }
    }

    /// Carries both directions; the gateway has `answered` that the origin accepts, or will.
    async fn relay(
        &self,
        socket: impl Socket,
        session: Session,
        stream: RequestStream,
        mut place: Place,
        answered: bool,
    ) -> (Carried, Result<(), FlowError>) {
        let stopped = session.flows().stops.stopped(stream.id());
        let stream_number = stream.id().into_inner();
        let (up, down) = stream.split();
        let opened = async |down: &mut DownStream| {
            if answered {
                return Ok(());
            }
            let answer = self::answered(&session, down.recv_response()).await?;
            Refusal::read(&answer).map_err(FlowError::Refused)
        };
        let held = Held {
            windows: session.flows().windows.clone(),
            stream: stream_number,
        };
        let ended = (stopped, place.lost());
        tcp::carry(socket, up, down, opened, ended, &self.stalled, &held).await
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

    /// Asks for a connection to `target`, also while a handshake is under way. Of what `socket` says a
    /// TLS ClientHello goes out with that, and nothing else; how many bytes of it have.
    async fn open<S: Socket>(
        &self,
        target: &Target,
        host: u32,
        mut socket: Option<&mut Ahead<S>>,
    ) -> Result<(Session, RequestStream, usize), FlowError> {
        let mut session = self.first_session().await?;
        loop {
            let opened = async {
                let mut stream = session.connect(target, host).await?;
                let id = stream.id().into_inner();
                session.flows().scheduler.set_host(id, host.into());
                let said = match &mut socket {
                    Some(socket) => say_hello(&session, &mut stream, socket).await?,
                    None => 0,
                };
                Ok((stream, said))
            };
            if let Some(opened) = self.unless_in_vain(&session, opened).await {
                return opened.map(|(stream, said)| (session, stream, said));
            }
            session = self.open_session().await?;
        }
    }

    /// Asks a question of DNS, also while a handshake is under way: an answer changes nothing,
    /// however often it is given.
    pub(super) async fn ask(&self, question: &[u8]) -> Result<Vec<u8>, FlowError> {
        let mut session = self.first_session().await?;
        loop {
            let asked = session.ask(question.to_vec());
            if let Some(answer) = self.unless_in_vain(&session, asked).await {
                return answer;
            }
            session = self.open_session().await?;
        }
    }

    /// The session, or one whose handshake is under way: what goes out with its first packets has to be
    /// done again where the gateway does not take it ([`Self::unless_in_vain`]).
    pub(super) async fn first_session(&self) -> Result<Session, FlowError> {
        let mut early = self.early.clone();
        let early = early.wait_for(|early| early.as_ref().is_some_and(|early| !early.is_closed()));
        tokio::select! {
            biased;
            session = self.open_session() => session,
            Ok(early) = early => early.clone().ok_or(FlowError::NoSession),
        }
    }

    /// What `done` in `session` comes to; nothing if its handshake does not end well, or another
    /// session is open before.
    pub(super) async fn unless_in_vain<T>(
        &self,
        session: &Session,
        done: impl Future<Output = T>,
    ) -> Option<T> {
        let done = std::pin::pin!(async {
            let done = done.await;
            // Boxed, because flows of datagrams wait long for what is done.
            Box::pin(session.established()).await.then_some(done)
        });
        if !session.is_early() {
            return done.await;
        }
        let overtaken = Box::pin(async {
            tokio::select! {
                biased;
                _ = session.established() => std::future::pending().await,
                () = self.other_than(session) => {}
            }
        });
        tokio::select! {
            biased;
            done = done => done,
            () = overtaken => None,
        }
    }

    /// Resolves when there is an open session that is not `early`.
    async fn other_than(&self, early: &Session) {
        let mut current = self.session.clone();
        let other = |session: &Option<Session>| {
            (session.as_ref()).is_some_and(|s| !s.is_closed() && !s.is(early))
        };
        if current.wait_for(other).await.is_err() {
            std::future::pending().await
        }
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

/// Sends the TLS ClientHello that `socket` begins with, unless the handshake of `session` has ended
/// before that is there; how many bytes it has. They stay in the socket.
async fn say_hello(
    session: &Session,
    stream: &mut RequestStream,
    socket: &mut Ahead<impl Socket>,
) -> Result<usize, FlowError> {
    let hello = tokio::select! {
        biased;
        _ = session.established() => None,
        hello = socket.client_hello() => hello,
    };
    let Some(hello) = hello else {
        return Ok(0);
    };
    let length = hello.len();
    stream.send_data(hello).await?;
    Ok(length)
}

/// The gateway's `answer` to a request, as long as it may take and the gateway is heard.
pub(super) async fn answered(
    session: &Session,
    answer: impl Future<Output = Result<Response<()>, StreamError>>,
) -> Result<Response<()>, FlowError> {
    Ok(within_patience(session, answer).await??)
}

/// What the gateway has to say first, as long as it may take and the gateway is heard.
pub(super) async fn within_patience<T>(
    session: &Session,
    word: impl Future<Output = T>,
) -> Result<T, FlowError> {
    let word = tokio::time::timeout(ANSWER_WAIT, word);
    tokio::select! {
        word = word => word.map_err(|_| FlowError::Unanswered),
        () = session.silent_for(SILENCE_WAIT) => Err(FlowError::Unanswered),
    }
}

//! A terminal's session with its gateway.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bentpipe_quic::drops::Drops;
use bentpipe_quic::h3::{Connection, Flows, Opener, RecvStream};
use bentpipe_quic::windows::Pool;
use bytes::{Buf as _, Bytes};
use h3::error::{Code, StreamError};
use http::HeaderValue;
use tokio::sync::watch;

use crate::flow::FlowError;
use crate::identity::Fingerprint;
use crate::paths::PathLease;
use crate::session::{BidiStream, REPLACED, close, describe, path_summary, remote_address};
use crate::target::Target;
use crate::wire::contexts::Agreed;
use crate::wire::notices::{Ask, Notices};
use crate::wire::proxy_status::{ErrorKind, Refusal};
use crate::wire::{
    MAX_FIELD_SECTION, bearer, connect, connect_ip, connect_udp, dns, enrol, notices,
};

/// An open session. Clones are the same session.
#[derive(Clone)]
pub struct Session {
    connection: noq::Connection,
    requests: h3::client::SendRequest<Opener, Bytes>,
    flows: Flows,
    /// Once the handshake has told the round trip.
    lease: Arc<OnceLock<PathLease>>,
    /// Whether the handshake has ended well, once it has ended.
    established: Arc<watch::Sender<Option<bool>>>,
    /// It waits for an answer of the gateway, in vain so far.
    silent: Arc<watch::Sender<bool>>,
    forgotten: Arc<AtomicBool>,
    /// A question for notices is open, which is a stream and no flow.
    noticing: Arc<AtomicBool>,
    /// What the contexts of datagrams mean, once the gateway has said so for a flow.
    agreed: Arc<OnceLock<Agreed>>,
    /// This terminal's key in it.
    identity: Fingerprint,
    /// The gateway as it was asked for, the authority of requests.
    gateway: Arc<Target>,
    /// What each request shows, where the gateway wants that.
    token: Option<HeaderValue>,
    /// The gateway's settings have come, in this session or an earlier one.
    settings: Arc<AtomicBool>,
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").finish_non_exhaustive()
    }
}

/// A request's receiving half.
pub type DownStream = h3::client::RequestStream<RecvStream, Bytes>;

impl Session {
    /// HTTP/3 on `connection`, in which this terminal has shown the key `identity`; the error says
    /// why not.
    pub(super) async fn new(
        connection: noq::Connection,
        lent: (&Pool, u64),
        drops: Drops,
        gateway: Target,
        identity: Fingerprint,
        token: Option<HeaderValue>,
        settings: Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let (wire, flows) = Connection::new(connection.clone(), lent, drops);
        let (mut driver, requests) = h3::client::builder()
            .max_field_section_size(MAX_FIELD_SECTION)
            .send_grease(false)
            .enable_datagram(true)
            .build::<_, _, Bytes>(wire)
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(async move {
            // Ends with the connection; why is asked of the connection itself.
            std::future::poll_fn(|context| driver.poll_close(context)).await;
        });
        Ok(Self {
            connection,
            requests,
            flows,
            lease: Arc::default(),
            established: Arc::new(watch::Sender::new(None)),
            silent: Arc::new(watch::Sender::new(false)),
            forgotten: Arc::default(),
            noticing: Arc::default(),
            agreed: Arc::default(),
            identity,
            gateway: Arc::new(gateway),
            token,
            settings,
        })
    }

    /// Says something long that means nothing. A gateway that hears the terminal from an address which it has not
    /// checked sends there no more than three times what it has heard (RFC 9000, section 8.1): were its check lost, the
    /// small packets of an idle terminal would not let it check again.
    pub(super) fn speak_up(&self) {
        self.flows.windows.repeat();
    }

    /// The handshake has ended well, and the way to the gateway is known by `lease`.
    pub(super) fn establish(&self, lease: PathLease) {
        // Nobody else sets it.
        let _ = self.lease.set(lease);
        self.established.send_replace(Some(true));
    }

    /// The handshake has failed, or the gateway takes no early data: nothing that was sent counts.
    pub(super) fn give_up(&self) {
        self.established.send_replace(Some(false));
        self.close();
    }

    /// Whether the handshake is under way.
    pub(super) fn is_early(&self) -> bool {
        self.established.borrow().is_none()
    }

    /// Waits for the end of the handshake; whether it ended well. Until then all that is sent is
    /// early data.
    pub(super) async fn established(&self) -> bool {
        let mut established = self.established.subscribe();
        let ended = established.wait_for(Option::is_some).await;
        ended.is_ok_and(|ended| *ended == Some(true))
    }

    /// Waits until the gateway has accepted our key.
    pub async fn confirmed(&self) -> Result<(), String> {
        self.connection
            .handshake_confirmed()
            .await
            .map_err(|error| describe(&error))
    }

    /// Waits until the gateway has taken the session: it has accepted our key and has room.
    /// The error says why not.
    pub async fn accepted(&self) -> Result<(), String> {
        match self.flows.accepted().await {
            true => {
                self.settings.store(true, Ordering::Relaxed);
                Ok(())
            }
            false => Err(self.closed().await),
        }
    }

    /// Waits until the gateway's settings are known, which come before a request for datagrams (RFC 9220, section 3).
    /// In early data those of an earlier session hold, and the gateway stands by them (RFC 9297, section 2.1.1).
    pub(super) async fn settings(&self) -> Result<(), String> {
        match self.is_early() && self.settings.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.accepted().await,
        }
    }

    /// Waits until the session is lost, and says why.
    pub async fn closed(&self) -> String {
        describe(&self.connection.closed().await)
    }

    /// Whether it gave way to a newer session with the same key.
    pub fn was_replaced(&self) -> bool {
        matches!(
            self.connection.close_reason(),
            Some(noq::ConnectionError::ApplicationClosed(close))
                if close.error_code == noq::VarInt::from_u32(REPLACED)
        )
    }

    /// Ends the session because the gateway has forgotten it.
    pub(super) fn forget(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
        self.close();
    }

    /// Whether it was ended because the gateway has forgotten it.
    pub(super) fn was_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Whom it is with.
    pub fn gateway(&self) -> &Target {
        &self.gateway
    }

    /// Whether flows are open in it.
    pub(super) fn has_flows(&self) -> bool {
        let noticing = usize::from(self.noticing.load(Ordering::Relaxed));
        self.flows.windows.open() > noticing
    }

    /// Whether both are the same session.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.connection.stable_id() == other.connection.stable_id()
    }

    /// The QUIC connection, for status and figures.
    pub fn connection(&self) -> &noq::Connection {
        &self.connection
    }

    /// Whether the session is lost.
    pub fn is_closed(&self) -> bool {
        self.connection.close_reason().is_some()
    }

    /// Opens a flow of the host with number `host` to `target` and returns at once, without the gateway's answer.
    pub async fn connect(
        &self,
        target: &Target,
        host: u32,
    ) -> Result<h3::client::RequestStream<BidiStream, Bytes>, StreamError> {
        self.send(connect::request(target, host)).await
    }

    /// Opens a flow of UDP datagrams of the host with number `host` to `target` and returns
    /// at once, without the gateway's answer.
    pub async fn connect_udp(
        &self,
        target: &Target,
        host: u32,
    ) -> Result<h3::client::RequestStream<BidiStream, Bytes>, StreamError> {
        self.send(connect_udp::request(&self.gateway, target, host))
            .await
    }

    /// Asks for IP packets to and from anywhere, and returns at once, without the gateway's
    /// answer.
    pub async fn connect_ip(
        &self,
    ) -> Result<h3::client::RequestStream<BidiStream, Bytes>, StreamError> {
        self.send(connect_ip::request(&self.gateway, 0)).await
    }

    async fn send(
        &self,
        mut request: http::Request<()>,
    ) -> Result<h3::client::RequestStream<BidiStream, Bytes>, StreamError> {
        if let Some(token) = &self.token {
            bearer::show(&mut request, token);
        }
        self.requests.clone().send_request(request).await
    }

    /// Asks the gateway to enrol `terminal`, and waits for its answer.
    pub async fn enrol(&self, gateway: &Target, terminal: &Fingerprint) -> Result<(), String> {
        self.request(enrol::request(gateway, terminal)).await?;
        Ok(())
    }

    /// Asks the gateway to know this terminal by its new key `terminal`, and waits for its answer.
    pub async fn renew(&self, terminal: &Fingerprint) -> Result<(), String> {
        self.request(enrol::renewal(&self.gateway, terminal))
            .await?;
        Ok(())
    }

    /// Asks the gateway for notices, and waits until it has some.
    pub async fn notices(&self, ask: &Ask) -> Result<Notices, String> {
        self.noticing.store(true, Ordering::Relaxed);
        let answer = self.request(notices::request(&self.gateway, ask)).await;
        self.noticing.store(false, Ordering::Relaxed);
        Notices::read(&answer?).ok_or_else(|| "the answer has no notices".into())
    }

    /// The key that this terminal has shown.
    pub fn identity(&self) -> Fingerprint {
        self.identity
    }

    /// Sends a request without a body, and waits for its answer. The error says why it was refused.
    async fn request(&self, request: http::Request<()>) -> Result<http::Response<()>, String> {
        let ask = async {
            let mut stream = self.send(request).await?;
            stream.finish().await?;
            stream.recv_response().await
        };
        // The connection knows better why it broke.
        let broken = |error: StreamError| {
            let reason = self.connection.close_reason();
            reason.map_or(error.to_string(), |reason| describe(&reason))
        };
        let response = ask.await.map_err(broken)?;
        Refusal::read(&response).map_err(|refusal| refusal.to_string())?;
        Ok(response)
    }

    /// Asks the gateway a question of DNS, and waits for the answer: messages of RFC 1035.
    pub(super) async fn ask(&self, question: Vec<u8>) -> Result<Vec<u8>, FlowError> {
        let authority = remote_address(&self.connection)
            .map_or_else(|| "bentpipe.invalid".into(), |address| address.to_string());
        let mut stream = self.send(dns::request(&authority, question.len())).await?;
        stream.send_data(question.into()).await?;
        stream.finish().await?;
        Refusal::read(&stream.recv_response().await?)?;
        let mut answer = Vec::new();
        while let Some(mut data) = stream.recv_data().await? {
            if answer.len() + data.remaining() > dns::MAX_MESSAGE {
                stream.stop_sending(Code::H3_EXCESSIVE_LOAD);
                return Err(FlowError::Refused(Refusal {
                    kind: ErrorKind::Other,
                    detail: "the answer is too long".into(),
                }));
            }
            answer.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        Ok(answer)
    }

    /// Ends the session, telling the gateway.
    pub fn close(&self) {
        close(&self.connection, Code::H3_NO_ERROR, "done");
    }

    /// What the session's flows share: windows, scheduler, the gateway's refusals to read on.
    pub(super) fn flows(&self) -> &Flows {
        &self.flows
    }

    /// What the contexts of datagrams mean in this session, for all flows.
    pub(super) fn agreed(&self) -> &OnceLock<Agreed> {
        &self.agreed
    }

    /// Figures of the session's QUIC connection.
    pub fn stats(&self) -> noq::ConnectionStats {
        self.connection.stats()
    }

    /// Whether it waits for an answer of the gateway, in vain so far.
    pub fn is_silent(&self) -> bool {
        *self.silent.borrow()
    }

    /// Resolves when nothing has been heard of the gateway for `time` from now on, though it
    /// was asked; or when the session is lost.
    pub(super) async fn silent_for(&self, time: Duration) {
        let mut silent = self.silent.subscribe();
        loop {
            // The sender is ours: it is there.
            let _ = silent.wait_for(|silent| *silent).await;
            let heard = silent.wait_for(|silent| !*silent);
            if tokio::time::timeout(time, heard).await.is_err() {
                return;
            }
        }
    }

    /// Says whether the gateway is silent; whether that is new.
    pub(super) fn set_silent(&self, is: bool) -> bool {
        self.silent
            .send_if_modified(|silent| std::mem::replace(silent, is) != is)
    }

    /// Frames that were heard of the gateway, which an open session always has to answer with.
    pub(super) fn frames_heard(&self) -> u64 {
        let heard = self.stats().frame_rx;
        heard.acks + heard.stream + heard.datagram + heard.ping + heard.max_data
    }

    /// Frames that were sent and have to be acknowledged. Packets that look for a larger
    /// path MTU do not count: they may well be lost. Each is a PING, and an IMMEDIATE_ACK where
    /// the gateway knows that; a probe of a silent path may be the latter alone.
    pub(super) fn frames_asking(&self) -> u64 {
        let sent = self.stats().frame_tx;
        let mtu = self.connection.path_stats(noq::PathId::ZERO);
        let mtu = mtu.map_or(0, |path| path.sent_plpmtud_probes);
        let flows = sent.stream + sent.reset_stream + sent.stop_sending + sent.max_stream_data;
        let session = sent.datagram + sent.max_data;
        let probes = sent.ping.saturating_sub(mtu) + sent.immediate_ack.saturating_sub(mtu);
        flows + session + probes
    }

    /// The smoothed round trip.
    pub fn rtt(&self) -> Duration {
        self.connection.rtt(noq::PathId::ZERO).unwrap_or_default()
    }

    /// What is known of the path by now, for the log.
    pub(super) fn known_path(&self) -> String {
        let lease = self.lease.get();
        lease.map_or_else(|| "nothing".into(), PathLease::describe)
    }

    /// The state of the path, for the log.
    pub(super) fn path_summary(&self) -> String {
        path_summary(&self.connection)
    }
}

//! A terminal's session with its gateway.

use std::sync::Arc;

use bentpipe_quic::h3::{Connection, Flows, Opener, RecvStream};
use bytes::{Buf as _, Bytes};
use h3::error::{Code, StreamError};

use crate::flow::FlowError;
use crate::identity::Fingerprint;
use crate::paths::PathLease;
use crate::session::{BidiStream, REPLACED, close, describe, path_summary, remote_address};
use crate::target::Target;
use crate::transport::Transport;
use crate::wire::proxy_status::{ErrorKind, Refusal};
use crate::wire::{MAX_FIELD_SECTION, connect, connect_udp, dns, enrol};

/// An open session. Clones are the same session.
#[derive(Clone)]
pub struct Session {
    connection: noq::Connection,
    requests: h3::client::SendRequest<Opener, Bytes>,
    flows: Flows,
    lease: Arc<PathLease>,
    /// The gateway as it was asked for, the authority of requests.
    gateway: Arc<Target>,
}

/// A request's receiving half.
pub type DownStream = h3::client::RequestStream<RecvStream, Bytes>;

impl Session {
    /// HTTP/3 on `connection`; the error says why not.
    pub(super) async fn new(
        connection: noq::Connection,
        transport: &Transport,
        lease: PathLease,
        gateway: Target,
    ) -> Result<Self, String> {
        let wire = Connection::new(
            connection.clone(),
            &transport.pool(),
            transport.flow_window(),
        );
        let flows = wire.flows();
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
            lease: Arc::new(lease),
            gateway: Arc::new(gateway),
        })
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
            true => Ok(()),
            false => Err(self.closed().await),
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
        self.requests
            .clone()
            .send_request(connect::request(target, host))
            .await
    }

    /// Opens a flow of UDP datagrams of the host with number `host` to `target` and returns
    /// at once, without the gateway's answer.
    pub async fn connect_udp(
        &self,
        target: &Target,
        host: u32,
    ) -> Result<h3::client::RequestStream<BidiStream, Bytes>, StreamError> {
        self.requests
            .clone()
            .send_request(connect_udp::request(&self.gateway, target, host))
            .await
    }

    /// Asks the gateway to enrol `terminal`, and waits for its answer.
    pub async fn enrol(&self, gateway: &Target, terminal: &Fingerprint) -> Result<(), String> {
        let ask = async {
            let mut requests = self.requests.clone();
            let mut stream = requests
                .send_request(enrol::request(gateway, terminal))
                .await?;
            stream.finish().await?;
            stream.recv_response().await
        };
        let response = match ask.await {
            Ok(response) => response,
            // The connection knows better why it broke.
            Err(error) => {
                return Err(self
                    .connection
                    .close_reason()
                    .map_or(error.to_string(), |e| describe(&e)));
            }
        };
        Refusal::read(&response).map_err(|refusal| refusal.to_string())
    }

    /// Asks the gateway a question of DNS, and waits for the answer: messages of RFC 1035.
    pub(super) async fn ask(&self, question: Vec<u8>) -> Result<Vec<u8>, FlowError> {
        let authority = remote_address(&self.connection)
            .map_or_else(|| "bentpipe.invalid".into(), |address| address.to_string());
        let mut requests = self.requests.clone();
        let mut stream = requests
            .send_request(dns::request(&authority, question.len()))
            .await?;
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

    /// Figures of the session's QUIC connection.
    pub fn stats(&self) -> noq::ConnectionStats {
        self.connection.stats()
    }

    /// What is known of the path by now, for the log.
    pub(super) fn known_path(&self) -> String {
        self.lease.describe()
    }

    /// The state of the path, for the log.
    pub(super) fn path_summary(&self) -> String {
        path_summary(&self.connection)
    }
}

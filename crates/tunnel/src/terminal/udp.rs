//! Flows of UDP datagrams at the terminal: one request for each pair of peers (RFC 9298).

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::flows::{Terminal, answered, within_patience};
use super::quic_choice::Kind;
use super::session::{DownStream, Session};
use crate::flow::FlowError;
use crate::flow::stream::{Down as _, Up as _};
use crate::flow::udp::{self, Activity, IdleLimits, Way};
use crate::sockets::DatagramSocket;
use crate::target::Target;
use crate::wire::contexts::{self, Contexts};
use crate::wire::proxy_status::{ErrorKind, Refusal};

/// RFC 4787, section 4.3: a mapping lives for at least two minutes, better for five. The
/// length of a flow's idleness is found at most once later than this.
const IDLE: IdleLimits = IdleLimits {
    answered: Duration::from_secs(300),
    unanswered: Duration::from_secs(120),
};

/// What an application's machine would have been told by ICMP, had there been no tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreachable {
    /// Nobody listens at the port.
    Port,
    /// There is no way to the host.
    Host,
    /// The gateway's policy forbids it.
    Prohibited,
}

impl Terminal {
    /// Carries the datagrams that `socket` exchanges with the application's host `client`
    /// to and from `target`; returns when the flow is over.
    ///
    /// The value is what the application is to be told, if anything.
    pub async fn carry_udp_for(
        &self,
        client: IpAddr,
        socket: &impl DatagramSocket,
        target: Target,
    ) -> Option<Unreachable> {
        let host = self.hosts.enter(client);
        let meter = self.meter(Kind::Quic, client, &target);
        let activity = Arc::new(Activity::measured(meter));
        let mut place = self.places.take_udp(host.number(), activity.clone());
        let _open = self.tally.open_udp();
        let result = tokio::select! {
            biased;
            result = self.carry_udp(socket, &target, host.number(), &activity) => result,
            () = place.lost() => Err(FlowError::Evicted),
        };
        self.tally.over(activity.carried(), &result);
        match result {
            Ok(()) => {
                tracing::debug!(%target, "UDP flow ended");
                None
            }
            Err(error) => {
                tracing::debug!(%target, "UDP flow ended: {error}");
                match error {
                    FlowError::Refused(refusal) => unreachable(&refusal),
                    FlowError::NoSession | FlowError::Unanswered => Some(Unreachable::Host),
                    _ => None,
                }
            }
        }
    }

    async fn carry_udp(
        &self,
        socket: &impl DatagramSocket,
        target: &Target,
        host: u32,
        activity: &Activity,
    ) -> Result<(), FlowError> {
        // Boxed are those that are over soon, for a flow lasts, and what passes through others, which would have
        // room for it as well.
        let mut session = match self.early_udp_ports.contains(&target.port) {
            true => Box::pin(self.first_session()).await?,
            false => Box::pin(self.open_session()).await?,
        };
        loop {
            let carried = Box::pin(self.carry_udp_in(&session, socket, target, host, activity));
            if let Some(result) = self.unless_in_vain(&session, carried).await {
                return result;
            }
            // What was sent is lost, as datagrams may be.
            session = Box::pin(self.open_session()).await?;
        }
    }

    async fn carry_udp_in(
        &self,
        session: &Session,
        socket: &impl DatagramSocket,
        target: &Target,
        host: u32,
        activity: &Activity,
    ) -> Result<(), FlowError> {
        let known = within_patience(session, session.settings()).await?;
        known.map_err(|_| FlowError::NoSession)?;
        let (id, (mut up, mut down)) = {
            let stream = Box::pin(session.connect_udp(target, host)).await?;
            (stream.id(), stream.split())
        };
        session
            .flows()
            .scheduler
            .set_host(id.into_inner(), host.into());
        let datagrams = session
            .flows()
            .datagrams
            .open(id, host.into(), contexts::mark_congested);
        let stopped = pin!(session.flows().stops.stopped(id));
        let contexts = Contexts::of_terminal(session.agreed().get().cloned());
        let opened = async |down: &mut DownStream| {
            let mut answer = pin!(down.recv_response());
            let answer = loop {
                match answered(session, answer.as_mut()).await {
                    // Datagrams have overtaken it: the peer is there, and the link is out.
                    Err(FlowError::Unanswered) if activity.is_answered() => {}
                    answer => break answer?,
                }
            };
            Refusal::read(&answer).map_err(FlowError::Refused)?;
            if let Some(agreed) = contexts.agree(answer.headers()) {
                session.agreed().get_or_init(|| agreed.clone());
            }
            Ok(())
        };
        let halves = (&mut up, &mut down);
        let result = udp::carry(
            socket,
            Way {
                datagrams: &datagrams,
                contexts: &contexts,
                port: target.port,
            },
            halves,
            opened,
            stopped,
            IDLE,
            activity,
        )
        .await;
        match &result {
            // An error means that nobody is there to hear it.
            Ok(()) => drop(up.finish().await),
            Err(_) => up.abort(),
        }
        down.abort();
        result
    }
}

/// What ICMP says for a refusal (RFC 1122, section 3.2.2.1).
fn unreachable(refusal: &Refusal) -> Option<Unreachable> {
    match refusal.kind {
        ErrorKind::ConnectionRefused => Some(Unreachable::Port),
        ErrorKind::DestinationIpProhibited => Some(Unreachable::Prohibited),
        ErrorKind::DestinationIpUnroutable
        | ErrorKind::DestinationNotFound
        | ErrorKind::DnsError
        | ErrorKind::DnsTimeout => Some(Unreachable::Host),
        _ => None,
    }
}

//! UDP ASSOCIATE of SOCKS5 (RFC 1928, section 7): datagrams of an application that names
//! the peer of each in a header.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bentpipe_tunnel::marking::Marking;
use bentpipe_tunnel::sockets::DatagramSocket;
use bentpipe_tunnel::target::{Host, Target};
use bentpipe_tunnel::terminal::Terminal;
use fast_socks5::util::target_addr::TargetAddr;
use fast_socks5::{new_udp_header, parse_udp_request};
use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, Interest, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;

use crate::datagram::{self, Received, Sent};
use crate::udp::Datagram;

/// Datagrams that wait until their flow takes them.
const WAITING: usize = 64;
/// The longest datagram with its header, bytes: a UDP payload over IPv6.
const LONGEST: usize = 65_527;

type Flows = Arc<Mutex<BTreeMap<String, mpsc::Sender<Datagram>>>>;

/// Carries the datagrams of `relay` until `application` ends the connection by which it has
/// asked for it. Only its own machine is heard, at the port from which the first came.
pub(crate) async fn serve(
    mut application: TcpStream,
    relay: UdpSocket,
    terminal: Terminal,
) -> io::Result<()> {
    let machine = application.peer_addr()?.ip();
    datagram::want_markings(&SockRef::from(&relay), machine.is_ipv6());
    let relay = Arc::new(relay);
    let flows = Flows::default();
    let mut client: Option<SocketAddr> = None;
    let mut buffer = vec![0; LONGEST];
    let mut ignored = [0; 64];
    loop {
        let (length, from, marking) = tokio::select! {
            read = application.read(&mut ignored) => match read? {
                // Its flows end with their senders.
                0 => return Ok(()),
                _ => continue,
            },
            received = relay.async_io(Interest::READABLE, || datagram::receive(&*relay, &mut buffer)) => {
                match received {
                    Ok(Received { length, from: Some(from), marking, .. }) => (length, from, marking),
                    // An ICMP error about one of the answers.
                    _ => continue,
                }
            }
        };
        if from.ip() != machine || client.is_some_and(|client| client != from) {
            continue;
        }
        // No fragments (section 7 lets a server drop them), no header, no peer: dropped.
        let Ok((0, peer, payload)) = parse_udp_request(&buffer[..length]).await else {
            continue;
        };
        let Some(target) = target(&peer) else {
            continue;
        };
        client = Some(from);
        // Nobody could tell the application that a datagram is too long.
        let marking = Marking {
            dont_fragment: false,
            ..marking
        };
        let key = target.to_string();
        let mut open = flows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(flow) = open.get(&key)
            && !flow.is_closed()
        {
            // A full one loses what comes too fast, as any queue does.
            let _ = flow.try_send(Box::new((payload.to_vec(), marking)));
            continue;
        }
        let Ok(header) = new_udp_header(peer) else {
            continue;
        };
        let (give, receives) = mpsc::channel(WAITING);
        let _ = give.try_send(Box::new((payload.to_vec(), marking)));
        open.insert(key.clone(), give);
        drop(open);
        let socket = RelayFlow {
            relay: relay.clone(),
            client: from,
            header,
            receives: Mutex::new(receives),
        };
        let (flows, terminal) = (Arc::downgrade(&flows), terminal.clone());
        tokio::spawn(async move {
            terminal
                .carry_udp_for(machine.to_canonical(), &socket, target)
                .await;
            drop(socket);
            if let Some(flows) = flows.upgrade() {
                let mut open = flows.lock().unwrap_or_else(PoisonError::into_inner);
                if open.get(&key).is_some_and(mpsc::Sender::is_closed) {
                    open.remove(&key);
                }
            }
        });
    }
}

/// The peer that a header names.
pub(crate) fn target(peer: &TargetAddr) -> Option<Target> {
    match peer {
        TargetAddr::Ip(address) if address.port() != 0 => Some(Target::from(*address)),
        TargetAddr::Domain(name, port) if *port != 0 => {
            Host::name(name).map(|host| Target { host, port: *port })
        }
        _ => None,
    }
}

/// The datagrams of an application to and from one peer.
#[derive(Debug)]
struct RelayFlow {
    relay: Arc<UdpSocket>,
    client: SocketAddr,
    /// Stands before each answer: the peer as the application named it.
    header: Vec<u8>,
    receives: Mutex<mpsc::Receiver<Datagram>>,
}

impl DatagramSocket for RelayFlow {
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<Marking>> {
        let mut receives = self.receives.lock().unwrap_or_else(PoisonError::into_inner);
        let received = ready!(receives.poll_recv(context));
        let (datagram, marking) =
            *received.ok_or_else(|| io::Error::other("the association is over"))?;
        buffer.put_slice(&datagram);
        Poll::Ready(Ok(marking))
    }

    fn poll_send(
        &self,
        context: &mut Context<'_>,
        datagram: &[u8],
        marking: Marking,
    ) -> Poll<io::Result<()>> {
        let answer = [IoSlice::new(&self.header), IoSlice::new(datagram)];
        let how = Sent {
            ecn: marking.ecn,
            ipv6: self.client.is_ipv6(),
            segment: None,
        };
        loop {
            ready!(self.relay.poll_send_ready(context))?;
            let sent = self.relay.try_io(Interest::WRITABLE, || {
                datagram::send(&*self.relay, &answer, Some(self.client), how)
            });
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// The relay is the application's, and not connected to anybody.
    fn failure(&self) -> impl Future<Output = io::Error> + Send {
        std::future::pending()
    }
}

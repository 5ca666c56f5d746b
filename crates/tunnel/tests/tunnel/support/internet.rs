//! The internet behind the gateway: origins, UDP peers and a name server.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bentpipe_tunnel::sockets::{Dial, Resolve};
use hickory_proto::op::{Message, OpCode};
use hickory_proto::rr::{RData, Record};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::GATEWAY;
use super::datagrams::{DatagramEnd, datagram_pair};
use super::streams::{Stream, stream_pair};

/// The time that the gateway's name server takes.
pub const NAME_SERVER: Duration = Duration::from_millis(20);

/// What stands at an address that the gateway dials.
#[derive(Debug, Clone)]
pub enum Origin {
    /// Accepts; each connection comes out of the channel.
    Accepts(UnboundedSender<Stream>),
    /// Answers with RST.
    Refuses,
    /// Never answers.
    Silent,
}

/// The internet behind the gateway.
#[derive(Debug, Clone, Default)]
pub struct Internet(
    Arc<Mutex<BTreeMap<SocketAddr, Origin>>>,
    pub NameServer,
    Arc<Mutex<BTreeMap<SocketAddr, UnboundedSender<DatagramEnd>>>>,
    /// The gateway cannot list its own addresses.
    Arc<AtomicBool>,
    /// Dials that wait for an answer.
    Arc<AtomicUsize>,
);

struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::SeqCst);
        Self(all.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a name server answers, by name, and how often it was asked.
#[derive(Debug, Clone, Default)]
pub struct NameServer(Arc<Mutex<NameServerState>>);

#[derive(Debug, Default)]
struct NameServerState {
    /// The answer to a question for A, as the records' time to live and addresses.
    names: BTreeMap<String, (u32, Vec<Ipv4Addr>)>,
    asked: Vec<Message>,
}

impl NameServer {
    /// Puts a name with `addresses` there that hold for `ttl` seconds.
    pub fn put(&self, name: &str, ttl: u32, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        let answer = (ttl, addresses.collect());
        self.0.lock().unwrap().names.insert(name.into(), answer);
    }

    /// The questions so far.
    pub fn asked(&self) -> Vec<Message> {
        self.0.lock().unwrap().asked.clone()
    }
}

impl Internet {
    /// Puts an accepting origin at `address`.
    pub fn serve(&self, address: &str) -> UnboundedReceiver<Stream> {
        let (accepted, connections) = unbounded_channel();
        self.put(address, Origin::Accepts(accepted));
        connections
    }

    /// Puts a UDP peer at `address`; each socket of the gateway that talks to it has its
    /// other end come out of the channel.
    pub fn serve_udp(&self, address: &str) -> UnboundedReceiver<DatagramEnd> {
        let (opened, sockets) = unbounded_channel();
        let address = address.parse().unwrap();
        self.2.lock().unwrap().insert(address, opened);
        sockets
    }

    /// Dials that wait for an answer.
    pub fn dialling(&self) -> usize {
        self.4.load(Ordering::SeqCst)
    }

    /// Whether the gateway can list its own addresses.
    pub fn tell_own_addresses(&self, tell: bool) {
        self.3.store(!tell, Ordering::SeqCst);
    }

    /// Puts `origin` at `address`.
    pub fn put(&self, address: &str, origin: Origin) {
        self.0
            .lock()
            .unwrap()
            .insert(address.parse().unwrap(), origin);
    }
}

impl Resolve for Internet {
    async fn query(&self, question: Message) -> io::Result<Message> {
        let query = question.queries[0].clone();
        let name = query.name().clone();
        // As where the name server of a zone is gone.
        if name.to_string().starts_with("silent-") {
            return std::future::pending().await;
        }
        tokio::time::sleep(NAME_SERVER).await;
        let mut state = self.1.0.lock().unwrap();
        state.asked.push(question.clone());
        let Some((ttl, addresses)) = state.names.get(&name.to_string()) else {
            return Err(io::Error::other("no name server answers"));
        };
        let mut answer = Message::response(question.metadata.id, OpCode::Query);
        answer.metadata.authentic_data = question.metadata.authentic_data;
        answer.add_query(query);
        for address in addresses {
            let data = RData::A((*address).into());
            answer.add_answer(Record::from_rdata(name.clone(), *ttl, data));
        }
        Ok(answer)
    }

    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        match host {
            "origin.example" => Ok(vec!["93.184.216.34".parse().unwrap()]),
            // The first of its addresses is silent.
            "gateway.example" => {
                let gateway: SocketAddr = GATEWAY.parse().unwrap();
                Ok(vec!["198.51.100.7".parse().unwrap(), gateway.ip()])
            }
            "inside.example" => Ok(vec!["10.0.0.1".parse().unwrap()]),
            _ => Err(io::Error::other("no such name")),
        }
    }
}

impl Dial for Internet {
    type Socket = Stream;
    type Datagrams = DatagramEnd;

    async fn dial_udp(&self, address: SocketAddr) -> io::Result<DatagramEnd> {
        let peer = self.2.lock().unwrap().get(&address).cloned();
        let (ours, theirs) = datagram_pair();
        match peer {
            Some(peer) => peer.send(theirs).map_err(io::Error::other)?,
            None => ours.fail(io::ErrorKind::ConnectionRefused),
        }
        Ok(ours)
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Stream> {
        let origin = self.0.lock().unwrap().get(&address).cloned();
        match origin {
            Some(Origin::Accepts(accepted)) => {
                let (ours, theirs) = stream_pair(256 * 1024);
                accepted
                    .send(theirs)
                    .map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                Ok(ours)
            }
            Some(Origin::Refuses) => Err(io::ErrorKind::ConnectionRefused.into()),
            Some(Origin::Silent) | None => {
                let _waiting = Waiting::new(&self.4);
                std::future::pending().await
            }
        }
    }

    fn own_addresses(&self) -> io::Result<Arc<[IpAddr]>> {
        match self.3.load(Ordering::SeqCst) {
            false => Ok(["203.0.113.1".parse().unwrap()].into()),
            true => Err(io::Error::other("too many open files")),
        }
    }
}

//! Questions of DNS at a terminal.

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_tunnel::terminal::dns::{Over, Resolver, Settings};
use bentpipe_units::Bytes;
use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::task::JoinHandle;

use super::{World, now};

/// The resolver of a world's terminal.
pub struct Names {
    pub resolver: Resolver,
    renew: JoinHandle<()>,
}

impl Drop for Names {
    fn drop(&mut self) {
        self.renew.abort();
    }
}

impl Names {
    pub fn of(world: &World) -> Self {
        let settings = Settings {
            cache: Bytes::new(1 << 20),
            allow_private: vec!["10.9.0.0/16".parse().unwrap()],
        };
        let (resolver, renew) = Resolver::new(world.terminal.clone(), &settings);
        let renew = tokio::spawn(async move { match renew.await {} });
        Self { resolver, renew }
    }

    /// How long the reply takes to a question for the address of `name`, and the reply.
    pub async fn ask(&self, name: &str) -> (Duration, Message) {
        self.ask_from(1, name).await
    }

    /// The same from the application's `host`.
    pub async fn ask_from(&self, host: u8, name: &str) -> (Duration, Message) {
        self.send_from(host, question(name)).await
    }

    /// The same of any question.
    pub async fn send(&self, question: Message) -> (Duration, Message) {
        self.send_from(1, question).await
    }

    async fn send_from(&self, host: u8, question: Message) -> (Duration, Message) {
        let began = now();
        let host = IpAddr::from([192, 168, 7, host]);
        let question = question.to_vec().unwrap();
        let reply = self.resolver.reply(host, &question, Over::Udp).await;
        let reply = Message::from_vec(&reply.unwrap()).unwrap();
        (began.elapsed(), reply)
    }
}

/// A question for the address of `name`.
pub fn question(name: &str) -> Message {
    let mut message = Message::new(99, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message
}

/// The addresses that `message` names.
pub fn addresses(message: &Message) -> Vec<String> {
    let answers = message.answers.iter();
    let address = |data: &RData| match data {
        RData::A(address) => Some(address.0.to_string()),
        _ => None,
    };
    answers.filter_map(|record| address(&record.data)).collect()
}

//! The server: every request of every connection answered with a file of /www.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use quiche::h3::{self, NameValue};

use crate::{Wire, below, identifier, log_keys};

/// A connection with what it is still to be sent. Peers are told apart by their address: none moves here.
struct Peer {
    connection: quiche::Connection,
    h3: Option<h3::Connection>,
    requests: HashMap<u64, Vec<u8>>,
    answers: HashMap<u64, Answer>,
}

struct Answer {
    body: Vec<u8>,
    sent: usize,
    headed: bool,
}

pub fn run(mut config: quiche::Config, h3: bool) -> Result<()> {
    config.load_cert_chain_from_pem_file("/certs/cert.pem")?;
    config.load_priv_key_from_pem_file("/certs/priv.key")?;
    let ended = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, ended.clone())?;
    let mut wire = Wire::new(UdpSocket::bind("0.0.0.0:443")?);
    let here = wire.socket.local_addr()?;
    let mut peers: HashMap<SocketAddr, Peer> = HashMap::new();
    let mut buffer = vec![0; 65535];
    while !ended.load(Ordering::Relaxed) {
        let timer = peers
            .values()
            .filter_map(|peer| peer.connection.timeout())
            .min();
        if let Some((length, from)) = wire.receive(&mut buffer, timer)? {
            if !peers.contains_key(&from)
                && quiche::Header::from_slice(&mut buffer[..length], quiche::MAX_CONN_ID_LEN)
                    .is_ok_and(|header| header.ty == quiche::Type::Initial)
            {
                let mut connection =
                    quiche::accept(&identifier()?, None, here, from, &mut config)?;
                log_keys(&mut connection)?;
                peers.insert(
                    from,
                    Peer { connection, h3: None, requests: HashMap::new(), answers: HashMap::new() },
                );
            }
            if let Some(peer) = peers.get_mut(&from) {
                let info = quiche::RecvInfo { from, to: here };
                if let Err(error) = peer.connection.recv(&mut buffer[..length], info) {
                    eprintln!("{from}: {error}");
                }
                if let Err(error) = peer.serve(h3) {
                    eprintln!("{from}: {error:#}");
                }
            }
        }
        for peer in peers.values_mut() {
            peer.connection.on_timeout_if_due();
            peer.send_answers();
            wire.take(&mut peer.connection)?;
        }
        peers.retain(|_, peer| !peer.connection.is_closed());
    }
    Ok(())
}

trait OnTimeoutIfDue {
    fn on_timeout_if_due(&mut self);
}

impl OnTimeoutIfDue for quiche::Connection {
    fn on_timeout_if_due(&mut self) {
        if self.timeout().is_some_and(|left| left.is_zero()) {
            self.on_timeout();
        }
    }
}

impl Peer {
    /// Reads requests.
    fn serve(&mut self, h3: bool) -> Result<()> {
        if !self.connection.is_established() && !self.connection.is_in_early_data() {
            return Ok(());
        }
        if h3 { self.serve_h3() } else { self.serve_hq() }
    }

    fn serve_hq(&mut self) -> Result<()> {
        let mut piece = [0; 4096];
        for stream in self.connection.readable() {
            loop {
                let (length, fin) = match self.connection.stream_recv(stream, &mut piece) {
                    Ok(read) => read,
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(error.into()),
                };
                let request = self.requests.entry(stream).or_default();
                request.extend_from_slice(&piece[..length]);
                anyhow::ensure!(request.len() <= 4096, "a request of more than 4096 bytes");
                if fin {
                    let text = String::from_utf8(std::mem::take(request))?;
                    let body = std::fs::read(below("/www", text.trim_start_matches("GET "))?)?;
                    self.answers.insert(stream, Answer { body, sent: 0, headed: true });
                }
            }
        }
        Ok(())
    }

    fn serve_h3(&mut self) -> Result<()> {
        if self.h3.is_none() {
            let config = h3::Config::new()?;
            self.h3 = Some(h3::Connection::with_transport(&mut self.connection, &config)?);
        }
        let session = self.h3.as_mut().context("there is one")?;
        loop {
            match session.poll(&mut self.connection) {
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    let path = list
                        .iter()
                        .find(|header| header.name() == b":path")
                        .context("a request without a path")?;
                    let path = std::str::from_utf8(path.value())?;
                    let body = std::fs::read(below("/www", path)?)?;
                    self.answers.insert(stream, Answer { body, sent: 0, headed: false });
                }
                Ok(_) => {}
                Err(h3::Error::Done) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends as much of the answers as the connection takes now.
    fn send_answers(&mut self) {
        let Self { connection, h3, answers, .. } = self;
        answers.retain(|&stream, answer| match h3 {
            None => send_hq(connection, stream, answer),
            Some(session) => send_h3(connection, session, stream, answer),
        });
    }
}

/// Whether something is left to be sent.
fn send_hq(connection: &mut quiche::Connection, stream: u64, answer: &mut Answer) -> bool {
    match connection.stream_send(stream, &answer.body[answer.sent..], true) {
        Ok(length) => answer.sent += length,
        Err(quiche::Error::Done) => {}
        Err(_) => return false,
    }
    answer.sent < answer.body.len()
}

fn send_h3(
    connection: &mut quiche::Connection,
    session: &mut h3::Connection,
    stream: u64,
    answer: &mut Answer,
) -> bool {
    if !answer.headed {
        let length = answer.body.len().to_string();
        let headers = [
            h3::Header::new(b":status", b"200"),
            h3::Header::new(b"server", b"quiche"),
            h3::Header::new(b"content-length", length.as_bytes()),
        ];
        match session.send_response(connection, stream, &headers, false) {
            Ok(()) => answer.headed = true,
            Err(h3::Error::StreamBlocked) => return true,
            Err(_) => return false,
        }
    }
    match session.send_body(connection, stream, &answer.body[answer.sent..], true) {
        Ok(length) => answer.sent += length,
        Err(h3::Error::Done) => {}
        Err(_) => return false,
    }
    answer.sent < answer.body.len()
}

//! The client: every address of REQUESTS fetched over one connection, into /downloads.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::net::{ToSocketAddrs, UdpSocket};

use anyhow::{Context, Result, bail};
use quiche::h3;

use crate::{Wire, below, identifier, log_keys};

struct Target<'a> {
    authority: &'a str,
    path: &'a str,
}

fn targets(requests: &str) -> Result<Vec<Target<'_>>> {
    requests
        .split_whitespace()
        .map(|request| {
            let rest = request
                .strip_prefix("https://")
                .with_context(|| format!("{request}: no https address"))?;
            let slash = rest
                .find('/')
                .with_context(|| format!("{request}: names no file"))?;
            Ok(Target { authority: &rest[..slash], path: &rest[slash..] })
        })
        .collect()
}

pub fn run(mut config: quiche::Config, h3: bool, requests: &str) -> Result<()> {
    let targets = targets(requests)?;
    let first = targets.first().context("REQUESTS names nothing")?;
    let (host, port) = first.authority.split_once(':').unwrap_or((first.authority, "443"));
    let peer = (host, port.parse()?)
        .to_socket_addrs()?
        .find(|each| each.is_ipv4())
        .context("the server has no address")?;
    config.verify_peer(true);
    config.load_verify_locations_from_file("/certs/ca.pem")?;
    let mut wire = Wire::new(UdpSocket::bind("0.0.0.0:0")?);
    // The address that packets leave from, so that those that come in are of the same path.
    wire.socket.connect(peer)?;
    let here = wire.socket.local_addr()?;
    let socket = UdpSocket::bind(here.ip().to_string() + ":0")?;
    wire.socket = socket;
    let here = wire.socket.local_addr()?;
    let mut connection = quiche::connect(Some(host), &identifier()?, here, peer, &mut config)?;
    log_keys(&mut connection)?;
    let mut session: Option<h3::Connection> = None;
    let mut files: HashMap<u64, File> = HashMap::new();
    let mut asked = false;
    let mut left = targets.len();
    let mut buffer = vec![0; 65535];
    loop {
        wire.take(&mut connection)?;
        if connection.is_closed() {
            break;
        }
        if let Some((length, from)) = wire.receive(&mut buffer, connection.timeout())? {
            let info = quiche::RecvInfo { from, to: here };
            if let Err(error) = connection.recv(&mut buffer[..length], info) {
                eprintln!("{error}");
            }
        }
        if connection.timeout().is_some_and(|wait| wait.is_zero()) {
            connection.on_timeout();
        }
        if !connection.is_established() {
            continue;
        }
        if !asked {
            asked = true;
            if h3 {
                let config = h3::Config::new()?;
                session = Some(h3::Connection::with_transport(&mut connection, &config)?);
            }
            for (number, target) in targets.iter().enumerate() {
                let file = File::create(below("/downloads", target.path)?)?;
                let stream = match &mut session {
                    Some(session) => ask_h3(&mut connection, session, target)?,
                    None => {
                        let stream = 4 * number as u64;
                        let request = format!("GET {}\r\n", target.path);
                        connection.stream_send(stream, request.as_bytes(), true)?;
                        stream
                    }
                };
                files.insert(stream, file);
            }
        }
        left -= match &mut session {
            Some(session) => read_h3(&mut connection, session, &mut files, &mut buffer)?,
            None => read_hq(&mut connection, &mut files, &mut buffer)?,
        };
        if left == 0 {
            connection.close(true, if h3 { 0x100 } else { 0 }, b"").ok();
            wire.take(&mut connection)?;
            return Ok(());
        }
    }
    bail!(
        "the connection ended with {left} of {} files missing: {:?} {:?}",
        targets.len(), connection.peer_error(), connection.local_error()
    )
}

fn ask_h3(
    connection: &mut quiche::Connection,
    session: &mut h3::Connection,
    target: &Target<'_>,
) -> Result<u64> {
    let headers = [
        h3::Header::new(b":method", b"GET"),
        h3::Header::new(b":scheme", b"https"),
        h3::Header::new(b":authority", target.authority.as_bytes()),
        h3::Header::new(b":path", target.path.as_bytes()),
        h3::Header::new(b"user-agent", b"quiche"),
    ];
    Ok(session.send_request(connection, &headers, true)?)
}

/// Writes what came; how many files are whole now.
fn read_hq(
    connection: &mut quiche::Connection,
    files: &mut HashMap<u64, File>,
    buffer: &mut [u8],
) -> Result<usize> {
    let mut whole = 0;
    for stream in connection.readable() {
        loop {
            match connection.stream_recv(stream, buffer) {
                Ok((length, fin)) => {
                    if let Some(file) = files.get_mut(&stream) {
                        file.write_all(&buffer[..length])?;
                        if fin {
                            files.remove(&stream);
                            whole += 1;
                        }
                    }
                    if fin {
                        break;
                    }
                }
                Err(quiche::Error::Done) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(whole)
}

fn read_h3(
    connection: &mut quiche::Connection,
    session: &mut h3::Connection,
    files: &mut HashMap<u64, File>,
    buffer: &mut [u8],
) -> Result<usize> {
    let mut whole = 0;
    loop {
        match session.poll(connection) {
            Ok((stream, h3::Event::Data)) => {
                while let Ok(length) = session.recv_body(connection, stream, buffer) {
                    if let Some(file) = files.get_mut(&stream) {
                        file.write_all(&buffer[..length])?;
                    }
                }
            }
            Ok((stream, h3::Event::Finished)) => {
                if files.remove(&stream).is_some() {
                    whole += 1;
                }
            }
            Ok((stream, h3::Event::Reset(code))) => bail!("stream {stream} was reset with {code}"),
            Ok(_) => {}
            Err(h3::Error::Done) => return Ok(whole),
            Err(error) => return Err(error.into()),
        }
    }
}

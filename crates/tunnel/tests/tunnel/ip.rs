//! IP packets through terminal and gateway (CONNECT-IP), as a conversation in virtual time.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{Setup, World, in_virtual_time, now, outage_from};
use bentpipe_tunnel::flow::packet::Header;
use bentpipe_tunnel::gateway::ip_network::IpNetwork;
use bentpipe_tunnel::gateway::ip_protocol::IpProtocol;
use bentpipe_tunnel::gateway::policy::{Policies, Policy};
use bentpipe_tunnel::identity::Fingerprint;
use bentpipe_tunnel::sockets::PacketDevice;
use etherparse::PacketBuilder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// On GEO, of which one way is 250 ms.
const ONE_WAY: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(60);
const HOST: [u8; 4] = [93, 184, 216, 34];

/// An interface in memory; the machine's end is a [`Machine`].
struct Device {
    from_machine: Mutex<UnboundedReceiver<Vec<u8>>>,
    to_machine: UnboundedSender<Vec<u8>>,
    addresses: Arc<Mutex<Vec<IpAddr>>>,
}

struct Machine {
    sends: UnboundedSender<Vec<u8>>,
    receives: UnboundedReceiver<Vec<u8>>,
    addresses: Arc<Mutex<Vec<IpAddr>>>,
}

fn device() -> (Device, Machine) {
    let (sends, from_machine) = unbounded_channel();
    let (to_machine, receives) = unbounded_channel();
    let addresses = Arc::<Mutex<_>>::default();
    let device = Device {
        from_machine: Mutex::new(from_machine),
        to_machine,
        addresses: addresses.clone(),
    };
    let machine = Machine {
        sends,
        receives,
        addresses,
    };
    (device, machine)
}

impl PacketDevice for Device {
    fn poll_receive(&self, context: &mut Context<'_>) -> Poll<io::Result<Vec<u8>>> {
        let packet = self.from_machine.lock().unwrap().poll_recv(context);
        packet.map(|packet| packet.ok_or_else(|| io::Error::other("the machine is gone")))
    }

    fn send(&self, packet: &[u8]) {
        let _ = self.to_machine.send(packet.to_vec());
    }

    fn set_addresses(&self, addresses: &[IpAddr]) -> io::Result<()> {
        *self.addresses.lock().unwrap() = addresses.to_vec();
        Ok(())
    }
}

impl Machine {
    async fn receive(&mut self) -> Vec<u8> {
        let received = timeout(PATIENCE, self.receives.recv()).await;
        received
            .expect("a packet comes")
            .expect("a device is there")
    }

    fn send(&self, packet: Vec<u8>) {
        self.sends.send(packet).unwrap();
    }

    /// The address of that family, once it was assigned.
    async fn address(&self, ipv6: bool) -> IpAddr {
        let assigned = async {
            loop {
                let addresses = self.addresses.lock().unwrap().clone();
                if let Some(address) = addresses.iter().find(|a| a.is_ipv6() == ipv6) {
                    return *address;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, assigned).await.expect("an address")
    }
}

/// The same for all terminals.
struct All(Arc<Policy>);

impl Policies for All {
    fn of(&self, _key: &Fingerprint) -> Arc<Policy> {
        self.0.clone()
    }

    fn carried(&self, _key: &Fingerprint, _bytes: u64) -> u64 {
        0
    }
}

fn policy(ip: &[IpProtocol]) -> Policy {
    Policy {
        ip: ip.to_vec(),
        ..Policy::default()
    }
}

/// A terminal whose packets the gateway carries as `policy` says; the machine at the terminal's
/// interface and the one at the gateway's.
fn world(
    setup: Setup,
    clock: &bentpipe_vnet::clock::Clock,
    policy: Policy,
) -> (World, Machine, Machine) {
    let (ours, gateway) = device();
    let networks = ["10.88.0.0/24", "fd88::/64"].map(|network| network.parse().unwrap());
    let setup = Setup {
        ip: Some(IpNetwork::new(networks.to_vec(), Box::new(ours))),
        policies: Arc::new(All(Arc::new(policy))),
        ..setup
    };
    let world = setup.start(clock);
    let (ours, terminal) = device();
    let carrying = world.terminal.clone();
    tokio::spawn(async move { carrying.carry_ip(&ours).await });
    (world, terminal, gateway)
}

fn echo(from: IpAddr, to: IpAddr, size: usize) -> Vec<u8> {
    let mut packet = Vec::new();
    let payload = vec![7; size];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => PacketBuilder::ipv4(from.octets(), to.octets(), 64)
            .icmpv4_echo_request(1, 1)
            .write(&mut packet, &payload),
        (IpAddr::V6(from), IpAddr::V6(to)) => PacketBuilder::ipv6(from.octets(), to.octets(), 64)
            .icmpv6_echo_request(1, 1)
            .write(&mut packet, &payload),
        _ => panic!("one family"),
    }
    .unwrap();
    packet
}

fn udp(from: IpAddr, to: [u8; 4], port: u16) -> Vec<u8> {
    let IpAddr::V4(from) = from else {
        panic!("of IPv4")
    };
    let mut packet = Vec::new();
    PacketBuilder::ipv4(from.octets(), to, 64)
        .udp(5000, port)
        .write(&mut packet, b"hello")
        .unwrap();
    packet
}

#[test]
fn a_ping_takes_the_link_there_and_back_and_a_millisecond_at_most() {
    in_virtual_time(async |clock| {
        let (_world, mut terminal, mut gateway) =
            world(Setup::default(), &clock, policy(&[IpProtocol::Icmp]));
        for (ipv6, host) in [
            (false, IpAddr::from(HOST)),
            (true, "2606:2800::1".parse().unwrap()),
        ] {
            let from = terminal.address(ipv6).await;
            for size in [0, 56, 1000, 1100, 1400, 1452] {
                let request = echo(from, host, size);
                let begin = now();
                terminal.send(request.clone());
                assert_eq!(gateway.receive().await, request);
                let reply = echo(host, from, size);
                gateway.send(reply.clone());
                assert_eq!(terminal.receive().await, reply);
                let took = now() - begin;
                println!("{size} bytes: {took:?}");
                assert!(
                    took < 2 * ONE_WAY + Duration::from_millis(1),
                    "{size}: {took:?}"
                );
            }
        }
    });
}

#[test]
fn nothing_that_egress_or_the_policy_denies_leaves_and_the_sender_is_told() {
    in_virtual_time(async |clock| {
        let policy = Policy {
            deny: vec!["192.88.98.0/24".parse().unwrap(), "*:25".parse().unwrap()],
            ..policy(&[IpProtocol::Icmp, IpProtocol::Udp])
        };
        let (_world, mut terminal, mut gateway) = world(Setup::default(), &clock, policy);
        let from = terminal.address(false).await;
        let forged = IpAddr::from([10, 88, 0, 99]);
        let of = |address: [u8; 4]| IpAddr::from(address);
        assert_ne!(from, forged);
        let mut redirect = echo(from, of(HOST), 20);
        redirect[20] = 5;
        let mut tcp = Vec::new();
        let IpAddr::V4(source) = from else { panic!() };
        PacketBuilder::ipv4(source.octets(), HOST, 64)
            .tcp(5000, 80, 1, 1000)
            .syn()
            .write(&mut tcp, &[])
            .unwrap();
        for (denied, is_told) in [
            (echo(from, of([10, 0, 0, 1]), 8), true),
            (echo(from, of([169, 254, 169, 254]), 8), true),
            // The gateway's own, and another terminal's.
            (echo(from, of([203, 0, 113, 1]), 8), true),
            (echo(from, of([10, 88, 0, 7]), 8), true),
            (echo(from, of([192, 88, 98, 7]), 8), true),
            (udp(from, HOST, 25), true),
            (tcp, true),
            (redirect, false),
            (echo(forged, of(HOST), 8), false),
            (vec![0x45; 30], false),
            (Vec::new(), false),
        ] {
            terminal.send(denied.clone());
            if is_told {
                let told = terminal.receive().await;
                let header = Header::read(&told).unwrap();
                assert_eq!((header.source, header.icmp), (of([10, 88, 0, 1]), Some(3)));
                assert!(told.ends_with(&denied));
            }
        }
        let allowed = udp(from, HOST, 53);
        terminal.send(allowed.clone());
        assert_eq!(gateway.receive().await, allowed, "and nothing else");
    });
}

#[test]
fn without_permission_there_is_nothing_and_pings_are_answered_prohibited() {
    in_virtual_time(async |clock| {
        let (_world, mut terminal, mut gateway) = world(Setup::default(), &clock, policy(&[]));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(terminal.addresses.lock().unwrap().is_empty());
        let (from, to) = (IpAddr::from([192, 168, 1, 2]), IpAddr::from(HOST));
        terminal.send(echo(from, to, 8));
        let told = terminal.receive().await;
        let header = Header::read(&told).unwrap();
        assert_eq!((header.source, header.destination), (to, from));
        // Destination unreachable, communication prohibited.
        assert_eq!(told[20..22], [3, 13]);
        assert!(gateway.receives.try_recv().is_err());
    });
}

#[test]
fn without_a_link_pings_are_answered_unreachable() {
    in_virtual_time(async |clock| {
        let setup = Setup {
            scenario: outage_from("0 s"),
            ..Setup::default()
        };
        let (_world, mut terminal, _gateway) = world(setup, &clock, policy(&[IpProtocol::Icmp]));
        let begin = now();
        terminal.send(echo(IpAddr::from([192, 168, 1, 2]), IpAddr::from(HOST), 8));
        assert_eq!(terminal.receive().await[20..22], [3, 1]);
        assert!(now() - begin < Duration::from_millis(10), "at once");
    });
}

#[test]
fn a_terminal_takes_only_what_is_for_it_and_has_its_address_again() {
    in_virtual_time(async |clock| {
        let (world, mut terminal, gateway) =
            world(Setup::default(), &clock, policy(&[IpProtocol::Icmp]));
        let first = terminal.address(false).await;
        let host = IpAddr::from(HOST);
        gateway.send(echo(host, IpAddr::from([10, 88, 0, 99]), 8));
        gateway.send(echo(host, first, 9));
        assert_eq!(terminal.receive().await, echo(host, first, 9));
        terminal.addresses.lock().unwrap().clear();
        let session = world.terminal.session().borrow().clone().unwrap();
        session.close();
        assert_eq!(terminal.address(false).await, first);
    });
}

//! UDP through terminal and gateway, as a conversation in virtual time.

use std::time::Duration;

use crate::support::{DatagramEnd, Setup, in_virtual_time, now, outage_from};
use bentpipe_link::Scenario;
use bentpipe_tunnel::marking::Marking;
use bentpipe_tunnel::terminal::Unreachable;
use bentpipe_tunnel::transport::MAX_UDP_FLOWS;
use noq_proto::EcnCodepoint;
use tokio::time::{sleep, timeout};

const PEER: &str = "93.184.216.34:5004";
const SERVER: &str = "93.184.216.34:443";

/// On GEO, of which one way is 250 ms.
const ONE_WAY: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn datagrams_of_any_size_go_both_ways_whole() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        let mut sockets = world.internet.serve_udp(PEER);
        world.warm().await;
        let (application, _carried) = world.connect_udp(1, PEER);
        let begin = now();
        for size in [0, 1, 1200, 1472, 1473, 9000, 65_507] {
            application.send(&vec![7; size]);
        }
        let peer = sockets.recv().await.unwrap();
        assert!(
            now() - begin < ONE_WAY + Duration::from_millis(10),
            "with the request"
        );
        let mut sizes = Vec::new();
        for _ in 0..7 {
            let datagram = timeout(PATIENCE, peer.receive()).await.unwrap().unwrap();
            sizes.push(datagram.len());
            peer.send(&datagram);
        }
        sizes.sort_unstable();
        assert_eq!(sizes, [0, 1, 1200, 1472, 1473, 9000, 65_507]);
        let mut back = Vec::new();
        for _ in 0..7 {
            let datagram = timeout(PATIENCE, application.receive()).await.unwrap();
            back.push(datagram.unwrap().len());
        }
        back.sort_unstable();
        assert_eq!(back, sizes);
    });
}

#[test]
fn quic_finds_out_how_long_its_packets_may_be() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        let mut sockets = world.internet.serve_udp(SERVER);
        world.warm().await;
        // Before the tunnel knows its own path, what every path has to carry does not get lost.
        let (application, _carried) = world.connect_udp(1, SERVER);
        application.send(&[7; 1200]);
        let server = sockets.recv().await.unwrap();
        assert_eq!(
            timeout(PATIENCE, server.receive())
                .await
                .unwrap()
                .unwrap()
                .len(),
            1200
        );
        tokio::time::sleep(Duration::from_secs(5)).await;
        // Of 1472 bytes between the tunnel's ends its own headers take less than 60.
        let longest = async |from: &DatagramEnd, to: &DatagramEnd| {
            for size in 1200..=1472 {
                from.send(&vec![7; size]);
            }
            let mut longest = 0;
            while let Ok(Some(datagram)) = timeout(Duration::from_secs(2), to.receive()).await {
                longest = longest.max(datagram.len());
            }
            longest
        };
        let up = longest(&application, &server).await;
        let down = longest(&server, &application).await;
        assert!((1412..1440).contains(&up), "{up}");
        assert!((1412..1440).contains(&down), "{down}");
    });
}

#[test]
fn markings_go_both_ways_from_the_first_answer_of_a_session_on() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        let mut sockets = world.internet.serve_udp(PEER);
        world.warm().await;
        let marked = |bits, dont_fragment| Marking {
            ecn: EcnCodepoint::from_bits(bits),
            dont_fragment,
        };
        let (first, _carried) = world.connect_udp(1, PEER);
        first.send_marked(b"nothing is agreed yet", marked(2, true));
        let peer = sockets.recv().await.unwrap();
        let (_, seen) = peer.receive_marked().await.unwrap();
        assert_eq!(seen, Marking::default());
        peer.send(b"an answer");
        first.receive().await.unwrap();
        // Also with the request of a flow that begins later.
        let (second, _carried) = world.connect_udp(1, PEER);
        second.send_marked(b"first", marked(1, true));
        let other = sockets.recv().await.unwrap();
        let (_, seen) = other.receive_marked().await.unwrap();
        assert_eq!(seen, marked(1, true));
        for (application, peer) in [(&first, &peer), (&second, &other)] {
            for bits in 0..4 {
                for (dont_fragment, size) in [(false, 1200), (true, 1200), (true, 9000)] {
                    application.send_marked(&vec![7; size], marked(bits, dont_fragment));
                    let (datagram, seen) = peer.receive_marked().await.unwrap();
                    assert_eq!((datagram.len(), seen), (size, marked(bits, dont_fragment)));
                    peer.send_marked(&datagram, marked(bits, dont_fragment));
                    let (_, seen) = application.receive_marked().await.unwrap();
                    assert_eq!(seen, marked(bits, false));
                }
            }
        }
    });
}

#[test]
fn a_queue_that_stands_marks_what_speaks_ecn_and_drops_the_rest() {
    const SLOW: &str = "name = \"slow\"\n\
        [forward]\nrate = \"4 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n\
        [return]\nrate = \"1 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n";
    const SENT: u32 = 4000;
    // What arrives of a stream that is 1.2 times as fast as the link: with CE, and otherwise.
    let arrived = |ecn| {
        in_virtual_time(async |clock| {
            let setup = Setup {
                scenario: Scenario::parse(SLOW).unwrap(),
                ..Setup::default()
            };
            let world = setup.start(&clock);
            world.warm().await;
            let (application, peer) = world.open_udp(PEER).await;
            let marking = Marking {
                ecn,
                ..Marking::default()
            };
            let sending = async {
                for _ in 0..SENT {
                    peer.send_marked(&[7; 1100], marking);
                    sleep(Duration::from_micros(1800)).await;
                }
            };
            let receiving = async {
                let (mut congested, mut others) = (0, 0);
                while let Ok(Some((_, seen))) =
                    timeout(4 * ONE_WAY, application.receive_marked()).await
                {
                    match seen.ecn == ecn {
                        true => others += 1,
                        false => {
                            assert_eq!(seen.ecn, Some(EcnCodepoint::Ce));
                            congested += 1;
                        }
                    }
                }
                (congested, others)
            };
            tokio::join!(sending, receiving).1
        })
    };
    let (marked, unmarked) = arrived(Some(EcnCodepoint::Ect0));
    let (none, without) = arrived(None);
    assert!(marked > 2, "{marked} of {SENT}");
    assert_eq!(marked + unmarked, SENT, "none is lost");
    assert!(none == 0 && without < SENT, "{none}, {without}");
}

#[test]
fn who_sends_what_is_too_long_for_the_path_behind_the_gateway_is_told() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.warm().await;
        let (application, peer) = world.open_udp(PEER).await;
        peer.limit(1372);
        let whole = Marking {
            dont_fragment: true,
            ..Marking::default()
        };
        application.send_marked(&[1; 1373], whole);
        application.send_marked(&[2; 1372], whole);
        application.send(&[3; 1373]);
        for what in [2, 3] {
            let came = timeout(PATIENCE, peer.receive()).await.unwrap().unwrap();
            assert_eq!(came[0], what);
        }
        tokio::time::sleep(ONE_WAY + Duration::from_millis(10)).await;
        assert_eq!(application.told(), [1400]);
    });
}

#[test]
fn an_echo_takes_the_link_there_and_back_and_nothing_else() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.warm().await;
        let (application, peer) = world.open_udp(PEER).await;
        for _ in 0..20 {
            let begin = now();
            application.send(&[1; 1000]);
            peer.send(&peer.receive().await.unwrap());
            application.receive().await.unwrap();
            let took = now() - begin;
            println!("{took:?}");
            assert!(took < 2 * (ONE_WAY + Duration::from_millis(1)), "{took:?}");
        }
    });
}

#[test]
fn what_a_flood_does_not_bring_to_its_peer_is_counted_as_dropped() {
    in_virtual_time(async |clock| {
        let rate = "rate = \"5 Mbit/s\"\ndelay = \"250 ms\"\nqueue = \"1 BDP\"\n";
        let geo = format!("name = \"geo\"\n[forward]\n{rate}[return]\n{rate}");
        let setup = Setup {
            scenario: Scenario::parse(&geo).unwrap(),
            ..Setup::default()
        };
        let world = setup.start(&clock);
        let mut sockets = world.internet.serve_udp(PEER);
        world.warm().await;
        let (application, _carried) = world.connect_udp(1, PEER);
        const SENT: u64 = 3000;
        for _ in 0..SENT {
            application.send(&[7; 1000]);
        }
        let peer = sockets.recv().await.unwrap();
        let mut came = 0;
        while timeout(Duration::from_secs(3), peer.receive())
            .await
            .is_ok()
        {
            came += 1;
        }
        let dropped = world.terminal.tally().snapshot().dropped;
        assert!(came > 200, "{came}");
        assert_eq!(came + dropped.values().sum::<u64>(), SENT, "{dropped:?}");
        assert!(dropped["send_queue_full"] > 1000, "{dropped:?}");
        assert!(!dropped.contains_key("receive_queue_full"), "{dropped:?}");
    });
}

/// A scan, or a flood with forged sources, has taken every place: each new flow costs an old one.
#[test]
fn every_new_flow_is_carried_when_all_places_are_taken() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        let mut sockets = world.internet.serve_udp(PEER);
        world.warm().await;
        let mut open = Vec::new();
        let mut peers = Vec::new();
        for number in 0..MAX_UDP_FLOWS {
            let host = u8::try_from(number % 200).unwrap();
            let (application, carried) = world.connect_udp(host, PEER);
            application.send(b"flood");
            open.push((application, carried));
            if number % 100 == 0 {
                sleep(Duration::from_millis(20)).await;
            }
        }
        while let Ok(Some(peer)) = timeout(Duration::from_secs(5), sockets.recv()).await {
            peers.push(peer);
        }
        assert_eq!(peers.len(), MAX_UDP_FLOWS);
        const NEW: usize = 100;
        for number in 0..NEW {
            let (application, carried) = world.connect_udp(201, PEER);
            application.send(&[u8::try_from(number).unwrap()]);
            open.push((application, carried));
        }
        let mut served = 0;
        while let Ok(Some(peer)) = timeout(Duration::from_secs(5), sockets.recv()).await {
            peers.push(peer);
            served += 1;
        }
        assert_eq!(served, NEW);
    });
}

#[test]
fn what_the_gateway_learns_of_the_peer_the_application_is_told() {
    in_virtual_time(async |clock| {
        let world = Setup::default().start(&clock);
        world.warm().await;
        for (target, told) in [
            ("93.184.216.34:9", Unreachable::Port),
            ("10.0.0.1:53", Unreachable::Prohibited),
            ("inside.example:53", Unreachable::Prohibited),
            ("nowhere.example:53", Unreachable::Host),
        ] {
            let (application, carried) = world.connect_udp(1, target);
            application.send(b"hello?");
            let ended = timeout(PATIENCE, carried).await.unwrap().unwrap();
            assert_eq!(ended, Some(told), "{target}");
        }
    });
}

#[test]
fn a_flow_outlives_an_outage_of_30_seconds_and_not_its_idle_limit() {
    in_virtual_time(async |clock| {
        let world = Setup {
            scenario: outage_from_for("20 s", "30 s"),
            ..Setup::default()
        }
        .start(&clock);
        let mut sockets = world.internet.serve_udp(PEER);
        world.warm().await;
        let (application, carried) = world.connect_udp(1, PEER);
        application.send(b"before");
        let peer = sockets.recv().await.unwrap();
        peer.receive().await.unwrap();
        peer.send(b"answer");
        application.receive().await.unwrap();
        tokio::time::sleep_until(crate::support::now() + Duration::from_secs(60)).await;
        peer.send(b"after the outage, from the peer");
        let came = timeout(Duration::from_secs(2), application.receive()).await;
        assert_eq!(came.unwrap().unwrap(), b"after the outage, from the peer");
        assert!(sockets.try_recv().is_err(), "it is the same mapping");
        let begin = now();
        assert_eq!(carried.await.unwrap(), None);
        let idle = now() - begin;
        assert!(idle >= Duration::from_secs(300) && idle <= Duration::from_secs(601));
        assert_eq!(timeout(PATIENCE, peer.receive()).await.unwrap(), None);
    });
}

fn outage_from_for(from: &str, time: &str) -> bentpipe_link::Scenario {
    let direction = format!(
        "rate = \"1 Gbit/s\"\ndelay = \"250 ms\"\nqueue = \"100 MB\"\n\
         outages = [{{ from = \"{from}\", for = \"{time}\", packets = \"lost\" }}]"
    );
    bentpipe_link::Scenario::parse(&format!(
        "name = \"test\"\n[forward]\n{direction}\n[return]\n{direction}\n"
    ))
    .unwrap()
}

#[test]
fn flows_without_a_session_end_and_say_so() {
    in_virtual_time(async |clock| {
        let world = Setup {
            scenario: outage_from("0 s"),
            ..Setup::default()
        }
        .start(&clock);
        let (application, carried) = world.connect_udp(1, PEER);
        application.send(b"anybody?");
        let ended = timeout(PATIENCE, carried).await.unwrap().unwrap();
        assert_eq!(ended, Some(Unreachable::Host));
    });
}

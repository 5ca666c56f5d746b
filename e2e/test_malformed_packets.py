"""Malformed packets into the terminal, from the LAN and into its network interface, beside flows that live."""

import json
import socket
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import LAN, SERVER4, SERVER6, Topology, topology
from bentpipe_lab.systems.tunnel import start_bentpipe
from conversation import conversation, digest, eventually, payload, read_to_end, send_in_background
from datagrams import ask, open_socket, peer
from dish_side import captured
from malformed import Between, ipv4, ipv6, mangled, packets4, packets6, tcp, udp
from test_tun import INTERFACE, configure, outside, pings, start

IPV4, IPV6, ANY = 0x0800, 0x86DD, 0x0003
STRANGER4, STRANGER6 = "198.51.100.9", "2001:db8::9"
NOBODYS4 = ("0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", LAN.near4, "10.77.0.255", STRANGER4)
NOBODYS6 = ("::", "::1", "ff02::1", "::ffff:10.77.2.2", LAN.near6, STRANGER6)
SEED = 20261123


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Topology]:
    with topology(tmp_path) as built:
        yield built


def all_of(own4: str, own6: str) -> list[tuple[int, bytes]]:
    """Every packet, with what the cable calls it: of a host to a server, and between addresses that cannot be."""
    four, six = Between(own4, SERVER4), Between(own6, SERVER6)
    right4, right6 = list(packets4(four)), list(packets6(six))
    for other in NOBODYS4:
        for between in (Between(other, SERVER4), Between(own4, other), Between(SERVER4, other)):
            right4 += [ipv4(between, 6, tcp(between, 2)), ipv4(between, 17, udp(between, 443, b"nobody's"))]
    for other in NOBODYS6:
        for between in (Between(other, SERVER6), Between(own6, other), Between(SERVER6, other)):
            right6 += [ipv6(between, 6, tcp(between, 2)), ipv6(between, 17, udp(between, 443, b"nobody's"))]
    sent = [(IPV4, packet) for packet in chain(right4, mangled(right4, SEED))]
    sent += [(IPV6, packet) for packet in chain(right6, mangled(right6, SEED))]
    return sent


def send(where: Namespace, device: str, packets: list[tuple[int, bytes]], ethernet: bytes | None) -> int:
    """Put packets on a device, behind an Ethernet header if it has one; how many the kernel took."""
    taken = 0
    for kind in (IPV4, IPV6):
        with where.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
            sender.bind((device, kind))
            for _, packet in (each for each in packets if each[0] == kind):
                framed = packet if ethernet is None else ethernet + struct.pack("!H", kind) + packet
                try:
                    sender.send(framed)
                    taken += 1
                except OSError:  # Longer than the device carries, or nothing at all.
                    continue
    return taken


def hardware(where: Namespace) -> bytes:
    """The address of an end's cable of the LAN."""
    (link,) = json.loads(where.ip("-j", "link", "show", "lan0"))
    return bytes.fromhex(link["address"].replace(":", ""))


@pytest.mark.parametrize("into", ["lan", "tun"])
def test_malformed_packets_leave_nothing_outside_and_flows_whole(path: Topology, into: str) -> None:
    tunnel = start_bentpipe(path)
    configure(tunnel, lan=True)
    start(tunnel)
    during = outside(path, "during")
    data = payload(3_000_000)
    with conversation(path, SERVER4) as (client, server), peer(path.server) as echo:
        sending = [send_in_background(end, data, then_shut=True) for end in (client, server)]
        if into == "lan":
            ethernet = hardware(path.terminal) + hardware(path.client)
            taken = send(path.client, "lan0", all_of(LAN.far4, LAN.far6), ethernet)
        else:
            told = json.loads(path.terminal.ip("-j", "address", "show", "dev", INTERFACE))[0]["addr_info"]
            own4, own6 = (
                next(each["local"] for each in told if each["family"] == family and each["scope"] == "global")
                for family in ("inet", "inet6")
            )
            taken = send(path.terminal, INTERFACE, all_of(own4, own6), None)
        assert taken > 1000
        for where in (path.client, path.terminal):
            with open_socket(where, SERVER4) as datagrams:
                datagrams.connect(echo.address)
                ask(datagrams, b"beside them")
        assert digest(read_to_end(server)) == digest(read_to_end(client)) == digest(data)
        for thread in sending:
            thread.join()
    eventually(lambda: pings(path.terminal, SERVER4) and pings(path.terminal, SERVER6), "pings still pass")
    assert tunnel.terminal.exit_code is None
    assert tunnel.gateway.exit_code is None
    assert "panicked" not in tunnel.terminal.log.read_text() + tunnel.gateway.log.read_text()
    assert captured(during) == ""

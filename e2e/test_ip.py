"""What is neither TCP nor UDP through the tunnel, as IP packets: pings of the client, and what they are told."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from bentpipe_lab.net.topology import PRIVATE4, SERVER4, SERVER6, UNREACHABLE4, Topology, topology
from bentpipe_lab.systems.tunnel import Bentpipe, start_bentpipe
from conftest import SHORT
from conversation import conversation, eventually
from dish_side import capture, captured

NETWORKS = '["10.88.0.0/24", "fd88::/64"]'
GATEWAY4 = "10.88.0.1"
"""The gateway's own address in the terminals' network."""


def ping(path: Topology, address: str, *options: str) -> str:
    """What ping prints of two requests of the client, or less where they are answered with errors."""
    words = path.client.command(["ping", "-n", "-c", "2", "-i", "0.2", "-W", "5", *options, address])
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def answered(path: Topology, address: str, *options: str) -> bool:
    """Whether both were answered."""
    return " 0% packet loss" in ping(path, address, *options)


def with_packets(path: Topology) -> Bentpipe:
    """A tunnel that carries pings."""
    tunnel = start_bentpipe(path)
    tunnel.terminal.stop()
    tunnel.gateway.stop()
    with tunnel.gateway_config.open("a") as file:
        file.write(f'\n[ip]\nnetworks = {NETWORKS}\n\n[policy]\nip = ["icmp"]\n')
    line = 'interfaces = ["lan0"]\n'
    text = tunnel.terminal_config.read_text()
    tunnel.terminal_config.write_text(text.replace(line, f'{line}other_protocols = "tunnel"\n'))
    tunnel.start_gateway()
    tunnel.start_terminal()
    eventually(lambda: answered(path, SERVER4), "pings go through the tunnel")
    return tunnel


@pytest.fixture(scope="module")
def packets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bentpipe]:
    """A tunnel shared by the tests of this module; they leave it as they found it."""
    with topology(tmp_path_factory.mktemp("path"), SHORT) as path:
        yield with_packets(path)


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_pings_take_the_tunnel_and_its_round_trip(packets: Bentpipe, address: str) -> None:
    path = packets.path
    filters = "icmp or (icmp6 and ip6[40] >= 128 and ip6[40] <= 129)"
    outside = capture(path, "outside", filters)
    for options in ((), ("-s", "0"), ("-s", "1400", "-M", "do"), ("-s", "4000")):
        printed = ping(path, address, *options)
        assert " 0% packet loss" in printed, printed
    assert captured(outside) == "", "nothing passes beside the tunnel"
    least = re.search(r"rtt min/avg/max/mdev = ([0-9.]+)/", ping(path, address))
    assert path.link is not None
    assert least is not None
    assert float(least.group(1)) >= (path.link.satellite_rtt_s + path.link.ground_rtt_s) * 1e3


def test_errors_of_the_way_reach_whoever_pings(packets: Bentpipe) -> None:
    path = packets.path
    assert f"From {GATEWAY4} icmp_seq=1 Time to live exceeded" in ping(path, SERVER4, "-t", "2")
    assert f"From {SERVER4} icmp_seq=1 Destination Host Unreachable" in ping(path, UNREACHABLE4)
    assert f"From {GATEWAY4} icmp_seq=1 Packet filtered" in ping(path, PRIVATE4)
    assert f"From {GATEWAY4} icmp_seq=1 Packet filtered" in ping(path, GATEWAY4)


def test_the_path_mtu_is_true_from_end_to_end(packets: Bentpipe) -> None:
    path = packets.path
    path.gateway.ip("link", "set", "gnd0", "mtu", "1300")
    told = ping(path, SERVER4, "-s", "1400", "-M", "do")
    path.gateway.ip("link", "set", "gnd0", "mtu", "1500")
    assert "mtu = 1300" in told, told


def test_a_terminal_that_was_killed_lets_no_ping_pass(path: Topology) -> None:
    assert answered(path, SERVER4), "without the tunnel, the path routes"
    tunnel = with_packets(path)
    tunnel.terminal.kill()
    for address in (SERVER4, SERVER6):
        assert "100% packet loss" in ping(path, address, "-W", "1")
    tunnel.start_terminal()
    eventually(lambda: answered(path, SERVER4) and answered(path, SERVER6), "pings go through again")


def test_an_address_that_may_be_a_hosts_of_the_lan_is_not_taken(path: Topology) -> None:
    """A gateway that lends addresses of the LAN's own network must not cut off whoever has them."""
    tunnel = with_packets(path)
    tunnel.terminal.stop()
    tunnel.gateway.stop()
    clash = '["10.77.0.0/29", "fd88::/64"]'
    tunnel.gateway_config.write_text(tunnel.gateway_config.read_text().replace(NETWORKS, clash))
    tunnel.start_gateway()
    tunnel.start_terminal()
    eventually(lambda: "may be a host's of 10.77.0.0/24 at lan0" in tunnel.terminal.log.read_text(), "it is told")
    assert " 10.77.0." not in path.terminal.ip("-4", "-o", "address", "show", "dev", "bp-ip-4480")
    with conversation(path):
        pass
    eventually(lambda: answered(path, SERVER6), "the other family's address is taken")

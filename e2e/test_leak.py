"""Nothing of the LAN leaves outside the tunnel: a capture on the dish side while everything that a LAN sends is sent.

The path routes and does not translate addresses, so a packet that passed by the tunnel has the client's own address.
"""

import socket
import subprocess

from bentpipe_lab.net.topology import LAN, SATELLITE, SERVER4, SERVER6, Topology
from bentpipe_lab.systems.tunnel import start_bentpipe
from conversation import eventually
from datagrams import ask, open_socket, peer, ready
from dish_side import capture, captured

SERVERS = (SERVER4, SERVER6)
DNS, QUIC, CLOSED = 53, 443, 9
OF_THE_LAN = f"host {LAN.far4} or host {LAN.far6}"


def ping(path: Topology, address: str) -> bool:
    """Whether an echo request of the client is answered within a second."""
    words = path.client.command(["ping", "-n", "-c", "1", "-W", "1", address])
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def send_everything(path: Topology) -> None:
    """One packet at least of each kind, to each server: TCP, UDP, DNS, QUIC, ICMP, and SCTP as another protocol."""
    for address in SERVERS:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with path.client.socket(family) as client:
            client.setblocking(False)
            client.connect_ex((address, 80))
            for port in (DNS, QUIC, CLOSED):
                with open_socket(path.client, address) as datagrams:
                    datagrams.sendto(b"of the LAN", (address, port))
                    datagrams.sendto(bytes(3000), (address, port))
            with path.client.socket(family, socket.SOCK_RAW, socket.IPPROTO_SCTP) as raw:
                raw.sendto(bytes(32), (address, 0))
            ping(path, address)


def test_nothing_of_the_lan_leaves_outside_the_tunnel(path: Topology) -> None:
    without = capture(path, "without", OF_THE_LAN)
    send_everything(path)
    for address in SERVERS:
        eventually(lambda: ping(path, address), "without the tunnel, the path routes")  # noqa: B023
    seen = captured(without)
    assert all(kind in seen for kind in ("Flags [S]", "UDP", "ICMP echo", "ICMP6, echo", "sctp")), seen

    tunnel = start_bentpipe(path)
    during = capture(path, "during", OF_THE_LAN)
    send_everything(path)
    for address in SERVERS:
        with peer(path.server, address) as echo, open_socket(path.client, address) as client:
            client.connect(echo.address)
            ask(client, b"through the tunnel")
    tunnel.terminal.kill()
    send_everything(path)
    tunnel.start_terminal()
    send_everything(path)
    assert tunnel.terminal.stop() == 0
    send_everything(path)
    tunnel.start_terminal()
    send_everything(path)
    assert captured(during) == ""


def test_an_application_that_has_closed_its_port_tells_nobody_on_the_dish_side(path: Topology) -> None:
    """Its machine answers the datagrams that come with ICMP, which quotes them."""
    start_bentpipe(path)
    during = capture(path, "during", OF_THE_LAN)
    for address in SERVERS:
        with open_socket(path.server, address) as server:
            server.bind((address, 0))
            with open_socket(path.client, address) as client:
                client.sendto(b"hello", server.getsockname())
                _, mapped = server.recvfrom(100)
            for _ in range(3):
                server.sendto(b"too late", mapped)
            with peer(path.server, address) as echo, open_socket(path.client, address) as other:
                other.connect(echo.address)
                ask(other, b"after it")
    assert captured(during) == ""


def test_a_dish_that_calls_the_internet_its_own_network_is_sent_nothing(path: Topology) -> None:
    """Its router gives the terminal an address in a network where others are; a private one is the router's to give."""
    public, private = "11.77.9", "192.168.100"
    for network in (public, private):
        path.terminal.ip("address", "add", f"{network}.1/24", "dev", "sat0")
        path.gateway.ip("address", "add", f"{network}.2/24", "dev", "sat0")
    path.gateway.ip("route", "replace", f"{LAN.far4}/32", "via", SATELLITE.near4)
    tunnel = start_bentpipe(path)
    during = capture(path, "during", OF_THE_LAN)
    eventually(lambda: ping(path, f"{private}.2"), "the dish itself is reached")
    assert not ping(path, f"{public}.2")
    for port in (80, QUIC):
        with path.client.socket() as client, open_socket(path.client, f"{public}.2") as datagrams:
            client.setblocking(False)
            client.connect_ex((f"{public}.2", port))
            datagrams.sendto(b"of the LAN", (f"{public}.2", port))
    with peer(path.server) as echo, open_socket(path.client, SERVER4) as client:
        client.connect(echo.address)
        ask(client, b"through the tunnel")
    assert f"{public}.2" not in captured(during)
    assert tunnel.terminal.exit_code is None


def test_nobody_of_the_lan_has_answers_sent_past_the_tunnel(path: Topology) -> None:
    """Hosts with an address of another network, to which the terminal's way is the dish's."""
    elsewhere = ("198.51.100.7", "2001:db8::7")
    for address, near in zip(elsewhere, (LAN.near4, LAN.near6), strict=True):
        path.client.ip("address", "add", address, "dev", "lan0")
        path.client.ip("route", "replace", SERVER6 if ":" in address else SERVER4, "via", near, "src", address)
    tunnel = start_bentpipe(path)
    during = capture(path, "during", " or ".join([OF_THE_LAN, *(f"host {address}" for address in elsewhere)]))
    heard = []
    for address in SERVERS:
        with peer(path.server, address) as echo, open_socket(path.client, address) as client:
            client.sendto(b"of the LAN", echo.address)
            with path.client.socket(client.family) as connection:
                connection.setblocking(False)
                connection.connect_ex((address, 80))
            heard.append(bool(ready([client], 1.0)))
    # Nor does the terminal itself answer them there.
    for source, near in zip(elsewhere, (LAN.near4, LAN.near6), strict=True):
        with open_socket(path.client, near) as client, path.client.socket(client.family) as connection:
            client.bind((source, 0))
            client.sendto(b"of the LAN", (near, CLOSED))
            connection.bind((source, 0))
            connection.setblocking(False)
            connection.connect_ex((near, CLOSED))
            heard.append(bool(ready([client], 1.0)))
    assert captured(during) == ""
    assert heard == [False] * 4
    assert tunnel.terminal.exit_code is None

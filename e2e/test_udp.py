"""UDP through the tunnel, transparently and by SOCKS5: what applications see."""

import json
import resource
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.topology import BLACKHOLE4, GROUND, PRIVATE4, SERVER4, SERVER6, Topology
from bentpipe_lab.systems.tunnel import SOCKS, Bentpipe, start_bentpipe
from conversation import PATIENCE_S, conversation, eventually
from datagrams import ask, connect_udp, open_socket, peer

SIZES = [0, 1, 1200, 1400, 1472, 1473, 9000, 65_507]
MAPPINGS = 10_000
BATCH = 100
SCANNED = 30_000
"""Datagrams, each a flow: more than there are places."""
ONLY_IPV4 = "datagrams.bentpipe.test"
MOST_BYTES_A_FLOW = 8 * 1024
"""Resident memory of either end: 1,000 idle flows in 8 MiB."""


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_datagrams_of_all_sizes_come_back_whole_from_the_gateway(tunnel: Bentpipe, address: str) -> None:
    path = tunnel.path
    with peer(path.server, address) as echo, connect_udp(path.client, echo.address) as client:
        for size in SIZES:
            assert len(ask(client, bytes(size))) == size
        assert client.getpeername()[:2] == echo.address
        (seen,) = echo.clients
        assert seen[0] == (GROUND.near6 if ":" in address else GROUND.near4)


def test_only_the_peer_addressed_is_heard(tunnel: Bentpipe) -> None:
    path = tunnel.path
    with peer(path.server) as echo, open_socket(path.client, SERVER4) as client:
        client.sendto(b"hello", echo.address)
        assert client.recvfrom(100) == (b"hello", echo.address)
        (mapped,) = echo.clients
        with open_socket(path.server, SERVER4) as stranger:
            stranger.bind((SERVER4, 0))
            stranger.sendto(b"not the one that was asked", mapped)
        client.sendto(b"again", echo.address)
        assert client.recvfrom(100) == (b"again", echo.address)


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_a_closed_port_is_told_and_the_next_flow_works(tunnel: Bentpipe, address: str) -> None:
    """The gateway hears ICMP port unreachable, and so does the application; a port that opens later is reached."""
    path = tunnel.path
    with open_socket(path.server, address) as closed:
        closed.bind((address, 0))
        where = closed.getsockname()[:2]
    with connect_udp(path.client, where) as client:
        client.send(b"nobody there")
        with pytest.raises(ConnectionRefusedError):
            client.recv(100)
        with open_socket(path.server, address) as server:
            server.bind(where)

            def heard() -> bool:
                client.send(b"somebody?")
                server.settimeout(1.0)
                try:
                    return server.recv(100) == b"somebody?"
                except TimeoutError:
                    return False

            eventually(heard, "a later flow reaches the port")


def test_what_the_gateway_must_not_reach_is_not_reached(tunnel: Bentpipe) -> None:
    """A private address that its operator does not list: the server has it, and hears nothing."""
    path = tunnel.path
    with peer(path.server) as echo, peer(path.server, PRIVATE4) as private:
        with connect_udp(path.client, private.address) as client, connect_udp(path.client, echo.address) as other:
            client.send(b"let me in")
            with pytest.raises(OSError, match="No route to host"):
                client.recv(100)
            ask(other, b"after it")
        assert private.clients == []


@pytest.mark.long
def test_ten_thousand_flows_are_open_at_once(tunnel: Bentpipe) -> None:
    path = tunnel.path
    ends = {"terminal": tunnel.terminal, "gateway": tunnel.gateway}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    clients: list[socket.socket] = []
    try:
        with peer(path.server) as echo:
            before = {name: end.resident_bytes() for name, end in ends.items()}
            for _ in range(MAPPINGS // BATCH):
                batch = [connect_udp(path.client, echo.address) for _ in range(BATCH)]
                for client in batch:
                    client.send(b"hello")
                for client in batch:
                    ask(client, b"hello")
                clients += batch
            assert ask(clients[0], b"the first is still there") == b"the first is still there"
            assert len(echo.clients) == MAPPINGS
            each = {name: (end.resident_bytes() - before[name]) / MAPPINGS for name, end in ends.items()}
            print(f"bytes a flow: {each}")
            assert max(each.values()) < MOST_BYTES_A_FLOW, each
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_host_that_scans_by_udp_costs_nobody_the_session(path: Topology) -> None:
    """Flows give way to new ones while their requests are on their way: each of these is reset, and nothing else."""
    tunnel = start_bentpipe(path)
    scanner = path.client.socket(kind=socket.SOCK_RAW, protocol=socket.IPPROTO_UDP)
    with scanner, conversation(path) as (client, origin):
        for number in range(SCANNED):
            scanner.sendto(struct.pack("!4H", 2048 + number, 9 + number % 50, 12, 0) + b"scan", (BLACKHOLE4, 0))
            if number % 200 == 0:
                time.sleep(0.02)
        client.sendall(b"as before")
        assert origin.recv(100) == b"as before"
        with peer(path.server) as echo, connect_udp(path.client, echo.address) as other:
            ask(other, b"after it")
    assert "session lost" not in tunnel.terminal.log.read_text()


def test_quic_of_applications_can_be_refused_at_once(path: Topology) -> None:
    tunnel = start_bentpipe(path)
    tunnel.terminal.stop()
    text = tunnel.terminal_config.read_text()
    line = 'interfaces = ["lan0"]\n'
    tunnel.terminal_config.write_text(text.replace(line, f'{line}quic = "refuse"\n'))
    tunnel.start_terminal()
    with connect_udp(path.client, (SERVER4, 443)) as client:
        client.send(b"an Initial packet")
        with pytest.raises(ConnectionRefusedError):
            client.recv(100)
    with peer(path.server) as echo, connect_udp(path.client, echo.address) as client:
        ask(client, b"other ports are carried")


def test_by_quic_auto_both_kinds_are_tried_and_status_says_why(path: Topology) -> None:
    """The first visit to a server has QUIC, the second is refused it at once, until both can be compared."""
    tunnel = start_bentpipe(path)
    tunnel.terminal.stop()
    text = tunnel.terminal_config.read_text()
    line = 'interfaces = ["lan0"]\n'
    tunnel.terminal_config.write_text(text.replace(line, f'{line}quic = "auto"\n'))
    tunnel.start_terminal()
    with peer(path.server, SERVER4, port=443) as echo, connect_udp(path.client, echo.address) as client:
        ask(client, b"an Initial packet")
    with peer(path.server, SERVER6, port=443) as echo, connect_udp(path.client, echo.address) as client:
        client.send(b"an Initial packet")
        with pytest.raises(ConnectionRefusedError):
            client.recv(100)
        assert not echo.clients
    words: list[str | Path] = [host.binary(), "status", "--json", "--config", tunnel.terminal_config]
    status = subprocess.run(words, capture_output=True, text=True, check=True)
    quic = json.loads(status.stdout)["quic"]
    assert (quic["decision"], quic["tunnelled"], quic["refused"]) == ("learning", 1, 1)
    assert "no server is known by transfers of both kinds" in quic["why"]


def test_an_orderly_stop_does_not_wait_for_flows_that_have_no_end(path: Topology) -> None:
    tunnel = start_bentpipe(path)
    tunnel.terminal.stop()
    text = tunnel.terminal_config.read_text()
    tunnel.terminal_config.write_text(f'drain = "10 min"\n{text}')
    tunnel.start_terminal()
    with peer(path.server) as echo, connect_udp(path.client, echo.address) as client:
        ask(client, b"an open flow")
        tunnel.terminal.signal(signal.SIGTERM)
        assert tunnel.terminal.wait() == 0


def associate(tunnel: Bentpipe) -> tuple[socket.socket, socket.socket]:
    """The control connection of an association, and a socket that is connected to its relay."""
    path = tunnel.path
    control = path.terminal.socket()
    control.settimeout(PATIENCE_S)
    control.connect(SOCKS)
    control.sendall(b"\x05\x01\x00")
    assert control.recv(2) == b"\x05\x00"
    control.sendall(b"\x05\x03\x00\x01" + bytes(6))
    reply = control.recv(10)
    assert reply[:4] == b"\x05\x00\x00\x01", reply
    relay = (socket.inet_ntoa(reply[4:8]), struct.unpack("!H", reply[8:])[0])
    return control, connect_udp(path.terminal, relay)


def test_socks5_udp_associate(tunnel: Bentpipe) -> None:
    path = tunnel.path
    control, relay = associate(tunnel)
    with control, relay, peer(path.server) as echo:
        header = b"\x00\x00\x00\x01" + socket.inet_aton(SERVER4) + struct.pack("!H", echo.address[1])
        for size in (0, 1200, 9000):
            assert len(ask(relay, header + bytes(size))) == len(header) + size
        with tunnel.hosts.open("a") as hosts:
            hosts.write(f"{SERVER4} {ONLY_IPV4}\n")
        name = ONLY_IPV4.encode()
        by_name = b"\x00\x00\x00\x03" + bytes([len(name)]) + name + struct.pack("!H", echo.address[1])
        ask(relay, by_name + b"by name")
        with connect_udp(path.terminal, relay.getpeername()) as other:
            other.send(header + b"of another port")
        ask(relay, header + b"not for another")

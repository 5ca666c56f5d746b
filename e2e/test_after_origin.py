"""Connections that wait for their origin: what an application is told is what the origin has said."""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bentpipe_lab.net.topology import LAN, PRIVATE4, SERVER4, SERVER6, UNREACHABLE4, Topology, topology
from bentpipe_lab.systems.tunnel import Bentpipe, start_bentpipe
from conversation import PATIENCE_S, assert_made_and_reset, connect, eventually

SSH = 22
OTHER = 2222
"""A port that is not among those whose connections wait."""
HELD_S = 2.5
"""Long enough for two retransmissions of a first packet."""


@pytest.fixture(scope="module")
def tunnel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bentpipe]:
    with topology(tmp_path_factory.mktemp("after-origin")) as path:
        yield start_bentpipe(path)


def listener(path: Topology, address: str, port: int) -> socket.socket:
    """A server at a port of its own choice."""
    server = path.server.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, port))
    server.listen()
    server.settimeout(PATIENCE_S)
    return server


def refused(path: Topology, address: str, port: int) -> int | None:
    """What a connection is refused with, before it stands; None if it stands."""
    with path.client.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as client:
        client.settimeout(PATIENCE_S)
        try:
            client.connect((address, port))
        except OSError as error:
            return error.errno
        return None


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_a_closed_port_is_refused_and_an_open_one_works(tunnel: Bentpipe, address: str) -> None:
    path = tunnel.path
    assert refused(path, address, SSH) == errno.ECONNREFUSED
    with listener(path, address, SSH) as server, connect(path.client, (address, SSH)) as client:
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"SSH-2.0-test\r\n")
            assert client.recv(100) == b"SSH-2.0-test\r\n"
            client.sendall(b"SSH-2.0-client\r\n")
            assert peer.recv(100) == b"SSH-2.0-client\r\n"
            client.shutdown(socket.SHUT_WR)
            assert peer.recv(1) == b""


def test_a_connection_does_not_stand_before_the_origin_has_it(tunnel: Bentpipe) -> None:
    path = tunnel.path
    rules = "add table inet held; add chain inet held c { type filter hook input priority 0; }; "
    rules += f"add rule inet held c tcp dport {SSH} counter drop"
    path.server.run("nft", rules)
    with listener(path, SERVER4, SSH) as server, path.client.socket() as client:
        client.setblocking(False)
        assert client.connect_ex((SERVER4, SSH)) == errno.EINPROGRESS
        eventually(lambda: "packets 0 " not in path.server.run("nft", "list table inet held"), "the origin was asked")
        with pytest.raises(OSError, match="not connected"):
            client.getpeername()
        path.server.run("nft", "delete table inet held")
        peer, _ = server.accept()
        peer.close()
        client.settimeout(PATIENCE_S)
        assert client.recv(1) == b""


@pytest.mark.parametrize("address", [UNREACHABLE4, PRIVATE4])
def test_what_cannot_or_may_not_be_reached_is_unreachable(tunnel: Bentpipe, address: str) -> None:
    """The second address is one that the gateway's operator has not listed."""
    assert refused(tunnel.path, address, SSH) == errno.EHOSTUNREACH


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_a_destination_that_has_refused_is_asked_first_until_it_accepts(tunnel: Bentpipe, address: str) -> None:
    path = tunnel.path

    def remembered() -> bool:
        # The first connection over IPv6 may find no neighbour yet, and never reach the terminal.
        assert_made_and_reset(path.client, (address, OTHER))
        return f". {OTHER}" in rules_of(path)

    eventually(remembered, "the destination is remembered")
    assert refused(path, address, OTHER) == errno.ECONNREFUSED
    with listener(path, address, OTHER) as server, connect(path.client, (address, OTHER)) as client:
        peer, _ = server.accept()
        with peer:
            client.sendall(b"?")
            assert peer.recv(1) == b"?"
    eventually(lambda: f". {OTHER}" not in rules_of(path), "it is forgotten")


def rules_of(path: Topology) -> str:
    """The rules of the terminal's machine."""
    return path.terminal.run("nft", "list", "ruleset")


@pytest.mark.parametrize("fail", ["closed", "open"])
def test_without_a_terminal_it_is_as_with_every_other_port(tmp_path: Path, fail: str) -> None:
    with topology(tmp_path) as path:
        tunnel = start_bentpipe(path)
        tunnel.terminal.stop()
        text = tunnel.terminal_config.read_text()
        tunnel.terminal_config.write_text(text.replace("leave_private", f'fail = "{fail}"\nleave_private', 1))
        tunnel.start_terminal()
        assert refused(path, SERVER4, SSH) == errno.ECONNREFUSED
        tunnel.terminal.kill()
        with listener(path, SERVER4, SSH) as server, path.client.socket() as client:
            client.settimeout(HELD_S)
            told = client.connect_ex((SERVER4, SSH))
            if fail == "closed":
                assert told == errno.EAGAIN, "a time-out"
            else:
                assert told == 0
                peer, (address, _) = server.accept()
                peer.close()
                assert address == LAN.far4, "outside the tunnel"

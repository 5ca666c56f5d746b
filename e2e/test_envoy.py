"""Envoy in front of our gateway, and our terminal at Envoy as its gateway; docs/interoperability.md has what works."""

import socket
import subprocess
from pathlib import Path

import pytest

import envoy
from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host
from bentpipe_lab.net.topology import SATELLITE, SERVER4
from bentpipe_lab.systems.tunnel import Bentpipe
from conversation import PATIENCE_S, Server, eventually
from datagrams import connect_udp, peer


def bentpipe(tunnel: Bentpipe, *words: str | Path) -> str:
    """What `bentpipe gateway A B` or `bentpipe terminal A B` prints."""
    is_gateway = words[0] == "gateway"
    where = tunnel.path.gateway if is_gateway else tunnel.path.terminal
    config = tunnel.gateway_config if is_gateway else tunnel.terminal_config
    return where.run(host.binary(), *words[:3], "--config", config.absolute(), *words[3:])


def is_answered(datagrams: socket.socket) -> bool:
    """Whether a datagram comes back soon."""
    datagrams.settimeout(0.5)
    datagrams.send(b"anybody")
    try:
        return datagrams.recv(100) == b"anybody"
    except TimeoutError:
        return False


def read_rest(datagrams: socket.socket) -> None:
    """Ask something else, and read until its answer."""
    datagrams.settimeout(PATIENCE_S)
    datagrams.send(b"last")
    while datagrams.recv(100) != b"last":
        pass


def assert_half_closes(client: socket.socket, server: Server) -> None:
    """What the client sends arrives with its end, and then the answer with its end."""
    with client, server.accept() as connection:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: connection.recv(100), b"")) == b"question"
        connection.sendall(b"answer")
        connection.close()
        assert b"".join(iter(lambda: client.recv(100), b"")) == b"answer"


def test_envoy_has_connect_and_connect_udp_of_our_gateway(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    tunnel = own_tunnel
    authority = tmp_path / "authority.pem"
    authority.write_text(bentpipe(tunnel, "gateway", "certificate", "gateway", "gateway.test"))
    token = bentpipe(tunnel, "gateway", "token", "add", "envoy").strip()
    tunnel.gateway.stop()
    tunnel.start_gateway()
    server = Server(tunnel.path.server)
    with peer(tunnel.path.server, SERVER4) as echo:
        configuration = envoy.client(token, authority, f"{SERVER4}:{server.address[1]}", echo.address)
        envoy.start(tunnel.path, tunnel.path.terminal, "envoy", configuration)
        client = tunnel.path.terminal.socket(socket.AF_INET, socket.SOCK_STREAM)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", envoy.PORT))
        assert_half_closes(client, server)
        with connect_udp(tunnel.path.terminal, ("127.0.0.1", envoy.PORT)) as datagrams:
            for size in (0, 1, 1000):
                datagrams.send(bytes(size))
                assert len(datagrams.recv(2000)) == size
    server.close()


@pytest.fixture
def shown(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of a P-256 key, and that."""
    certificate, key = tmp_path / "envoy.pem", tmp_path / "envoy.key"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-subj", "/CN=envoy", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*words, *files], check=True, capture_output=True)
    return certificate, key


def test_our_terminal_has_connect_and_connect_udp_of_envoy(
    own_tunnel: Bentpipe, shown: tuple[Path, Path], tmp_path: Path
) -> None:
    tunnel = own_tunnel
    envoy.start(tunnel.path, tunnel.path.gateway, "envoy", envoy.gateway("let-me-in", *shown))
    ours = f"{SATELLITE.far4}:4433"
    token = tmp_path / "token"
    token.write_text("let-me-in\n")
    add = ("terminal", "gateways", "add", f"{SATELLITE.far4}:{envoy.GATEWAY_PORT}", "--certificate", shown[0])
    bentpipe(tunnel, *add, "--token-file", token)
    bentpipe(tunnel, "terminal", "gateways", "remove", ours)
    tunnel.terminal.stop()
    tunnel.gateway.stop()
    tunnel.start_terminal()
    server = Server(tunnel.path.server)
    client = tunnel.path.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.settimeout(PATIENCE_S)
    client.connect(server.address)
    assert_half_closes(client, server)
    with (
        peer(tunnel.path.server, SERVER4) as echo,
        connect_udp(tunnel.path.client, echo.address) as datagrams,
    ):
        # What leaves with the request Envoy drops when it comes before that.
        eventually(lambda: is_answered(datagrams), "datagrams are carried")
        read_rest(datagrams)
        for size in (0, 1, 1000):
            datagrams.send(bytes(size))
            assert len(datagrams.recv(2000)) == size
        assert echo.clients[0][0] != "10.77.0.2", "they come from the gateway"
    token.write_text("let-me-out\n")
    bentpipe(tunnel, *add, "--token-file", token)
    tunnel.terminal.stop()
    tunnel.start_terminal()
    refused = tunnel.path.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    refused.settimeout(PATIENCE_S)
    with refused, pytest.raises(ConnectionError):
        refused.connect(server.address)
        refused.sendall(b"question")
        refused.recv(100)
    server.close()


def test_another_gateway_than_the_one_that_was_named_is_refused(own_tunnel: Bentpipe, shown: tuple[Path, Path]) -> None:
    tunnel = own_tunnel
    terminal, ours = tunnel.terminal_config, f"{SATELLITE.far4}:4433"
    add = ("terminal", "gateways", "add", ours, "--certificate", shown[0])
    bentpipe(tunnel, *add)
    tunnel.terminal.stop()
    argv: list[str | Path] = [host.binary(), "terminal", "--config", terminal.absolute()]
    tunnel.terminal = tunnel.path.start("terminal", tunnel.path.terminal, argv)
    eventually(lambda: "but this terminal expects" in tunnel.terminal.log.read_text(), "the terminal tells")
    with pytest.raises(LabError, match="not a certificate in PEM"):
        bentpipe(tunnel, "terminal", "gateways", "add", ours, "--certificate", terminal)

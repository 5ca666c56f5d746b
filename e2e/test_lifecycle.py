"""Ends, crashes, restarts, strangers: what was there before is there after, and the rest is told."""

import random
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bentpipe_lab import host, measure
from bentpipe_lab.process import Process
from bentpipe_lab.system import GATEWAY_PORT, Bentpipe, enrolment, start_bentpipe, start_gateway
from bentpipe_lab.topology import SATELLITE, SERVER4, Topology
from bentpipe_lab.verdict import Verdict
from conversation import PATIENCE_S, assert_reset, connect, conversation

FOREIGN_TABLE = """
table inet somebody_elses {
    chain input { type filter hook input priority 0; policy accept; tcp dport 9 drop; }
}
"""


def works(tunnel: Bentpipe) -> bool:
    """Whether a download through the tunnel succeeds now."""
    return measure.download_2mb(tunnel.path).verdict is Verdict.OK


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition; fail when it does not come true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)


def network_state(path: Topology) -> str:
    """All that a terminal could change in its namespace's network: nftables, rules, routes."""
    return "\n".join(
        [
            path.terminal.run("nft", "list", "ruleset"),
            path.terminal.ip("rule", "show"),
            path.terminal.ip("-6", "rule", "show"),
            path.terminal.ip("route", "show", "table", "all"),
            path.terminal.ip("-6", "route", "show", "table", "all"),
        ]
    )


def test_gateway_killed_and_back(own_tunnel: Bentpipe) -> None:
    with conversation(own_tunnel.path) as (client, _):
        own_tunnel.gateway.kill()
        own_tunnel.start_gateway()
        assert_reset(client)
    eventually(lambda: works(own_tunnel), "a download through the gateway that came back")


def test_flows_that_arrive_while_the_gateway_is_away_end_by_reset_or_are_served_later(own_tunnel: Bentpipe) -> None:
    own_tunnel.gateway.kill()
    with connect(own_tunnel.path.client, (SERVER4, 80)) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert_reset(client)
    own_tunnel.start_gateway()
    eventually(lambda: works(own_tunnel), "a download through the gateway that came back")


def test_terminal_killed_and_back(own_tunnel: Bentpipe) -> None:
    own_tunnel.terminal.kill()
    own_tunnel.start_terminal()
    assert works(own_tunnel)


@pytest.mark.parametrize("crash", [False, True])
def test_terminal_stopped_leaves_the_network_as_it_was(path: Topology, tmp_path: Path, crash: bool) -> None:
    """Its own table, rules and routes are gone, and another party's table is untouched; also after a crash."""
    foreign = tmp_path / "foreign.nft"
    foreign.write_text(FOREIGN_TABLE)
    path.terminal.run("nft", "-f", foreign)
    before = network_state(path)
    tunnel = start_bentpipe(path)
    assert works(tunnel)
    assert network_state(path) != before
    if crash:
        tunnel.terminal.kill()
        tunnel.start_terminal()
    assert tunnel.terminal.stop() == 0
    assert network_state(path) == before
    assert works(tunnel), "without the tunnel, the path routes as before"


def test_gateway_stopped_ends_cleanly(own_tunnel: Bentpipe) -> None:
    assert own_tunnel.gateway.stop() == 0


def test_garbage_on_the_gateways_port_is_survived(own_tunnel: Bentpipe) -> None:
    noise = random.Random("garbage")  # noqa: S311 (noise, not a secret)
    with conversation(own_tunnel.path) as (client, peer):
        sender = own_tunnel.path.terminal.socket(kind=socket.SOCK_DGRAM)
        for _ in range(5000):
            data = bytearray(noise.randbytes(noise.choice([0, 1, 7, 20, 21, 100, 1200, 1400])))
            if len(data) >= 20 and noise.random() < 0.5:
                data[:6] = bytes(
                    [0xC0 | noise.randrange(64), *noise.choice([(0, 0, 0, 1), (0, 0, 0, 0), (1, 2, 3, 4)]), 8]
                )
            sender.sendto(data, (SATELLITE.far4, GATEWAY_PORT))
        sender.close()
        client.sendall(b"still there?")
        assert peer.recv(100) == b"still there?"
    assert own_tunnel.gateway.exit_code is None
    assert works(own_tunnel)


def test_another_gateway_at_the_address_is_told_by_both_ends(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    """Somebody else answers at the gateway's address: the terminal does not speak to it, and says whom it expected."""
    own_tunnel.gateway.stop()
    impostor = tmp_path / "impostor" / "gateway.toml"
    impostor.parent.mkdir()
    impostor.write_text(own_tunnel.gateway_config.read_text())
    enrolment(own_tunnel.path, impostor)
    hosts = own_tunnel.hosts
    gateway = start_gateway(own_tunnel.path, impostor, hosts)
    eventually(lambda: _tells_expected_key(own_tunnel.terminal), "the terminal says which key it expected")
    eventually(lambda: _tells_expected_key(gateway), "the gateway says which key it expected")
    with connect(own_tunnel.path.client, (SERVER4, 80)) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert_reset(client)


def test_a_terminal_that_never_joined_is_told_by_both_ends(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    """A terminal of another pairing knocks: the gateway refuses it and says so, and so does the terminal."""
    raise NotImplementedError(tmp_path)


def _tells_expected_key(process: Process) -> bool:
    said = process.log.read_text() + process.out.read_text()
    return "expected" in said and "key" in said


def test_joining_with_a_spent_line_is_an_error(path: Topology) -> None:
    """An enrolment line pairs one terminal."""
    tunnel = start_bentpipe(path)
    assert host.binary()
    assert tunnel

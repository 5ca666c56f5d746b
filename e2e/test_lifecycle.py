"""Ends, crashes, restarts, strangers: what was there before is there after, and the rest is told."""

import random
import re
import shutil
import socket
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import SATELLITE, SERVER4, Topology
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, Bentpipe, enrolment, start_bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import PATIENCE_S, assert_made_and_reset, assert_reset, conversation, eventually

KEY = re.compile(r"sha256:[\w-]+")
FOREIGN_TABLE = """
table inet somebody_elses {
    chain input { type filter hook input priority 0; policy accept; tcp dport 9 drop; }
}
"""


def works(tunnel: Bentpipe) -> bool:
    """Whether a download through the tunnel succeeds now."""
    return curl.download(tunnel.path, "2MB").verdict is Verdict.OK


def network_state(path: Topology) -> str:
    """All that a terminal could change in its namespace's network: nftables, rules, routes.

    The kernel's own routes are left out: some of IPv6 appear a second after the device.
    """
    said = "\n".join(
        [
            path.terminal.run("nft", "list", "ruleset"),
            path.terminal.ip("rule", "show"),
            path.terminal.ip("-6", "rule", "show"),
            path.terminal.ip("route", "show", "table", "all"),
            path.terminal.ip("-6", "route", "show", "table", "all"),
        ]
    )
    return "\n".join(line for line in said.splitlines() if "proto kernel" not in line)


def test_gateway_killed_and_back(own_tunnel: Bentpipe) -> None:
    with conversation(own_tunnel.path) as (client, _):
        own_tunnel.gateway.kill()
        own_tunnel.start_gateway()
        assert_reset(client)
    eventually(lambda: works(own_tunnel), "a download through the gateway that came back")


def test_flows_that_arrive_while_the_gateway_is_away_end_by_reset_or_are_served_later(own_tunnel: Bentpipe) -> None:
    own_tunnel.gateway.kill()
    assert_made_and_reset(own_tunnel.path.client, (SERVER4, 80))
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
    assert tunnel.terminal.stop() == 0
    text = tunnel.terminal_config.read_text()
    table = "[ingress.transparent]\n"
    tunnel.terminal_config.write_text(text.replace(table, f'{table}after_stop = "release"\n'))
    tunnel.start_terminal()
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


def test_another_gateway_at_the_address_is_told_by_the_terminal(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    """Somebody else answers at the gateway's address: the terminal does not speak to it, and says whom it expected."""
    expected, found = replace_gateway(own_tunnel, tmp_path)
    eventually(lambda: {expected, found} <= told_keys(own_tunnel.terminal), "the terminal names both keys")
    assert_made_and_reset(own_tunnel.path.client, (SERVER4, 80))


def test_another_gateway_at_the_address_is_told_by_the_gateway(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    expected, _ = replace_gateway(own_tunnel, tmp_path)
    attempt = "no session"
    eventually(lambda: attempt in said(own_tunnel.gateway), "the gateway tells of the attempt")
    assert expected in told_keys(own_tunnel.gateway)


def replace_gateway(tunnel: Bentpipe, directory: Path) -> tuple[str, str]:
    """Put a gateway with another key in the place of the right one; the right key, and the other."""
    tunnel.gateway.stop()
    expected = key(tunnel.gateway.out)
    impostor = directory / "impostor" / "gateway.toml"
    impostor.parent.mkdir()
    impostor.write_text(tunnel.gateway_config.read_text())
    enrolment(tunnel.path, impostor)
    tunnel.gateway_config = impostor
    tunnel.start_gateway()
    found = key(tunnel.gateway.out)
    assert found != expected
    return expected, found


def test_a_terminal_that_is_not_enrolled_is_told_by_both_ends(own_tunnel: Bentpipe) -> None:
    """The gateway has forgotten its terminals: it refuses this one by its key, and the terminal hears why."""
    own_tunnel.gateway.stop()
    (own_tunnel.gateway_config.parent / "terminals.toml").unlink()
    own_tunnel.start_gateway()
    eventually(lambda: "not enrolled" in said(own_tunnel.gateway), "the gateway says that the key is not enrolled")
    eventually(lambda: "not enrolled" in said(own_tunnel.terminal), "the terminal hears why it was refused")
    assert told_keys(own_tunnel.gateway) & told_keys(own_tunnel.terminal)
    assert_made_and_reset(own_tunnel.path.client, (SERVER4, 80))


def test_an_enrolment_line_pairs_one_terminal(own_tunnel: Bentpipe, tmp_path: Path) -> None:
    line = enrolment(own_tunnel.path, own_tunnel.gateway_config)
    for name, accepted in (("first", True), ("second", False)):
        config = tmp_path / name / "terminal.toml"
        config.parent.mkdir()
        shutil.copyfile(own_tunnel.terminal_config, config)
        joining = own_tunnel.path.start(f"join-{name}", own_tunnel.path.terminal, joining_command(config, line))
        assert (joining.wait(PATIENCE_S) == 0) is accepted, joining.tail()


def joining_command(config: Path, line: str) -> list[str | Path]:
    """The command which pairs a terminal."""
    return [host.binary(), "terminal", "join", "--config", config, line]


def said(process: Process) -> str:
    """Everything that a program said until now."""
    return process.out.read_text() + process.log.read_text()


def told_keys(process: Process) -> set[str]:
    """The keys that a program has named in its log."""
    return set(KEY.findall(process.log.read_text()))


def key(announcement: Path) -> str:
    """The key which a gateway announced last."""
    return str(KEY.findall(announcement.read_text())[-1])

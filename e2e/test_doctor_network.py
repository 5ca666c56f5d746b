"""`bentpipe doctor --network`: what it finds between a terminal and its gateway, and what it says of it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import SATELLITE, SERVER4, topology
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, Bentpipe, start_bentpipe

GATEWAY = f"{SATELLITE.far4}:{GATEWAY_PORT}"
RTT_MS = 120
PATH = f"""
name = "path"
[forward]
rate = "20 Mbit/s"
delay = "{RTT_MS // 2} ms"
queue = "300 kB"
[return]
rate = "20 Mbit/s"
delay = "{RTT_MS // 2} ms"
queue = "300 kB"
"""


@pytest.fixture(scope="module")
def far_tunnel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bentpipe]:
    """A tunnel over a path with a round trip that TCP feels."""
    directory = tmp_path_factory.mktemp("far")
    scenario = directory / "path.toml"
    scenario.write_text(PATH)
    with topology(directory / "run", scenario) as path:
        yield start_bentpipe(path)


def doctor(tunnel: Bentpipe, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Examine the network from the terminal's machine: the exit code, and the checks by name."""
    argv: list[str | Path] = [
        host.binary(), "doctor", "--json", "--config", tunnel.terminal_config.absolute(), "--network", GATEWAY,
        "--silence", "4s", *arguments,
    ]  # fmt: skip
    done = subprocess.run(tunnel.path.terminal.command(argv), capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)}


@contextmanager
def rule(where: Namespace, chain: str, text: str, table: str = "between") -> Iterator[None]:
    """A rule of a network in between."""
    table = f"ip {table}"
    where.run("nft", f"add table {table}; add chain {table} c {{ {chain} ; }}; add rule {table} c {text}")
    try:
        yield
    finally:
        where.run("nft", f"delete table {table}")


def test_a_plain_path(far_tunnel: Bentpipe) -> None:
    code, found = doctor(far_tunnel, "--url", f"http://{SERVER4}/2MB")
    assert code == 0, found
    assert found["UDP"]["state"] == "ok"
    assert found["path MTU"]["state"] == "ok"
    assert found["operator's TCP proxy"]["found"].endswith("no proxy between")
    assert "Mbit/s, through the tunnel" in found["throughput"]["found"]
    assert "failed" not in found["throughput"]["found"]
    for name in ("UDP after silence", "TCP after silence"):
        assert found[name]["found"].startswith("an answer still came after 4.0 s")
    assert "replaced" not in far_tunnel.gateway.log.read_text(), "the terminal that runs beside it keeps its session"


def test_a_nat_that_forgets(far_tunnel: Bentpipe) -> None:
    """Nothing comes in that does not answer what has gone out within two seconds, and nobody goes on out of nothing."""
    terminal = far_tunnel.path.terminal
    for timeout in ("udp_timeout", "udp_timeout_stream", "tcp_timeout_established"):
        terminal.run("sysctl", "-q", "-w", f"net.netfilter.nf_conntrack_{timeout}=2")
    unknown = f"ip daddr {SERVER4} tcp flags & syn == 0 ct state new drop"
    with (
        rule(terminal, "type filter hook input priority 0", "iifname sat0 ip protocol udp ct state new drop"),
        rule(terminal, "type filter hook output priority 0", unknown, "out"),
    ):
        code, found = doctor(far_tunnel, "--url", f"http://{SERVER4}/2MB")
    assert code == 0, found
    for name in ("UDP after silence", "TCP after silence"):
        assert found[name]["state"] == "worse", found
        assert ", none after " in found[name]["found"]


def test_a_proxy_of_the_operator(far_tunnel: Bentpipe) -> None:
    """Somebody answers in the gateway's place, sooner than the way allows."""
    terminal = far_tunnel.path.terminal
    with terminal.socket() as proxy:
        proxy.bind(("0.0.0.0", 9999))
        proxy.listen()
        with rule(terminal, "type nat hook output priority -100", "tcp dport 80 redirect to :9999"):
            code, found = doctor(far_tunnel)
    assert code == 0, found
    assert "sooner than the way allows" in found["operator's TCP proxy"]["found"]
    assert found["would bentpipe help"]["state"] == "worse"
    assert "the operator's proxy does for plain TCP what bentpipe does" in found["would bentpipe help"]["found"]


def test_a_small_path_mtu(far_tunnel: Bentpipe) -> None:
    gateway, terminal = far_tunnel.path.gateway, far_tunnel.path.terminal
    for end in (gateway, terminal):
        end.ip("link", "set", "sat0", "mtu", "1330")
    try:
        code, found = doctor(far_tunnel)
    finally:
        for end in (gateway, terminal):
            end.ip("link", "set", "sat0", "mtu", "1500")
    assert code == 0, found
    assert found["path MTU"]["state"] == "worse"
    assert 1200 <= int(found["path MTU"]["found"].split()[0]) <= 1330 - 28


def test_udp_that_is_dropped(far_tunnel: Bentpipe) -> None:
    with rule(far_tunnel.path.gateway, "type filter hook input priority 0", f"udp dport {GATEWAY_PORT} drop"):
        code, found = doctor(far_tunnel)
    assert code == 1
    assert found["UDP"]["state"] == "missing"
    assert "answers TCP" in found["UDP"]["remedy"]


def test_a_gateway_that_the_terminal_does_not_know(far_tunnel: Bentpipe) -> None:
    argv: list[str | Path] = [
        host.binary(), "doctor", "--config", far_tunnel.terminal_config.absolute(), "--network", "192.0.2.1:4433",
    ]  # fmt: skip
    done = subprocess.run(far_tunnel.path.terminal.command(argv), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert GATEWAY in done.stderr

"""What the owner of a terminal's machine does to it, and what befalls it: hosts that sleep, routing rules swept away,
`nft` that hangs, a port that was changed, no descriptors, IPv6 alone at an MTU of 1280.

The path is of plain cables: nothing here depends on a satellite.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.topology import GROUND, LAN, SATELLITE, SERVER4, SERVER6, Topology, topology
from bentpipe_lab.systems.tunnel import (
    RESOLVER,
    Bentpipe,
    Transport,
    enrolment,
    gateway_toml,
    start_bentpipe,
    start_gateway,
    start_terminal,
    terminal_toml,
)
from conversation import PATIENCE_S, Server, assert_reset, connect, conversation, eventually, reset
from datagrams import ask, connect_udp, peer
from dish_side import capture, captured
from test_leak import OF_THE_LAN, send_everything
from test_transparent import configure, works

ASLEEP = "table inet asleep {\nchain input {\ntype filter hook input priority 0; policy drop;\n}\n}\n"
UNTRACKED = (
    "table inet untracked {\nchain prerouting {\ntype filter hook prerouting priority raw;\nnotrack;\n}\n"
    "chain output {\ntype filter hook output priority raw;\nnotrack;\n}\n}\n"
)
MOST_UNTRACKED = 65_536
"""Connections that are not tracked and known all the same."""
LEFT_S = 120
"""How long they are known after their end."""
HANGS_S = 10.0
"""How long the product waits for `nft`."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Topology]:
    with topology(tmp_path) as built:
        yield built


@pytest.mark.parametrize(("running", "loose"), [(True, True), (True, False), (False, True)])
def test_a_host_that_slept_while_its_connection_ended_does_not_go_on_outside(
    path: Topology, tmp_path: Path, running: bool, loose: bool
) -> None:
    """It has missed the reset, and the kernel has forgotten the connection; it still sends what it had to say.

    Conntrack takes that for a new connection where it is loose, and for invalid otherwise.
    """
    rules = tmp_path / "asleep.nft"
    rules.write_text(ASLEEP)
    tunnel = start_bentpipe(path)
    # From the second start on, no connection is from before it.
    tunnel.terminal.kill()
    tunnel.start_terminal()
    path.terminal.sysctl(
        net__netfilter__nf_conntrack_tcp_timeout_close=1, net__netfilter__nf_conntrack_tcp_loose=int(loose)
    )
    during = capture(path, "during", OF_THE_LAN)
    with conversation(path) as (client, peer):
        path.client.run("nft", "-f", rules)
        if running:
            reset(peer)
        else:
            tunnel.terminal.kill()
        eventually(lambda: not known_to_conntrack(path), "the kernel has forgotten the connection")
        path.client.run("nft", "delete", "table", "inet", "asleep")
        client.sendall(b"what it had to say")
        if running and loose:
            assert_reset(client)
        else:
            # It is sent again after 0.2 and 0.4 s.
            time.sleep(1)
    assert captured(during) == ""


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_what_the_owner_does_not_track_is_taken_and_never_passes(path: Topology, tmp_path: Path, address: str) -> None:
    """Nothing tells then whether a packet belongs to a connection that was taken, but what was written down of it."""
    untracked, asleep = tmp_path / "untracked.nft", tmp_path / "asleep.nft"
    untracked.write_text(UNTRACKED)
    asleep.write_text(ASLEEP)
    path.terminal.run("nft", "-f", untracked)
    tunnel = start_bentpipe(path)
    tunnel.terminal.kill()
    tunnel.start_terminal()
    during = capture(path, "during", OF_THE_LAN)
    send_everything(path)
    with peer(path.server, address) as echo, connect_udp(path.client, echo.address) as client:
        ask(client, b"datagrams")
    with conversation(path, address) as (client, origin):
        path.client.run("nft", "-f", asleep)
        reset(origin)
        eventually(lambda: not path.terminal.run("ss", "-Htn", "dport", "=", str(client.getsockname()[1])), "reset")
        path.client.run("nft", "delete", "table", "inet", "asleep")
        client.sendall(b"what it had to say")
        assert_reset(client)
    with conversation(path, address) as (client, _):
        path.client.run("nft", "-f", asleep)
        tunnel.terminal.kill()
        path.client.run("nft", "delete", "table", "inet", "asleep")
        client.sendall(b"what it had to say")
        send_everything(path)
        time.sleep(1)
    assert captured(during) == ""


def test_untracked_connections_beyond_those_that_can_be_known_are_not_begun(path: Topology, tmp_path: Path) -> None:
    """What followed the end of one that is not known would pass in the open. Those that ended are soon forgotten."""
    untracked = tmp_path / "untracked.nft"
    untracked.write_text(UNTRACKED)
    path.terminal.run("nft", "-f", untracked)
    tunnel = start_bentpipe(path)
    assert works(tunnel)
    (table,) = (
        line.split()[2] for line in path.terminal.run("nft", "list", "tables").splitlines() if "bentpipe_" in line
    )

    def expires_s() -> list[int]:
        listed = json.loads(path.terminal.run("nft", "-j", "list", "set", "inet", table, "untracked4"))
        (known,) = (entry["set"] for entry in listed["nftables"] if "set" in entry)
        return [int(element["elem"]["expires"]) for element in known.get("elem", [])]

    eventually(lambda: all(seconds <= LEFT_S for seconds in expires_s()), "ended connections are forgotten soon")
    with conversation(path, SERVER4):
        assert max(expires_s()) > LEFT_S, "one that goes on is known for longer"
    during = capture(path, "during", OF_THE_LAN)
    others = (f"192.0.2.{number >> 12} . {1 + (number & 0xFFF)} . 192.0.2.99 . 1" for number in range(MOST_UNTRACKED))
    full = tmp_path / "full.nft"
    full.write_text(f"add element inet {table} untracked4 {{ {', '.join(others)} }}\n")
    path.terminal.run("nft", "flush", "set", "inet", table, "untracked4")
    path.terminal.run("nft", "-f", full)
    with path.client.entered(), socket.socket() as late:
        late.settimeout(3)
        with pytest.raises(TimeoutError):
            late.connect((SERVER4, 80))
    path.terminal.run("nft", "flush", "set", "inet", table, "untracked4")
    assert works(tunnel)
    assert captured(during) == ""


def known_to_conntrack(path: Topology) -> bool:
    """Whether the terminal's machine knows of a connection of the client's."""
    with path.terminal.entered():
        # proc(5) shows a thread's own namespace there.
        return f"src={LAN.far4}" in Path("/proc/thread-self/net/nf_conntrack").read_text()


def test_routing_rules_that_are_swept_away_are_put_back(path: Topology) -> None:
    """As systemd-networkd does with rules that are not its own."""
    tunnel = start_bentpipe(path)
    for family in ("-4", "-6"):
        before = path.terminal.ip(family, "rule")
        for line in before.splitlines():
            preference, _, rest = line.partition(":")
            if "fwmark" in rest:
                path.terminal.ip(family, "rule", "delete", "preference", preference)
        eventually(lambda: path.terminal.ip(family, "rule") == before, "the rules are back")  # noqa: B023
    assert works(tunnel)


def with_nft(tunnel: Bentpipe, directory: Path) -> Path:
    """Start the terminal anew with an `nft` of the test's own before the system's; where that is."""
    directory.mkdir()
    program = directory / "nft"
    program.write_text('#!/bin/sh\nexec /usr/sbin/nft "$@"\n')
    program.chmod(0o755)
    tunnel.terminal.stop()
    words: list[str | Path] = ["env", f"PATH={directory}:{os.environ['PATH']}", host.binary(), "terminal"]
    words += ["--config", tunnel.terminal_config.absolute()]
    tunnel.terminal = tunnel.path.start("terminal", tunnel.path.terminal, words)
    return program


def test_an_nft_that_hangs_holds_up_neither_start_nor_stop_and_nothing_passes(path: Topology, tmp_path: Path) -> None:
    tunnel = start_bentpipe(path)
    configure(tunnel, 'after_stop = "release"')
    program = with_nft(tunnel, tmp_path / "bin")
    tunnel.terminal.wait_line("session: up")
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    began = time.monotonic()
    tunnel.terminal.signal(signal.SIGINT)
    assert tunnel.terminal.wait(PATIENCE_S) == 0
    assert time.monotonic() - began >= HANGS_S, "it was given time"
    said = tunnel.terminal.log.read_text()
    assert "did not end within 10s" in said
    assert "held back" in said
    assert "bentpipe_" in path.terminal.run("nft", "list", "tables")
    # A start too.
    words: list[str | Path] = ["env", f"PATH={program.parent}:{os.environ['PATH']}", host.binary(), "terminal"]
    command = path.terminal.command([*words, "--config", tunnel.terminal_config.absolute()])
    started = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert started.returncode == 1
    assert "did not end within 10s" in started.stderr
    tunnel.start_terminal()
    assert works(tunnel)


def test_rules_of_a_port_that_was_changed_are_told(path: Topology) -> None:
    """They hold back for the old port, whatever the new one carries."""
    tunnel = start_bentpipe(path)
    assert tunnel.terminal.stop() == 0
    configure(tunnel, "port = 4499")
    tunnel.start_terminal()
    eventually(lambda: "nft delete table inet" in tunnel.terminal.log.read_text(), "it is told")
    (line,) = (line for line in tunnel.terminal.log.read_text().splitlines() if "nft delete table" in line)
    path.terminal.run(*line.split("`")[1].split())
    assert works(tunnel)


@pytest.mark.parametrize("end", ["terminal", "gateway"])
def test_an_end_that_may_open_next_to_nothing_says_so(path: Topology, end: str) -> None:
    tunnel = start_bentpipe(path)
    process = tunnel.terminal if end == "terminal" else tunnel.gateway
    config = tunnel.terminal_config if end == "terminal" else tunnel.gateway_config
    where = path.terminal if end == "terminal" else path.gateway
    process.kill()
    for files in (6, 12, 63):
        words: list[str | Path] = ["prlimit", f"--nofile={files}:{files}", host.binary(), end]
        command = where.command([*words, "--config", config.absolute()])
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert ended.returncode == 1
        assert f"{files} files may be open" in ended.stderr, ended.stderr
        assert "panicked" not in ended.stderr


def test_ipv6_alone_at_an_mtu_of_1280(path: Topology) -> None:
    """No end has an address of IPv4 but loopback's, and no link carries more than IPv6 asks for."""
    for where, devices in (
        (path.client, ["lan0"]),
        (path.terminal, ["lan0", "sat0"]),
        (path.gateway, ["sat0", "gnd0"]),
        (path.server, ["gnd0"]),
    ):
        for device in devices:
            where.ip("-4", "address", "flush", "dev", device)
            where.ip("link", "set", device, "mtu", "1280")
    tunnel = start_by_ipv6(path)
    server = Server(path.server, SERVER6)
    data = bytes(range(256)) * 4096
    with connect(path.client, server.address) as client, server.accept() as peer:
        assert peer.getpeername()[0] == GROUND.near6
        for near, far in ((client, peer), (peer, client)):
            near.settimeout(PATIENCE_S)
            sent = len(data) // 8
            near.sendall(data[:sent])
            received = bytearray()
            while len(received) < sent:
                received += far.recv(1 << 16)
            assert received == data[:sent]
    server.close()
    tunnel.gateway.kill()
    tunnel.start_gateway()
    tunnel.terminal.wait_line("session: up")
    with conversation(path, SERVER6):
        pass


def start_by_ipv6(path: Topology) -> Bentpipe:
    """A tunnel whose gateway is known by an address of IPv6, and whose terminal has no resolver at one of IPv4."""
    gateway, terminal, hosts = (path.directory / name for name in ("gateway.toml", "terminal.toml", "hosts"))
    gateway.write_text(gateway_toml(Transport()).replace("0.0.0.0", "[::]"))
    terminal.write_text(
        terminal_toml(Transport()).replace(RESOLVER[0], f"[{LAN.near6}]").replace(f"{LAN.far4}/32", f"{LAN.far6}/128")
    )
    hosts.write_text("127.0.0.1 localhost\n")
    hosts.with_name("resolv.conf").write_text(f"nameserver {SERVER6}\n")
    line = enrolment(path, gateway, f"[{SATELLITE.far6}]")
    running = start_gateway(path, gateway, hosts)
    path.terminal.run(host.binary(), "terminal", "join", "--config", terminal.absolute(), line)
    return Bentpipe(path, gateway, terminal, hosts, running, start_terminal(path, terminal))

"""Faults from outside: a log that nobody reads, a disk that stands still, descriptors that run out at the wrong moment.

The path is of plain cables: nothing here depends on a satellite.
"""

import itertools
import os
import resource
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

from bentpipe_lab.net import host, netns
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import GROUND, LAN, SATELLITE, SERVER6, Topology, topology
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, HTTP, RESOLVER, SOCKS, Bentpipe, start_bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import PATIENCE_S, assert_reset, conversation, eventually
from test_transparent import passes

PIPE_BYTES = 4096
"""What the smallest pipe holds."""
RELOADS = 400
"""Each is a line of the log, or two."""
ENDS_S = 30.0
"""A daemon that is stopped while its disk stands still has ended by then."""
HANDSHAKES = 600
IDLE = 600
"""Connections of one host that say nothing."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Topology]:
    with topology(tmp_path) as built:
        yield built


@pytest.fixture
def own_tunnel(path: Topology) -> Bentpipe:
    return start_bentpipe(path)


def works(tunnel: Bentpipe) -> bool:
    """Whether a download through the tunnel succeeds now."""
    return curl.download(tunnel.path, "2MB").verdict is Verdict.OK


def run(tunnel: Bentpipe, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run bentpipe on the gateway's machine to its end."""
    command = tunnel.path.gateway.command([host.binary(), *words])
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


@contextmanager
def without_descriptors(end: Process) -> Iterator[None]:
    """An end that can open nothing."""
    before = resource.prlimit(end.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(end.pid, resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(end.pid, resource.RLIMIT_NOFILE, before)


def said(end: Process) -> str:
    """What an end has logged."""
    return end.log.read_text()


def test_a_log_that_nobody_reads_stops_nothing(own_tunnel: Bentpipe) -> None:
    """Standard output and standard error are one full pipe, as behind a log collector that stands still."""
    own_tunnel.terminal.stop()
    text = own_tunnel.terminal_config.read_text()
    read, write = os.pipe()
    words: list[str | Path] = [
        host.binary(),
        "terminal",
        "--config",
        own_tunnel.terminal_config.absolute(),
    ]
    terminal = subprocess.Popen(own_tunnel.path.terminal.command(words), stdout=write, stderr=write)
    try:
        eventually(lambda: works(own_tunnel), "it works")
        os.set_blocking(write, False)
        with suppress(BlockingIOError):
            while True:
                os.write(write, bytes(PIPE_BYTES))
        # Non-blocking is a property of what both share.
        os.set_blocking(write, True)
        for number in range(RELOADS):
            level = ("info", "debug")[number % 2]
            own_tunnel.terminal_config.write_text(f'log = "{level}"\n{text}')
            terminal.send_signal(signal.SIGHUP)
        for _ in range(4):
            assert works(own_tunnel)
        terminal.send_signal(signal.SIGTERM)
        assert terminal.wait(ENDS_S) == 0
    finally:
        terminal.kill()
        terminal.wait()
        os.close(read)
        os.close(write)


def test_a_terminal_revoked_while_the_gateway_cannot_open_its_list_is_out_as_soon_as_it_can(
    own_tunnel: Bentpipe,
) -> None:
    gateway = own_tunnel.gateway
    (line,) = run(
        own_tunnel,
        "gateway",
        "terminals",
        "list",
        "--config",
        own_tunnel.gateway_config,
    ).stdout.splitlines()
    with conversation(own_tunnel.path) as (client, _):
        with without_descriptors(gateway):
            revoked = run(
                own_tunnel,
                "gateway",
                "terminals",
                "revoke",
                line.split()[-1],
                "--config",
                own_tunnel.gateway_config,
            )
            assert revoked.returncode == 0, revoked.stderr
            eventually(
                lambda: "Too many open files" in said(gateway),
                "the gateway cannot read its list",
            )
        assert_reset(client)
    eventually(
        lambda: "no longer enrolled" in said(own_tunnel.terminal),
        "the terminal is told",
    )


def test_rules_that_are_swept_away_while_nothing_can_be_opened_are_put_back_as_soon_as_it_can(
    own_tunnel: Bentpipe,
) -> None:
    terminal, where = own_tunnel.terminal, own_tunnel.path.terminal
    with without_descriptors(terminal):
        where.run("nft", "flush", "ruleset")
        eventually(lambda: "Too many open files" in said(terminal), "they cannot be put back")
    eventually(lambda: "bentpipe_" in where.run("nft", "list", "tables"), "the rules are back")
    assert works(own_tunnel)


def test_a_second_start_takes_nothing_from_the_first(own_tunnel: Bentpipe) -> None:
    text = own_tunnel.terminal_config.read_text()
    before = own_tunnel.path.terminal.run("nft", "list", "ruleset")
    # Neither SOCKS5 nor another listener tells it before the rules do.
    alone = text.split("[ingress.socks5]")[0]
    own_tunnel.terminal_config.write_text(alone)
    words: list[str | Path] = [
        host.binary(),
        "terminal",
        "--config",
        own_tunnel.terminal_config.absolute(),
    ]
    command = own_tunnel.path.terminal.command(words)
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert second.returncode != 0
    assert "running" in second.stderr or "in use" in second.stderr
    status = run(own_tunnel, "status", "--config", own_tunnel.terminal_config)
    assert status.returncode == 0, status.stderr
    assert own_tunnel.path.terminal.run("nft", "list", "ruleset") == before
    assert works(own_tunnel)


@pytest.mark.parametrize("end", ["terminal", "gateway"])
def test_a_disk_that_stands_still_keeps_nobody_from_stopping(own_tunnel: Bentpipe, end: str) -> None:
    """What is known of the path is written at the end; that file's disk never answers."""
    process = own_tunnel.terminal if end == "terminal" else own_tunnel.gateway
    config = own_tunnel.terminal_config if end == "terminal" else own_tunnel.gateway_config
    # Whoever opens a FIFO to write waits for a reader.
    os.mkfifo(config.with_name(f"{end}.paths.toml.new"))
    assert works(own_tunnel)
    process.signal(signal.SIGINT)
    assert process.wait(ENDS_S) == 0


@pytest.mark.parametrize("listener", [SOCKS, HTTP, RESOLVER])
def test_a_host_that_opens_connections_and_says_nothing_does_not_shut_others_out(
    own_tunnel: Bentpipe, listener: tuple[str, int]
) -> None:
    path, terminal = own_tunnel.path, own_tunnel.terminal
    where = path.client if listener is RESOLVER else path.terminal
    before = resource.prlimit(terminal.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(terminal.pid, resource.RLIMIT_NOFILE, (IDLE // 2, before[1]))
    idle: list[socket.socket] = []
    try:
        for _ in range(IDLE):
            connection = where.socket()
            connection.setblocking(False)
            connection.connect_ex(listener)
            idle.append(connection)
        eventually(lambda: works(own_tunnel), "others are served")
    finally:
        for connection in idle:
            connection.close()


def test_a_host_that_begins_handshakes_without_end_shuts_no_terminal_out(own_tunnel: Bentpipe) -> None:
    """Each is sound and goes no further; they come from as many ports as there are places for one host, and more."""
    gateway = (GROUND.near4, GATEWAY_PORT)
    beginnings = [beginning(gateway) for _ in range(HANDSHAKES)]
    ports = [own_tunnel.path.server.socket(kind=socket.SOCK_DGRAM) for _ in range(64)]
    over = threading.Event()

    def flood() -> None:
        for number, datagram in enumerate(itertools.cycle(beginnings)):
            if over.wait(0.002):
                return
            with suppress(OSError):
                ports[number % len(ports)].sendto(datagram, gateway)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        for _ in range(5):
            own_tunnel.terminal.kill()
            own_tunnel.start_terminal()
            assert works(own_tunnel)
    finally:
        over.set()
        thread.join()
        for port in ports:
            port.close()
    assert len(said(own_tunnel.gateway).splitlines()) < HANDSHAKES // 2, "the log is not flooded either"


def beginning(gateway: tuple[str, int]) -> bytes:
    """The first datagram of a client that nobody knows."""
    client = QuicConnection(configuration=QuicConfiguration(is_client=True, alpn_protocols=["h3"]))
    client.connect(gateway, now=0.0)
    return client.datagrams_to_send(now=0.0)[0][0]


def test_a_lan_interface_that_goes_and_comes_back_is_taken_as_before(
    own_tunnel: Bentpipe,
) -> None:
    """As one on USB does."""
    path = own_tunnel.path
    path.terminal.ip("link", "delete", "lan0")
    lay_cable(path)
    eventually(lambda: works(own_tunnel), "it works again")


def lay_cable(path: Topology) -> None:
    """The client's cable, with its addresses, as it was."""
    netns.veth(path.terminal, "lan0", path.client, "lan0")
    for end, address in ((path.terminal, LAN.near4), (path.client, LAN.far4)):
        end.ip("address", "add", f"{address}/24", "dev", "lan0")
    path.client.ip("route", "add", "default", "via", LAN.near4, "dev", "lan0")


@pytest.mark.parametrize("at_the_start", [True, False])
def test_ipv6_that_is_switched_on_later_is_taken_and_never_passes(path: Topology, at_the_start: bool) -> None:
    """Off when the terminal starts, or switched off and on while it runs."""
    if at_the_start:
        path.terminal.sysctl(net__ipv6__conf__all__disable_ipv6=1)
    tunnel = start_bentpipe(path)
    path.terminal.sysctl(net__ipv6__conf__all__disable_ipv6=1)
    assert works(tunnel)
    switch_on_ipv6(path)
    assert not passes(path, SERVER6)
    with conversation(path, SERVER6):
        pass


def switch_on_ipv6(path: Topology) -> None:
    """IPv6 at the terminal, with the addresses and the route that its end had taken away."""
    path.terminal.sysctl(net__ipv6__conf__all__disable_ipv6=0)
    for device, hop in (("lan0", LAN), ("sat0", SATELLITE)):
        path.terminal.ip("-6", "address", "add", f"{hop.near6}/64", "dev", device, "nodad")
    path.terminal.ip("-6", "route", "replace", "default", "via", SATELLITE.far6, "dev", "sat0")

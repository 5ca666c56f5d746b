"""`bentpipe tcp-pep` when hosts, origins and it itself misbehave: what both ends see, what it holds, what is left."""

import re
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bentpipe_lab.net import host
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import BLACKHOLE4, PRIVATE4, SERVER6, UNREACHABLE4, Topology, topology
from conversation import (
    PATIENCE_S,
    Server,
    assert_made_and_reset,
    assert_reset,
    connect,
    conversation,
    digest,
    eventually,
    payload,
    read_to_end,
    reset,
    send_in_background,
)
from pep import BOXES, start
from test_unread_transfers import descriptors

MANY = 2_000
UNREAD, UNREAD_MIB = 300, 80
"""Transfers that nobody reads, and what the proxy may grow by: two buffers of 64 KiB each, and the rest."""
FAR = PRIVATE4
"""Of the server, behind a router: the gateway leaves alone what it is connected to itself."""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Topology]:
    with topology(tmp_path, web_server=False) as built:
        yield built


def connections(where: Namespace, address: str = FAR) -> list[str]:
    """The TCP connections of a box with an address, as the kernel tells of them."""
    return where.run("ss", "-tnH", "dst", address).splitlines()


@contextmanager
def opened(path: Topology, count: int, server: Server) -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """So many connections, all begun before the first is accepted."""
    with descriptors(4 * count + 256), ExitStack() as sockets:
        server.socket.listen(count)
        clients = []
        with path.client.entered():
            for _ in range(count):
                client = sockets.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(server.address)
                clients.append(client)
        for client in clients:
            client.settimeout(PATIENCE_S)
        yield clients, [sockets.enter_context(server.accept()) for _ in clients]


def fill(end: socket.socket) -> int:
    """Send until nothing more is taken for a while; how much was."""
    end.setblocking(False)
    sent, piece = 0, bytes(1 << 16)
    while select.select([], [end], [], 1.0)[1]:
        try:
            sent += end.send(piece)
        except BlockingIOError:
            continue
    end.settimeout(PATIENCE_S)
    return sent


@BOXES
def test_two_thousand_connections_at_once(path: Topology, boxes: str) -> None:
    start(path, boxes)
    server = Server(path.server, FAR)
    with opened(path, MANY, server) as (clients, servers):
        for number, client in enumerate(clients):
            client.sendall(number.to_bytes(2, "big"))
        heard = [int.from_bytes(each.recv(2, socket.MSG_WAITALL), "big") for each in servers]
        assert sorted(heard) == list(range(MANY))
        for each, number in zip(servers, heard, strict=True):
            each.sendall(number.to_bytes(2, "big"))
        for number, client in enumerate(clients):
            assert int.from_bytes(client.recv(2, socket.MSG_WAITALL), "big") == number
    server.close()
    eventually(lambda: not connections(path.gateway), "nothing is left of them")


@BOXES
@pytest.mark.parametrize("who", ["client", "server"])
def test_a_reset_is_told_to_an_end_that_does_not_read(path: Topology, boxes: str, who: str) -> None:
    start(path, boxes)
    with conversation(path, FAR) as (client, server):
        gone, other = (client, server) if who == "client" else (server, client)
        assert fill(gone) > 1 << 20
        reset(gone)
        poll = select.poll()
        poll.register(other, select.POLLERR)
        assert poll.poll(PATIENCE_S * 1e3), "it is told without reading"
    eventually(lambda: not connections(path.gateway), "nothing is left of it")


@BOXES
def test_what_nobody_reads_is_bounded(path: Topology, boxes: str) -> None:
    first = start(path, boxes)[-1]
    server = Server(path.server, FAR)
    with opened(path, UNREAD, server) as (clients, _):
        before = first.resident_bytes()
        for client in clients:
            client.setblocking(False)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for client in select.select([], clients, [], 1.0)[1]:
                try:
                    client.send(bytes(1 << 16))
                except BlockingIOError:
                    continue
        grown = (first.resident_bytes() - before) >> 20
        assert grown < UNREAD_MIB, f"{grown} MiB"
        with conversation(path, FAR) as (client, peer):
            data = payload(300_000)
            send_in_background(client, data, then_shut=True)
            assert digest(read_to_end(peer)) == digest(data), "others go on"
    server.close()


@BOXES
def test_an_origin_that_cannot_be_reached_is_a_reset(path: Topology, boxes: str) -> None:
    start(path, boxes)
    assert_made_and_reset(path.client, (UNREACHABLE4, 80))


@BOXES
def test_an_origin_that_does_not_answer_is_a_reset_and_nobody_waits_for_it_who_has_gone(
    path: Topology, boxes: str
) -> None:
    started = start(path, boxes)
    waiting = connect(path.client, (BLACKHOLE4, 80))
    gone = connect(path.client, (BLACKHOLE4, 80))
    eventually(lambda: len(connections(path.gateway, BLACKHOLE4)) == 2, "the proxy tries both")
    reset(gone)
    eventually(lambda: len(connections(path.gateway, BLACKHOLE4)) == 1, "it tries one")
    assert_reset(waiting)
    eventually(lambda: not connections(path.gateway, BLACKHOLE4), "it tries none")
    assert all(process.exit_code is None for process in started)


@BOXES
def test_both_ends_at_once(path: Topology, boxes: str) -> None:
    start(path, boxes)
    data = payload(1_000_000)
    for _ in range(20):
        with conversation(path, FAR) as (client, server):
            sending = [send_in_background(end, data, then_shut=True) for end in (client, server)]
            assert digest(read_to_end(client)) == digest(read_to_end(server)) == digest(data)
            for thread in sending:
                thread.join()
    with conversation(path, FAR) as (client, server):
        reset(client)
        reset(server)
    eventually(lambda: not connections(path.gateway), "nothing is left of them")


@BOXES
def test_an_urgent_byte_is_a_byte_of_the_stream(path: Topology, boxes: str) -> None:
    start(path, boxes)
    with conversation(path, FAR) as (client, server):
        for sender, reader in ((client, server), (server, client)):
            sender.sendall(b"before")
            sender.send(b"!", socket.MSG_OOB)
            sender.sendall(b"after")
            sender.shutdown(socket.SHUT_WR)
            assert read_to_end(reader) == b"before!after"


def test_ipv6_is_reset_and_refused_alike(path: Topology) -> None:
    start(path, "distributed")
    with conversation(path, SERVER6) as (client, server):
        reset(server)
        assert_reset(client)
    closed = Server(path.server, SERVER6)
    closed.close()
    assert_made_and_reset(path.client, closed.address)


def test_connections_from_before_the_start_go_on(path: Topology) -> None:
    with conversation(path, FAR) as (client, server):
        started = start(path, "integrated")
        data = payload(1_000_000)
        for sender, reader in ((client, server), (server, client)):
            send_in_background(sender, data, then_shut=True)
            assert digest(read_to_end(reader)) == digest(data)
        assert started[0].exit_code is None


@BOXES
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_its_end_resets_what_is_open_and_lets_others_pass(path: Topology, boxes: str, number: signal.Signals) -> None:
    started = start(path, boxes)
    with conversation(path, FAR) as (client, server):
        for process in reversed(started):
            process.signal(number)
            code = process.wait()
            assert code == (0 if number == signal.SIGTERM else -number), process.tail()
        assert_reset(client)
        assert_reset(server)
    # Unsplit, as documented; and split again.
    with conversation(path, FAR) as (client, server):
        assert server.getpeername()[0] == client.getsockname()[0]
    for process in start(path, boxes):
        assert process.exit_code is None
    with conversation(path, FAR) as (client, server):
        assert server.getpeername()[0] != client.getsockname()[0]


# Odd and even: with one descriptor left a connection could be taken and not be carried on.
@pytest.mark.parametrize("files", [180, 181])
def test_without_descriptors_connections_wait_and_are_served_later(path: Topology, files: int) -> None:
    few = ("prlimit", f"--nofile={files}:{files}")
    proxy = path.start("few", path.gateway, [*few, host.binary(), "tcp-pep", "--interfaces", "sat0"])
    proxy.wait_line("tcp-pep: ")
    server = Server(path.server, FAR)
    server.socket.listen(200)
    clients = [connect(path.client, server.address) for _ in range(100)]
    time.sleep(0.5)
    used = used_cpu(proxy, 1.0)
    assert used < 0.25, f"it spins: {used} s of processor time"
    server.socket.settimeout(2.0)
    accepted = []
    try:
        while True:
            accepted.append(server.socket.accept()[0])
    except TimeoutError:
        assert 50 < len(accepted) < 100
    for end in accepted:
        reset(end)
    # None was reset meanwhile: the others are served now.
    server.socket.settimeout(10.0)
    for _ in range(len(clients) - len(accepted)):
        server.accept().close()
    for end in clients:
        end.close()
    eventually(lambda: works(path), "it works again")
    assert proxy.exit_code is None
    said = re.findall("no room for more connections: the next ones wait", proxy.log.read_text())
    assert len(said) == 1
    server.close()


def used_cpu(process: Process, seconds: float) -> float:
    """Processor time of that long."""
    before = process.cpu_seconds()
    time.sleep(seconds)
    return process.cpu_seconds() - before


def works(path: Topology) -> bool:
    """Whether a connection made now gets to the server."""
    server = Server(path.server, FAR)
    server.socket.settimeout(2.0)
    try:
        with connect(path.client, server.address) as client, server.accept() as peer:
            client.sendall(b"?")
            return peer.recv(1) == b"?"
    except OSError:
        return False
    finally:
        server.close()

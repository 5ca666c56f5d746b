"""Transfers that nobody reads, either way: what they hold is bounded, as the kernel counts it."""

import os
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.systems.tunnel import Bentpipe, Transport, start_bentpipe
from conversation import PATIENCE_S
from memory import ends, held_mib, kernel_bytes

LONG = "BENTPIPE_ROUGH_S" in os.environ
TRANSFERS, MEMORY_MIB = (1500, 256) if LONG else (600, 128)
RESIDENT_MIB = MEMORY_MIB * 3 // 2 + 64
"""The kernel may hold half as much again as `memory`, and the program itself needs some."""
SMALL_BUFFER = 8192
"""Of the ends of the lab: what they do not hold, the tunnel is offered."""
QUIET_S = 2.0
"""Nothing more was taken for so long: all is full."""

STOPPED, STOPPED_MEMORY = 10, 16 << 20
"""Transfers that are read first, and `memory` for them."""
FLOOR = 64 * 1024
"""What every connection's receive buffer may hold."""
PART = 2 << 20
STOPPED_S = 0.5
"""Nothing more was taken of one transfer for so long."""


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Room for so many sockets in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(count, before[0]), max(count, before[1])))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.long
@pytest.mark.parametrize("upload", [False, True])
def test_transfers_that_nobody_reads_stay_within_memory(path: Topology, upload: bool) -> None:
    tunnel = start_bentpipe(path, Transport(memory=f"{MEMORY_MIB} MiB"))
    near, far = socket.SO_RCVBUF, socket.SO_SNDBUF
    if upload:
        near, far = far, near
    with descriptors(4 * TRANSFERS), ExitStack() as sockets:
        listener = listen(path, sockets, far)
        clients = connect(path, sockets, listener, near)
        servers = accept(sockets, listener)
        fills(tunnel, clients if upload else servers)


@pytest.mark.long
@pytest.mark.parametrize("upload", [False, True])
def test_what_the_kernel_holds_after_readers_have_stopped_is_bounded(path: Topology, upload: bool) -> None:
    """Each is read fast, for which the kernel opens its window wide, and then not at all."""
    settings = Transport(memory=f"{STOPPED_MEMORY >> 20} MiB", expected_rate="20 Mbit/s", expected_rtt="100 ms")
    tunnel = start_bentpipe(path, settings)
    receiving = tunnel.terminal if upload else tunnel.gateway
    with ExitStack() as sockets:
        listener = sockets.enter_context(path.server.socket())
        listener.bind((SERVER4, 0))
        listener.listen()
        listener.settimeout(PATIENCE_S)
        for _ in range(STOPPED):
            near = sockets.enter_context(path.client.socket())
            near.settimeout(PATIENCE_S)
            near.connect(listener.getsockname())
            far = sockets.enter_context(listener.accept()[0])
            stop_reading(*((near, far) if upload else (far, near)))
        held = kernel_bytes(tunnel, receiving)
    assert held > STOPPED * FLOOR
    assert held < STOPPED_MEMORY // 2 + STOPPED * 2 * FLOOR


def stop_reading(writer: socket.socket, reader: socket.socket) -> None:
    """Reads PART bytes, and then nothing until no more is taken."""
    chunk = bytes(1 << 18)
    writer.setblocking(False)
    reader.setblocking(False)
    read, progress = 0, time.monotonic()
    with selectors.DefaultSelector() as ready:
        ready.register(writer, selectors.EVENT_WRITE)
        ready.register(reader, selectors.EVENT_READ)
        while read < PART or time.monotonic() < progress + STOPPED_S:
            for key, _ in ready.select(timeout=0.1):
                progress = time.monotonic()
                if key.fileobj is writer:
                    writer.send(chunk)
                    continue
                read += len(reader.recv(1 << 18))
                if read >= PART:
                    ready.unregister(reader)
            assert time.monotonic() < progress + PATIENCE_S, f"{read} bytes read"


def listen(path: Topology, sockets: ExitStack, buffer: int) -> socket.socket:
    """A server whose connections have little room of their own in `buffer`."""
    listener = sockets.enter_context(path.server.socket())
    listener.setsockopt(socket.SOL_SOCKET, buffer, SMALL_BUFFER)
    listener.bind((SERVER4, 0))
    listener.listen(TRANSFERS)
    listener.settimeout(PATIENCE_S)
    return listener


def connect(path: Topology, sockets: ExitStack, listener: socket.socket, buffer: int) -> list[socket.socket]:
    """Connections of the client to that server, with little room of their own in `buffer`."""
    connections = [sockets.enter_context(path.client.socket()) for _ in range(TRANSFERS)]
    for connection in connections:
        connection.setsockopt(socket.SOL_SOCKET, buffer, SMALL_BUFFER)
        connection.settimeout(PATIENCE_S)
        connection.connect(listener.getsockname())
    return connections


def accept(sockets: ExitStack, listener: socket.socket) -> list[socket.socket]:
    """The server's ends of all of them."""
    return [sockets.enter_context(listener.accept()[0]) for _ in range(TRANSFERS)]


def fills(tunnel: Bentpipe, writers: list[socket.socket]) -> None:
    """Writes until nothing more is taken, while both ends stay within what they may hold."""
    held = {end.name: 0 for end in ends(tunnel)}
    sent, chunk = 0, bytes(65536)
    with selectors.DefaultSelector() as ready:
        for writer in writers:
            writer.setblocking(False)
            ready.register(writer, selectors.EVENT_WRITE, writer)
        progress = look = time.monotonic()
        while time.monotonic() < progress + QUIET_S:
            for key, _ in ready.select(timeout=0.1):
                sent += key.data.send(chunk)
                progress = time.monotonic()
            if time.monotonic() > look + 1:
                note(tunnel, held)
                look = time.monotonic()
    note(tunnel, held)
    assert sent > TRANSFERS * SMALL_BUFFER
    for name, most in held.items():
        assert most < RESIDENT_MIB, f"{name} holds {most} MiB"


def note(tunnel: Bentpipe, held: dict[str, int]) -> None:
    """Keeps what each end holds, where it is more than before."""
    for end in ends(tunnel):
        held[end.name] = max(held[end.name], held_mib(tunnel, end))

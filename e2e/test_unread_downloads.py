"""Downloads that nobody reads: what they hold is bounded, as the kernel counts it."""

import os
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.systems.tunnel import Bentpipe, Transport, start_bentpipe
from conversation import PATIENCE_S
from memory import ends, held_mib

LONG = "BENTPIPE_ROUGH_S" in os.environ
DOWNLOADS, MEMORY_MIB = (1500, 256) if LONG else (600, 128)
RESIDENT_MIB = MEMORY_MIB * 3 // 2 + 64
"""The kernel may hold half as much again as `memory`, and the program itself needs some."""
SMALL_BUFFER = 8192
"""Of the ends of the lab: what they do not hold, the tunnel is offered."""
QUIET_S = 2.0
"""Nothing more was taken for so long: all is full."""


@contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Room for so many sockets in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(count, before[0]), max(count, before[1])))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_downloads_that_nobody_reads_stay_within_memory(path: Topology) -> None:
    tunnel = start_bentpipe(path, Transport(memory=f"{MEMORY_MIB} MiB"))
    with descriptors(4 * DOWNLOADS), ExitStack() as sockets:
        listener = sockets.enter_context(path.server.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER)
        listener.bind((SERVER4, 0))
        listener.listen(DOWNLOADS)
        listener.setblocking(False)
        readers = [sockets.enter_context(path.client.socket()) for _ in range(DOWNLOADS)]
        for reader in readers:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            reader.settimeout(PATIENCE_S)
            reader.connect(listener.getsockname())
        held, served, sent = fill(tunnel, listener, sockets)
        assert served == DOWNLOADS
        assert sent > DOWNLOADS * SMALL_BUFFER
        for name, most in held.items():
            assert most < RESIDENT_MIB, f"{name} holds {most} MiB"


def fill(tunnel: Bentpipe, listener: socket.socket, sockets: ExitStack) -> tuple[dict[str, int], int, int]:
    """Send to all who connect until nothing more is taken: what each end held at most, downloads, bytes."""
    ready = selectors.DefaultSelector()
    sockets.enter_context(ready)
    ready.register(listener, selectors.EVENT_READ)
    held = {end.name: 0 for end in ends(tunnel)}
    served, sent, chunk = 0, 0, bytes(65536)
    progress = look = time.monotonic()
    while time.monotonic() < progress + QUIET_S:
        for key, _ in ready.select(timeout=0.1):
            if key.data is None:
                peer, _ = listener.accept()
                sockets.enter_context(peer)
                peer.setblocking(False)
                ready.register(peer, selectors.EVENT_WRITE, peer)
                served += 1
            else:
                sent += key.data.send(chunk)
            progress = time.monotonic()
        if time.monotonic() > look + 1:
            for end in ends(tunnel):
                held[end.name] = max(held[end.name], held_mib(tunnel, end))
            look = time.monotonic()
    for end in ends(tunnel):
        held[end.name] = max(held[end.name], held_mib(tunnel, end))
    return held, served, sent

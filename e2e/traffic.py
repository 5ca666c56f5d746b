"""Traffic that goes on while things break: transfers of known content, each of which ends whole or by reset."""

import hashlib
import random
import socket
import struct
import threading
import time
from collections import Counter

from bentpipe_lab.net.content import incompressible
from bentpipe_lab.net.topology import SERVER4, Topology

STUCK_S = 60.0
"""A transfer that has not moved for so long is stuck: the tunnel keeps flows for 45 s through an outage."""
MARK = b"<<bentpipe rough weather: this is what hosts of the LAN say>>"
"""In all that is transferred, at least once in 1000 bytes: what is captured outside the tunnel is searched for it."""
REQUEST = struct.Struct("!cIQ")
"""Download or upload, the content's number, bytes."""


def content(number: int, size: int) -> bytes:
    """The bytes of a transfer."""
    block = MARK + incompressible(f"rough weather {number}", 1000 - len(MARK))
    return (block * (size // len(block) + 1))[:size]


class Server:
    """Serves transfers, in the server's namespace, until it is closed."""

    def __init__(self, path: Topology) -> None:
        self._socket = path.server.socket()
        self._socket.bind((SERVER4, 0))
        self._socket.listen(256)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(STUCK_S)
        with connection:
            try:
                kind, number, size = REQUEST.unpack(_read(connection, REQUEST.size))
                if kind == b"d":
                    connection.sendall(content(number, size))
                else:
                    connection.sendall(hashlib.sha256(_read(connection, size)).digest())
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
            except OSError:
                return

    def close(self) -> None:
        """Stop listening."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Traffic:
    """Hosts that transfer one thing after the other, until they are stopped.

    `outcomes` counts how transfers ended: `whole`, `reset`, and what must never be: `wrong` (other bytes, or a
    clean end before the last) and `stuck`.
    """

    def __init__(self, path: Topology, server: Server, hosts: int, seed: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self._path = path
        self._server = server
        self._stop = threading.Event()
        # Not daemons: they enter namespaces.
        self._threads = [threading.Thread(target=self._host, args=(seed * 1000 + host,)) for host in range(hosts)]
        for thread in self._threads:
            thread.start()

    def _host(self, seed: int) -> None:
        dice = random.Random(seed)  # noqa: S311 (a test's course, not a secret)
        while not self._stop.is_set():
            kind = dice.choice([b"d", b"d", b"u"])
            size = dice.choice([200, 20_000, 300_000])
            self.outcomes[transfer(self._path, self._server, kind, dice.randrange(16), size)] += 1
            self._stop.wait(dice.uniform(0, 0.1))

    def stop(self) -> Counter[str]:
        """Let what is under way end; how all has ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.outcomes


def transfer(path: Topology, server: Server, kind: bytes, number: int, size: int, slow_s: float = 0.0) -> str:
    """One transfer, and how it ended. `slow_s`: pause after each 4 kB that are read."""
    data = content(number, size)
    connection = path.client.socket()
    connection.settimeout(STUCK_S)
    with connection:
        try:
            connection.connect(server.address)
            connection.sendall(REQUEST.pack(kind, number, size))
            expected = data
            if kind == b"u":
                connection.sendall(data)
                expected = hashlib.sha256(data).digest()
            received = bytearray()
            while chunk := connection.recv(4096 if slow_s else 1 << 16):
                received += chunk
                time.sleep(slow_s)
        except TimeoutError:
            return "stuck"
        except OSError:
            return "reset"
    return "whole" if bytes(received) == expected else "wrong"


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(1 << 16, size - len(data)))
        if not chunk:
            raise ConnectionResetError
        data += chunk
    return bytes(data)

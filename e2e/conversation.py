"""Two applications that talk through the path: a client in its namespace, a server in its own.

Sockets are opened inside the namespaces and used from the test, so that a test reads as a conversation.
"""

import errno
import hashlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bentpipe_lab.net.content import incompressible
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import SERVER4, Topology

PATIENCE_S = 90.0
"""Long enough for a loaded machine, so that only a stall fails a test."""


class Server:
    """A listening application in the server's namespace."""

    def __init__(self, where: Namespace, address: str = SERVER4) -> None:
        self.socket = where.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.socket.bind((address, 0))
        self.socket.listen()
        self.socket.settimeout(PATIENCE_S)
        self.address: tuple[str, int] = self.socket.getsockname()[:2]

    def accept(self) -> socket.socket:
        """The next connection."""
        connection, _ = self.socket.accept()
        connection.settimeout(PATIENCE_S)
        return connection

    def close(self) -> None:
        """Stop listening."""
        self.socket.close()


def connect(where: Namespace, address: tuple[str, int]) -> socket.socket:
    """Connect an application in a namespace to an address."""
    connection = where.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    connection.settimeout(PATIENCE_S)
    connection.connect(address)
    return connection


@contextmanager
def conversation(path: Topology, address: str = SERVER4) -> Iterator[tuple[socket.socket, socket.socket]]:
    """An established connection: the client's end and the server's end, a first byte exchanged each way."""
    server = Server(path.server, address)
    client = connect(path.client, server.address)
    try:
        client.sendall(b"?")
        peer = server.accept()
        try:
            assert peer.recv(1) == b"?"
            peer.sendall(b"!")
            assert client.recv(1) == b"!"
            yield client, peer
        finally:
            peer.close()
    finally:
        client.close()
        server.close()


def payload(size: int, name: str = "payload") -> bytes:
    """Bytes to send."""
    return incompressible(name, size)


def send_in_background(end: socket.socket, data: bytes, *, then_shut: bool = False) -> threading.Thread:
    """Send while the test does something else; a reset ends it."""

    def send() -> None:
        try:
            end.sendall(data)
            if then_shut:
                end.shutdown(socket.SHUT_WR)
        except OSError:
            return

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def read_to_end(end: socket.socket) -> bytes:
    """Everything until the other side's clean end (FIN)."""
    received = bytearray()
    while chunk := end.recv(1 << 16):
        received += chunk
    return bytes(received)


def assert_reset(end: socket.socket) -> None:
    """The connection ends by reset: a clean end, or none, is a failure."""
    try:
        rest = read_to_end(end)
    except (ConnectionResetError, ConnectionRefusedError):
        return
    raise AssertionError(f"a clean end after {len(rest)} bytes, where a reset was due")


def assert_made_and_reset(where: Namespace, address: tuple[str, int]) -> None:
    """A connection to an address is reset; on a busy machine before the application has seen it made.

    One that was refused there a moment ago may be refused at once.
    """
    try:
        with connect(where, address) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert_reset(client)
    except (ConnectionResetError, ConnectionRefusedError, BrokenPipeError):
        return
    except OSError as error:
        if error.errno != errno.EHOSTUNREACH:
            raise


def reset(end: socket.socket) -> None:
    """Close by reset."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def digest(data: bytes) -> str:
    """For comparing without printing megabytes."""
    return hashlib.sha256(data).hexdigest()


def eventually(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition; fail when it does not come true."""
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)

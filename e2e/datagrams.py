"""UDP applications on the path: a client's socket, and a peer that answers.

Sockets are opened inside the namespaces and used from the test, so that a test reads as a conversation.
"""

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import SERVER4
from conversation import PATIENCE_S

Answer = Callable[[bytes], bytes]


def open_socket(where: Namespace, address: str) -> socket.socket:
    """A UDP socket of the address's family in a namespace."""
    opened = where.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    opened.settimeout(PATIENCE_S)
    return opened


def connect_udp(where: Namespace, address: tuple[str, int]) -> socket.socket:
    """A UDP socket in a namespace that talks to one peer."""
    client = open_socket(where, address[0])
    client.connect(address)
    return client


class Peer:
    """A UDP application that answers each datagram, at an address of its own."""

    def __init__(
        self, where: Namespace, address: str = SERVER4, answer: Answer = lambda datagram: datagram, port: int = 0
    ) -> None:
        self.socket = open_socket(where, address)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind((address, port))
        self.socket.settimeout(0.2)
        self.address: tuple[str, int] = self.socket.getsockname()[:2]
        self.clients: list[tuple[str, int]] = []
        """Who has sent something, each once."""
        self._answer = answer
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        seen = set()
        while not self._ended.is_set():
            try:
                datagram, client = self.socket.recvfrom(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                return
            if client not in seen:
                seen.add(client)
                self.clients.append(client[:2])
            self.socket.sendto(self._answer(datagram), client)

    def close(self) -> None:
        """Answer no more."""
        self._ended.set()
        self._thread.join()
        self.socket.close()


@contextmanager
def peer(
    where: Namespace, address: str = SERVER4, answer: Answer = lambda datagram: datagram, port: int = 0
) -> Iterator[Peer]:
    """A peer that is gone after the block."""
    opened = Peer(where, address, answer, port)
    try:
        yield opened
    finally:
        opened.close()


def ask(client: socket.socket, datagram: bytes) -> bytes:
    """Send a datagram, again each second as applications do, until the same comes back."""
    client.settimeout(1.0)
    for _ in range(round(PATIENCE_S)):
        client.send(datagram)
        try:
            while True:
                answer = client.recv(1 << 16)
                if answer == datagram:
                    return answer
        except TimeoutError:
            continue
    raise AssertionError(f"no answer to a datagram of {len(datagram)} bytes")


def ready(sockets: list[socket.socket], patience_s: float) -> list[socket.socket]:
    """Those of the sockets that have something to read, within a time."""
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            selector.register(one, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(patience_s) if isinstance(key.fileobj, socket.socket)]

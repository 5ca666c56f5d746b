"""TCP: ends stay ends, resets stay resets, errors are told, nobody waits for a slow peer, nothing is lost."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from bentpipe_lab.net.topology import BLACKHOLE4, SERVER4, SERVER6, UNREACHABLE4
from conformance.conftest import Proxy
from conversation import PATIENCE_S, Server, assert_reset, digest, payload, read_to_end, reset, send_in_background

SHORT_CONNECTIONS = int(os.environ.get("CONFORMANCE_CONNECTIONS", "500"))
AT_ONCE = 32
STALLED = 96_000_000
"""More than a proxy should take for a reader that does not read."""


@contextmanager
def conversation(proxy: Proxy, address: str = SERVER4) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's end and the server's end of a connection on which a byte was exchanged each way."""
    server = Server(proxy.path.server, address)
    try:
        client = proxy.adapter.connect(proxy.path, server.address)
        client.sendall(b"?")
        peer = server.accept()
        assert peer.recv(1) == b"?"
        peer.sendall(b"!")
        assert client.recv(1) == b"!"
        with client, peer:
            yield client, peer
    finally:
        server.close()


def test_client_ends_first(proxy: Proxy) -> None:
    """The client ends its direction, and still hears the answer."""
    question, answer = payload(300_000, "question"), payload(2_000_000, "answer")
    with conversation(proxy) as (client, peer):
        send_in_background(client, question, then_shut=True)
        assert digest(read_to_end(peer)) == digest(question)
        send_in_background(peer, answer, then_shut=True)
        assert digest(read_to_end(client)) == digest(answer)


def test_server_ends_first(proxy: Proxy) -> None:
    """The server ends its direction, and still hears the rest."""
    rest = payload(300_000, "rest")
    with conversation(proxy) as (client, peer):
        peer.shutdown(socket.SHUT_WR)
        assert read_to_end(client) == b""
        send_in_background(client, rest, then_shut=True)
        assert digest(read_to_end(peer)) == digest(rest)


def test_reset_by_the_client(proxy: Proxy) -> None:
    """A reset by the client is a reset at the server."""
    with conversation(proxy) as (client, peer):
        reset(client)
        assert_reset(peer)


def test_reset_by_the_server(proxy: Proxy) -> None:
    """A reset by the server is a reset at the client."""
    with conversation(proxy) as (client, peer):
        reset(peer)
        assert_reset(client)


@pytest.mark.parametrize("address", ["closed", UNREACHABLE4, BLACKHOLE4])
def test_no_connection(proxy: Proxy, address: str) -> None:
    """A server that refuses, cannot be reached or does not answer is an error, not an end."""
    target = (address, 80)
    if address == "closed":
        closed = Server(proxy.path.server)
        target = closed.address
        closed.close()
    with pytest.raises(OSError) as raised, proxy.adapter.connect(proxy.path, target) as client:  # noqa: PT011
        client.sendall(b"anybody there?")
        assert read_to_end(client) is None, "a clean end where an error was due"
    assert not isinstance(raised.value, TimeoutError), "no word of it"


def test_slow_reader(proxy: Proxy) -> None:
    """A reader that does not read stops the sender, and loses nothing when it goes on."""
    data = payload(1_000_000, "stalled") * (STALLED // 1_000_000)
    with conversation(proxy) as (client, peer):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sent = 0

        def send() -> None:
            nonlocal sent
            for begin in range(0, len(data), 1 << 16):
                peer.sendall(data[begin : begin + (1 << 16)])
                sent = begin + (1 << 16)
            peer.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        before = -1
        while sent != before:
            before = sent
            time.sleep(1)
        assert sent < len(data), "the sender was never stopped"
        assert digest(read_to_end(client)) == digest(data)
        sender.join(PATIENCE_S)


def test_large_upload_then_answer(proxy: Proxy) -> None:
    """A large upload arrives whole, and then its answer."""
    upload = payload(20_000_000, "upload")
    with conversation(proxy) as (client, peer):
        send_in_background(client, upload, then_shut=True)
        received = digest(read_to_end(peer))
        peer.sendall(received.encode())
        peer.shutdown(socket.SHUT_WR)
        assert read_to_end(client).decode() == digest(upload)


def test_server_speaks_first(proxy: Proxy) -> None:
    """A server speaks first, and the client has said nothing."""
    server = Server(proxy.path.server)
    with proxy.adapter.connect(proxy.path, server.address) as client, server.accept() as peer:
        peer.sendall(b"220 ready\r\n")
        assert client.recv(100) == b"220 ready\r\n"
    server.close()


def test_sends_and_closes_at_once(proxy: Proxy) -> None:
    """What a client sends just before it closes arrives whole."""
    data = payload(200_000, "last words")
    server = Server(proxy.path.server)
    client = proxy.adapter.connect(proxy.path, server.address)
    client.sendall(data)
    client.close()
    with server.accept() as peer:
        assert digest(read_to_end(peer)) == digest(data)
    server.close()


def test_ipv6(proxy: Proxy) -> None:
    """A server with an IPv6 address."""
    with conversation(proxy, SERVER6) as (client, peer):
        send_in_background(peer, payload(500_000), then_shut=True)
        assert digest(read_to_end(client)) == digest(payload(500_000))


def test_many_short_connections(proxy: Proxy) -> None:
    """Many short connections, each with its own question and answer."""
    server = Server(proxy.path.server)
    server.socket.listen(1024)

    def answer(peer: socket.socket) -> None:
        with peer:
            peer.sendall(b"<" + read_to_end(peer) + b">")

    def serve() -> None:
        with ThreadPoolExecutor(AT_ONCE) as answering:
            for _ in range(SHORT_CONNECTIONS):
                answering.submit(answer, server.accept())

    def ask(number: int) -> bool:
        with proxy.adapter.connect(proxy.path, server.address) as client:
            client.sendall(str(number).encode())
            client.shutdown(socket.SHUT_WR)
            return read_to_end(client) == f"<{number}>".encode()

    threading.Thread(target=serve, daemon=True).start()
    with ThreadPoolExecutor(AT_ONCE) as asking:
        assert all(asking.map(ask, range(SHORT_CONNECTIONS)))
    server.close()

"""UDP: datagrams of every size, from the peer that was addressed and nobody else, and errors that are told."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bentpipe_lab.net.topology import SERVER4, SERVER6
from conformance.adapters import Address
from conformance.conftest import Proxy
from conversation import PATIENCE_S, payload
from datagrams import open_socket

MAPPINGS = int(os.environ.get("CONFORMANCE_MAPPINGS", "200"))
ATTEMPTS = 5
"""A datagram may be lost, and is sent again so often."""


@contextmanager
def echo(proxy: Proxy, at: str = SERVER4, *, from_elsewhere: bool = False) -> Iterator[Address]:
    """A server that sends every datagram back; first, if asked to, something from another port."""
    server, other = open_socket(proxy.path.server, at), open_socket(proxy.path.server, at)
    for each in (server, other):
        each.settimeout(None)
        each.bind((at, 0))
    address: Address = server.getsockname()[:2]

    def serve() -> None:
        while True:
            try:
                data, peer = server.recvfrom(65_535)
                if data == b"end":
                    return
                if from_elsewhere:
                    other.sendto(b"not asked for", peer)
                server.sendto(data, peer)
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        with open_socket(proxy.path.server, at) as ender:
            ender.sendto(b"end", address)
        thread.join(PATIENCE_S)
        server.close()
        other.close()


def exchange(client: socket.socket, address: Address, data: bytes) -> tuple[bytes, Address]:
    """Send a datagram until something comes back."""
    client.settimeout(2)
    for _ in range(ATTEMPTS):
        client.sendto(data, address)
        try:
            data, peer = client.recvfrom(65_535)
            return data, peer[:2]
        except TimeoutError:
            continue
    raise AssertionError(f"{len(data)} bytes never came back")


@pytest.mark.parametrize("size", [0, 1, 1200, 1472, 9000, 65_507])
def test_sizes(proxy: Proxy, size: int) -> None:
    """Datagrams of 0 to 65,507 bytes come back as they were sent."""
    with echo(proxy) as address, proxy.path.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        data, peer = exchange(client, address, payload(size))
        assert (len(data), data == payload(size), peer) == (size, True, address)


def test_ipv6(proxy: Proxy) -> None:
    """Datagrams to and from an IPv6 address, and a closed port there"""
    with echo(proxy, SERVER6) as address, open_socket(proxy.path.client, SERVER6) as client:
        for size in (0, 1200, 9000):
            assert exchange(client, address, payload(size)) == (payload(size), address)
    closed_port(proxy, SERVER6)


def test_reply_from_elsewhere(proxy: Proxy) -> None:
    """A datagram from another port of the server does not reach the client."""
    with (
        echo(proxy, from_elsewhere=True) as address,
        proxy.path.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        for number in range(5):
            assert exchange(client, address, str(number).encode()) == (str(number).encode(), address)


def test_many_mappings(proxy: Proxy) -> None:
    """Many sockets of the client, each with its own answers."""
    with echo(proxy) as address:
        clients = [proxy.path.client.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(MAPPINGS)]
        try:
            for _ in range(2):
                for number, client in enumerate(clients):
                    assert exchange(client, address, str(number).encode())[0] == str(number).encode()
        finally:
            for client in clients:
                client.close()


def test_closed_port(proxy: Proxy) -> None:
    """A closed port is an error at the client (ICMP port unreachable)."""
    closed_port(proxy, SERVER4)


def closed_port(proxy: Proxy, at: str) -> None:
    with open_socket(proxy.path.server, at) as closed:
        closed.bind((at, 0))
        address = closed.getsockname()[:2]
    with open_socket(proxy.path.client, at) as client, pytest.raises(ConnectionRefusedError):
        client.settimeout(2)
        client.connect(address)
        for _ in range(ATTEMPTS):
            client.send(b"anybody there?")
            try:
                client.recv(100)
            except TimeoutError:
                continue
        raise AssertionError("no word of it")

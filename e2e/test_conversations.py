"""What TCP means survives the tunnel: ends stay ends, resets stay resets, and nobody waits for a stalled peer."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bentpipe_lab.net.topology import BLACKHOLE4, SERVER4, SERVER6, UNREACHABLE4
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.systems.tunnel import Bentpipe
from bentpipe_lab.workloads.programs import curl
from conversation import (
    PATIENCE_S,
    Server,
    assert_reset,
    connect,
    conversation,
    digest,
    payload,
    read_to_end,
    reset,
    send_in_background,
)

STALLED = payload(12_000_000, "stalled")
"""More than fits into all buffers between a server and a reader that sleeps."""
SMALL_BUFFER = 65536
QUIET_BYTES = 20_000
"""Less than this in half a second is keep-alive, not data."""


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_client_ends_first_and_still_hears_the_answer(tunnel: Bentpipe, address: str) -> None:
    question, answer = payload(300_000, "question"), payload(2_000_000, "answer")
    with conversation(tunnel.path, address) as (client, peer):
        send_in_background(client, question, then_shut=True)
        assert digest(read_to_end(peer)) == digest(question)
        send_in_background(peer, answer, then_shut=True)
        assert digest(read_to_end(client)) == digest(answer)


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_server_ends_first_and_still_hears_the_rest(tunnel: Bentpipe, address: str) -> None:
    rest = payload(300_000, "rest")
    with conversation(tunnel.path, address) as (client, peer):
        peer.shutdown(socket.SHUT_WR)
        assert read_to_end(client) == b""
        send_in_background(client, rest, then_shut=True)
        assert digest(read_to_end(peer)) == digest(rest)


def test_an_urgent_byte_is_a_byte_of_the_stream(tunnel: Bentpipe) -> None:
    with conversation(tunnel.path) as (client, peer):
        for sender, reader in ((client, peer), (peer, client)):
            sender.sendall(b"before")
            sender.send(b"!", socket.MSG_OOB)
            sender.sendall(b"after")
            sender.shutdown(socket.SHUT_WR)
            assert read_to_end(reader) == b"before!after"


def test_both_directions_at_once(tunnel: Bentpipe) -> None:
    up, down = payload(2_000_000, "up"), payload(2_000_000, "down")
    with conversation(tunnel.path) as (client, peer):
        send_in_background(client, up, then_shut=True)
        send_in_background(peer, down, then_shut=True)
        assert digest(read_to_end(client)) == digest(down)
        assert digest(read_to_end(peer)) == digest(up)


def test_server_that_speaks_first(tunnel: Bentpipe) -> None:
    server = Server(tunnel.path.server)
    with connect(tunnel.path.client, server.address) as client, server.accept() as peer:
        peer.sendall(b"220 ready\r\n")
        assert client.recv(100) == b"220 ready\r\n"
    server.close()


def test_client_that_sends_nothing_and_ends(tunnel: Bentpipe) -> None:
    server = Server(tunnel.path.server)
    with connect(tunnel.path.client, server.address) as client:
        client.shutdown(socket.SHUT_WR)
        with server.accept() as peer:
            assert read_to_end(peer) == b""
            peer.sendall(b"nothing?")
            peer.shutdown(socket.SHUT_WR)
            assert read_to_end(client) == b"nothing?"
    server.close()


def test_reset_by_the_client_reaches_the_server(tunnel: Bentpipe) -> None:
    with conversation(tunnel.path) as (client, peer):
        reset(client)
        assert_reset(peer)


def test_reset_by_the_server_reaches_the_client(tunnel: Bentpipe) -> None:
    with conversation(tunnel.path) as (client, peer):
        reset(peer)
        assert_reset(client)


def test_reset_in_the_middle_of_a_transfer(tunnel: Bentpipe) -> None:
    with conversation(tunnel.path) as (client, peer):

        def read_a_little_and_reset() -> None:
            client.recv(1 << 16)
            reset(client)

        threading.Thread(target=read_a_little_and_reset, daemon=True).start()
        with pytest.raises(ConnectionResetError):
            peer.sendall(payload(50_000_000))


def test_refused_at_the_origin_is_a_reset(tunnel: Bentpipe) -> None:
    closed = Server(tunnel.path.server)
    closed.close()
    with (
        pytest.raises((ConnectionResetError, ConnectionRefusedError)),
        connect(tunnel.path.client, closed.address) as client,
    ):
        client.sendall(b"anybody there?")
        assert read_to_end(client) is None, "a clean end where a reset was due"


@pytest.mark.parametrize("address", [UNREACHABLE4, BLACKHOLE4])
def test_unreachable_origin_is_an_error_in_bounded_time(tunnel: Bentpipe, address: str) -> None:
    began = time.monotonic()
    with pytest.raises(OSError) as raised, connect(tunnel.path.client, (address, 80)) as client:  # noqa: PT011
        client.sendall(b"anybody there?")
        assert read_to_end(client) is None, "a clean end where an error was due"
    assert not isinstance(raised.value, TimeoutError), f"no word of {address} for {time.monotonic() - began:.0f} s"


def test_stalled_readers_do_not_stop_other_flows_and_can_go_on(tunnel: Bentpipe) -> None:
    with stalled_downloads(tunnel, 3) as clients:
        for _ in range(3):
            assert curl.download(tunnel.path, "2MB").verdict is Verdict.OK
        for client in clients:
            assert digest(read_to_end(client)) == digest(STALLED)


def test_however_many_readers_stall_other_flows_pass(tunnel: Bentpipe) -> None:
    """More than the tunnel has room for: it may reset the stalled ones, but not hold up the others."""
    with stalled_downloads(tunnel, 30):
        for _ in range(3):
            assert curl.download(tunnel.path, "2MB").verdict is Verdict.OK


@contextmanager
def stalled_downloads(tunnel: Bentpipe, count: int) -> Iterator[list[socket.socket]]:
    """Downloads whose readers sleep, when they have filled all that they may."""
    server = Server(tunnel.path.server)
    clients, senders = [], []
    try:
        for _ in range(count):
            client = connect(tunnel.path.client, server.address)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            client.sendall(b"?")
            peer = server.accept()
            clients.append(client)
            senders.append((peer, send_in_background(peer, STALLED, then_shut=True)))
        _until_quiet(tunnel)
        yield clients
    finally:
        for client in clients:
            reset(client)
        for peer, thread in senders:
            thread.join(PATIENCE_S)
            peer.close()
        server.close()


def _until_quiet(tunnel: Bentpipe) -> None:
    """Wait until the satellite link carries almost nothing: the stalled flows fill all that they may."""
    deadline = time.monotonic() + PATIENCE_S
    before = -QUIET_BYTES
    while time.monotonic() < deadline:
        (device,) = json.loads(tunnel.path.terminal.ip("-json", "-statistics", "link", "show", "sat0"))
        now = device["stats64"]["rx"]["bytes"]
        if now - before < QUIET_BYTES:
            return
        before = now
        time.sleep(0.5)
    raise AssertionError("the stalled flows never became quiet")

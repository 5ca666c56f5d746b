"""ECN and DF of datagrams through the tunnel, and path MTUs: what applications see."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import SERVER4, SERVER6, Topology
from bentpipe_lab.systems.tunnel import Bentpipe, start_bentpipe
from conversation import eventually
from datagrams import ask, connect_udp, open_socket, peer
from test_udp import associate

NARROW4, NARROW6 = "10.77.3.9", "fd77:0:0:2::9"
"""Behind a hop that carries packets of up to so many bytes."""
MTU = 1400
IP_MTU_DISCOVER, IP_MTU, IPV6_MTU_DISCOVER, IPV6_MTU = 10, 14, 23, 24
DONT, DO = 0, 2
ECT_1, ECT_0, CE = 1, 2, 3


def mark(on: socket.socket, ecn: int) -> None:
    """Mark what the socket sends."""
    if on.family == socket.AF_INET6:
        on.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, ecn)
    else:
        on.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ecn)


def receive_marked(on: socket.socket) -> tuple[bytes, int, tuple[str, int]]:
    """The next datagram, its ECN field, and who sent it."""
    datagram, told, _, sender = on.recvmsg(1 << 16, 256)
    marks = {(socket.IPPROTO_IP, socket.IP_TOS), (socket.IPPROTO_IPV6, socket.IPV6_TCLASS)}
    (field,) = [data[0] for level, kind, data in told if (level, kind) in marks]
    return datagram, field & 3, sender


def tell_marks(on: socket.socket) -> socket.socket:
    """Have the kernel tell of ECN."""
    if on.family == socket.AF_INET6:
        on.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    else:
        on.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    return on


@contextmanager
def server(where: Namespace, address: str) -> Iterator[socket.socket]:
    """A server's socket that is told of ECN."""
    with open_socket(where, address) as opened:
        opened.bind((address, 0))
        yield tell_marks(opened)


def warm(tunnel: Bentpipe) -> None:
    """The session's first flow has had its answer: marks are agreed on."""
    with peer(tunnel.path.server) as echo, connect_udp(tunnel.path.client, echo.address) as client:
        ask(client, b"hello")


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_ecn_goes_both_ways(tunnel: Bentpipe, address: str) -> None:
    """Also with a flow's first datagram."""
    warm(tunnel)
    path = tunnel.path
    with server(path.server, address) as there:
        for sent, returned in [(0, CE), (ECT_0, ECT_1), (ECT_1, 0), (CE, ECT_0)]:
            with connect_udp(path.client, there.getsockname()[:2]) as client:
                tell_marks(client)
                for text in (b"first", b"second"):
                    mark(client, sent)
                    client.send(text)
                    datagram, seen, sender = receive_marked(there)
                    assert (datagram, seen) == (text, sent)
                    mark(there, returned)
                    there.sendto(datagram, sender)
                    assert receive_marked(client)[:2] == (text, returned)


def test_ecn_by_socks5(tunnel: Bentpipe) -> None:
    warm(tunnel)
    control, relay = associate(tunnel)
    with control, relay, server(tunnel.path.server, SERVER4) as there:
        header = b"\x00\x00\x00\x01" + socket.inet_aton(SERVER4) + there.getsockname()[1].to_bytes(2, "big")
        mark(relay, ECT_0)
        tell_marks(relay).send(header + b"marked")
        datagram, seen, sender = receive_marked(there)
        assert (datagram, seen) == (b"marked", ECT_0)
        mark(there, CE)
        there.sendto(datagram, sender)
        assert receive_marked(relay)[:2] == (header + b"marked", CE)


def discover(client: socket.socket, how: int) -> None:
    """Set whether the client's datagrams may be cut on their way."""
    if client.family == socket.AF_INET6:
        client.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, how)
    else:
        client.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, how)


def path_mtu(client: socket.socket) -> int:
    """What the client's kernel believes."""
    if client.family == socket.AF_INET6:
        return client.getsockopt(socket.IPPROTO_IPV6, IPV6_MTU)
    return client.getsockopt(socket.IPPROTO_IP, IP_MTU)


def learns(client: socket.socket, size: int) -> None:
    """Send until the kernel knows that it is too much."""

    def too_long() -> bool:
        try:
            client.send(bytes(size))
        except OSError:
            return True
        return False

    eventually(too_long, "the application is told")
    assert path_mtu(client) == MTU


@pytest.mark.parametrize("address", [NARROW4, NARROW6])
def test_a_narrow_hop_far_behind_the_gateway_is_told_by_icmp(path: Topology, address: str) -> None:
    tunnel = start_bentpipe(path)
    warm(tunnel)
    family, near, length = ("-6", SERVER6, 128) if ":" in address else ("-4", SERVER4, 32)
    path.gateway.ip(family, "route", "add", f"{address}/{length}", "via", near)
    path.server.ip("link", "add", "narrow0", "type", "veth", "peer", "name", "narrow1")
    path.server.ip("link", "set", "narrow1", "up")
    path.server.ip("link", "set", "narrow0", "mtu", str(MTU), "up")
    path.server.ip(family, "route", "add", f"{address}/{length}", "dev", "narrow0")
    with connect_udp(path.client, (address, 9)) as client:
        discover(client, DO)
        assert path_mtu(client) == 1500
        learns(client, 1440)


@pytest.mark.parametrize("address", [SERVER4, SERVER6])
def test_a_narrow_hop_at_the_gateway_is_told_and_what_may_be_cut_arrives(path: Topology, address: str) -> None:
    tunnel = start_bentpipe(path)
    warm(tunnel)
    path.gateway.ip("link", "set", "gnd0", "mtu", str(MTU))
    with peer(path.server, address) as echo, connect_udp(path.client, echo.address) as client:
        discover(client, DONT)
        for size in (1440, 9000) if address == SERVER4 else (9000,):
            assert len(ask(client, bytes(size))) == size
        with connect_udp(path.client, echo.address) as other:
            discover(other, DO)
            learns(other, 1440)

            def passes() -> bool:
                # Of each datagram before it that was too long an error may still come.
                try:
                    return len(ask(other, bytes(1352))) == 1352
                except OSError:
                    return False

            eventually(passes, "as much as the path carries")

"""A session's first packets with early data (0-RTT), captured and sent again: nothing is done twice (RFC 8470)."""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from bentpipe_lab.net.topology import GROUND, SATELLITE, SERVER4, Topology
from bentpipe_lab.systems.tunnel import GATEWAY_PORT, RESOLVER, Bentpipe
from conversation import Server, connect, conversation, eventually
from datagrams import connect_udp, open_socket

SILENT = f"""
table inet silent {{
chain output {{
type filter hook output priority 0;
oifname "sat0" udp sport {GATEWAY_PORT} @th,72,32 != 0 drop
}}
}}
"""
"""The gateway is not heard, but for version negotiation (RFC 9000, section 17.2.1), which tells that it is there."""
DNS, QUIC = 53, 443
QUESTION = struct.pack("!6H", 7, 0x0100, 1, 0, 0, 0) + b"\x05early\x03lab\x07example\x00\x00\x01\x00\x01"
LONG_HEADER, TYPE = 0x80, 0x30
INITIAL, ZERO_RTT = 0, 1
VERSION_1 = b"\0\0\0\1"
"""RFC 9000, section 17.2."""
ETH_P_IP = 0x0800
PACKET_HOST = 0
IP_UDP = 28
"""Bytes of both headers."""
SETTLES_S = 2.0
"""Fifty round trips."""


class Flight:
    """What the terminal sends to the gateway before a handshake is done, while it is captured."""

    def __init__(self, path: Topology) -> None:
        self.source: tuple[str, int] = ("", 0)
        self.datagrams: list[bytes] = []
        self._end = threading.Event()
        with path.gateway.entered():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
        self._socket.bind(("sat0", ETH_P_IP))
        self._socket.settimeout(0.1)
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while True:
            try:
                packet, (_, _, kind, *_) = self._socket.recvfrom(1 << 16)
            except TimeoutError:
                if self._end.is_set():
                    return
                continue
            if kind == PACKET_HOST and packet[9] == socket.IPPROTO_UDP:
                source, destination = struct.unpack("!HH", packet[20:24])
                if destination == GATEWAY_PORT and packet[IP_UDP] & LONG_HEADER:
                    self.source = (
                        socket.inet_ntop(socket.AF_INET, packet[12:16]),
                        source,
                    )
                    self.datagrams.append(packet[IP_UDP:])

    def stop(self) -> None:
        """Capture no more, and keep the attempt that had early data: all of it is for one connection ID."""
        self._end.set()
        self._thread.join()
        self._socket.close()
        early = [destination(each) for each in self.datagrams if is_of(each, ZERO_RTT)]
        self.datagrams = [each for each in self.datagrams if destination(each) in early[-1:]]


def is_of(datagram: bytes, kind: int) -> bool:
    """Whether it begins with a packet of QUIC 1 of this type."""
    return datagram[0] & TYPE == kind << 4 and datagram[1:5] == VERSION_1


def destination(datagram: bytes) -> bytes:
    """The connection ID that it is for."""
    return datagram[6 : 6 + datagram[5]]


@contextmanager
def captured(path: Topology) -> Iterator[Flight]:
    """Capture during the block."""
    flight = Flight(path)
    try:
        yield flight
    finally:
        flight.stop()


class Origin:
    """An address of the server, which counts who connects, the datagrams that come, and questions of DNS."""

    def __init__(self, path: Topology) -> None:
        self.connections = Server(path.server)
        self.quic, self.names = (open_socket(path.server, SERVER4) for _ in range(2))
        self.quic.bind((SERVER4, QUIC))
        self.names.bind((SERVER4, DNS))

    def has_something(self) -> list[str]:
        """What has come and was not looked at yet."""
        found = []
        for name, where, read in (
            (
                "connection",
                self.connections.socket,
                lambda: self.connections.socket.accept()[0].close(),
            ),
            ("datagram", self.quic, lambda: self.quic.recv(1 << 16)),
            ("question", self.names, lambda: self.names.recv(1 << 16)),
        ):
            where.settimeout(0)
            with suppress(BlockingIOError):
                while True:
                    read()
                    found.append(name)
        return found

    def close(self) -> None:
        """Serve no more."""
        self.connections.close()
        self.quic.close()
        self.names.close()


def client_hello() -> bytes:
    """The first flight of a TLS client."""
    client, out = ssl.create_default_context(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), out, server_hostname="early.lab.example").do_handshake()
    return out.read()


def from_elsewhere(path: Topology, flight: Flight) -> None:
    """From a machine of the internet."""
    with path.server.socket(kind=socket.SOCK_DGRAM) as stranger:
        for datagram in flight.datagrams:
            stranger.sendto(datagram, (GROUND.near4, GATEWAY_PORT))


def from_the_terminals_address(path: Topology, flight: Flight) -> None:
    """As somebody between the two can."""
    with path.terminal.socket(kind=socket.SOCK_RAW, protocol=socket.IPPROTO_UDP) as forger:
        for datagram in flight.datagrams:
            header = struct.pack("!4H", flight.source[1], GATEWAY_PORT, 8 + len(datagram), 0)
            forger.sendto(header + datagram, (SATELLITE.far4, 0))


REPLAYS: tuple[Callable[[Topology, Flight], None], ...] = (
    from_elsewhere,
    from_the_terminals_address,
)


def test_a_captured_first_flight_that_is_sent_again_does_nothing(
    own_tunnel: Bentpipe,
) -> None:
    path = own_tunnel.path
    with conversation(path):
        # With it have come the gateway's tickets.
        pass
    origin = Origin(path)
    hello = client_hello()
    with (
        captured(path) as flight,
        connect_udp(path.client, (SERVER4, QUIC)) as caller,
        connect_udp(path.client, RESOLVER) as asker,
        ExitStack() as later,
    ):
        path.gateway.run("nft", "-f", write(path, SILENT))
        eventually(
            lambda: "session lost" in own_tunnel.terminal.log.read_text(),
            "the gateway is missed",
        )
        client = later.enter_context(connect(path.client, origin.connections.address))
        client.sendall(hello)
        caller.send(b"Initial")
        asker.send(QUESTION)
        with origin.connections.accept() as peer:
            assert peer.recv(1 << 16) == hello, "nothing of the gateway has been heard"
            datagram, mapped = origin.quic.recvfrom(1 << 16)
            assert datagram == b"Initial"
            question, asked_by = origin.names.recvfrom(1 << 16)
            flight.stop()
            assert any(is_of(each, INITIAL) for each in flight.datagrams), flight.datagrams
            assert any(is_of(each, ZERO_RTT) for each in flight.datagrams), flight.datagrams
            path.gateway.run("nft", "delete", "table", "inet", "silent")
            own_tunnel.terminal.wait_line("session: up")
            origin.names.sendto(answer(question), asked_by)
            peer.sendall(b"server hello")
            origin.quic.sendto(b"answer", mapped)
            assert (client.recv(100), caller.recv(100)) == (b"server hello", b"answer")
            assert asker.recv(1 << 16)[:2] == QUESTION[:2]
            origin.has_something()
            for replay in REPLAYS:
                assert done_by(replay, path, flight, origin) == []
            client.sendall(b"and on")
            assert peer.recv(100) == b"and on"
            own_tunnel.gateway.kill()
            own_tunnel.start_gateway()
            own_tunnel.terminal.wait_line("session: up")
            for replay in REPLAYS:
                assert done_by(replay, path, flight, origin) == []
    with conversation(path):
        pass
    origin.close()


def done_by(
    replay: Callable[[Topology, Flight], None],
    path: Topology,
    flight: Flight,
    origin: Origin,
) -> list[str]:
    """What the origin notices when the flight is sent again, twice."""
    for _ in range(2):
        replay(path, flight)
    time.sleep(SETTLES_S)
    return origin.has_something()


def answer(question: bytes) -> bytes:
    """An address for the name that is asked for."""
    end = question.index(b"\0", 12) + 5
    record = b"\xc0\x0c\x00\x01\x00\x01" + struct.pack("!IH", 60, 4) + socket.inet_aton(SERVER4)
    return question[:2] + struct.pack("!5H", 0x8180, 1, 1, 0, 0) + question[12:end] + record


def write(path: Topology, rules: str) -> Path:
    """A file of nftables rules."""
    file = path.directory / "rules.nft"
    file.write_text(rules)
    return file

"""QUIC ends that misbehave, with somebody else's stack (aioquic). Each prints one line when it is done.

aioquic_trouble.py silent ADDRESS PORT CA NAME COUNT SECONDS    clients that finish their handshake and say nothing
aioquic_trouble.py half ADDRESS PORT CA NAME COUNT SECONDS      clients that send their first flight and no more
aioquic_trouble.py streams ADDRESS PORT CA NAME COUNT SECONDS   one that opens so many streams and gives each up at once
aioquic_trouble.py closing ADDRESS PORT CERTIFICATE KEY         a server that ends each connection in its handshake
"""

import asyncio
import socket
import sys
import time
from collections.abc import Callable

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, QuicEvent

ALPN = "perf"
REFUSED = 0x2
"""CONNECTION_REFUSED (RFC 9000, section 20.1)."""


class Ended(QuicConnectionProtocol):
    """A client that says how its connection ended."""

    def quic_event_received(self, event: QuicEvent) -> None:
        """Tell the end, if it is not its own."""
        if isinstance(event, ConnectionTerminated) and event.error_code != 0:
            print(f"closed: {event.error_code:#x} {event.reason_phrase}", flush=True)


class Closing(QuicConnectionProtocol):
    """A server that refuses whatever comes, with the first packet that it sends."""

    def datagram_received(self, data: bytes | str, addr: object) -> None:
        """Read, and close before anything is answered."""
        quic: QuicConnection = self._quic
        assert isinstance(data, bytes)
        quic.receive_datagram(data, addr, now=self._loop.time())
        quic.close(error_code=REFUSED, frame_type=0, reason_phrase="not today")
        self.transmit()


def configuration(ca: str, name: str) -> QuicConfiguration:
    """Of a client."""
    made = QuicConfiguration(is_client=True, alpn_protocols=[ALPN], server_name=name, idle_timeout=60.0)
    made.load_verify_locations(ca)
    return made


async def silent(address: str, port: int, made: Callable[[], QuicConfiguration], count: int, seconds: float) -> None:
    """Handshakes, and nothing after them."""
    async with asyncio.TaskGroup() as group:

        async def one() -> None:
            async with connect(address, port, configuration=made(), create_protocol=Ended):
                await asyncio.sleep(seconds)

        for _ in range(count):
            group.create_task(one())


def half(address: str, port: int, made: Callable[[], QuicConfiguration], count: int, seconds: float) -> None:
    """First flights, each from a port of its own, whose answers nobody reads."""
    senders = []
    for _ in range(count):
        client = QuicConnection(configuration=made())
        client.connect((address, port), now=time.time())
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        senders.append(sender)
        for datagram, _ in client.datagrams_to_send(now=time.time()):
            sender.sendto(datagram, (address, port))
    time.sleep(seconds)
    for sender in senders:
        sender.close()


async def streams(address: str, port: int, made: Callable[[], QuicConfiguration], count: int, seconds: float) -> None:
    """Streams with a byte each, given up before an answer can come; as many at a time as are allowed."""
    async with connect(address, port, configuration=made(), create_protocol=Ended) as client:
        quic = client._quic
        for number in range(count):
            while number >= quic._remote_max_streams_bidi:
                await asyncio.sleep(0.001)
            stream = quic.get_next_available_stream_id()
            quic.send_stream_data(stream, b"x")
            client.transmit()
            quic.reset_stream(stream, error_code=7)
            quic.stop_stream(stream, error_code=7)
            client.transmit()
            if number % 32 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(seconds)


async def closing(address: str, port: int, certificate: str, key: str) -> None:
    """Serve nobody."""
    made = QuicConfiguration(is_client=False, alpn_protocols=[ALPN])
    made.load_cert_chain(certificate, key)
    await serve(address, port, configuration=made, create_protocol=Closing)
    print("listening", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """As the command line says."""
    what, address, port, *rest = sys.argv[1:]
    if what == "closing":
        asyncio.run(closing(address, int(port), *rest))
        return
    ca, name, count, seconds = rest

    def made() -> QuicConfiguration:
        return configuration(ca, name)

    if what == "half":
        half(address, int(port), made, int(count), float(seconds))
    else:
        asyncio.run({"silent": silent, "streams": streams}[what](address, int(port), made, int(count), float(seconds)))
    print("done", flush=True)


main()

"""The perf protocol (draft-banks-quic-performance-00) with somebody else's stack (aioquic), as either end.

aioquic_perf.py client CA ADDRESS PORT DOWNLOAD UPLOAD  sends so many bytes and counts what comes back
aioquic_perf.py server CERTIFICATE KEY ADDRESS PORT     answers until it is ended
"""

import asyncio
import struct
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import stream_is_unidirectional
from aioquic.quic.events import QuicEvent, StreamDataReceived

ALPN = "perf"
HEADER = struct.Struct("!Q")
"""How many bytes the server shall send."""


class Server(QuicConnectionProtocol):
    """Sends on each stream as many bytes as its beginning asks for."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self.begun: dict[int, bytes] = {}

    def quic_event_received(self, event: QuicEvent) -> None:
        """Keep a stream's beginning; answer when it has ended."""
        if isinstance(event, StreamDataReceived):
            begun = (self.begun.get(event.stream_id, b"") + event.data)[: HEADER.size]
            self.begun[event.stream_id] = begun
            if event.end_stream and len(begun) == HEADER.size:
                self.answer(event.stream_id, *HEADER.unpack(begun))

    def answer(self, stream: int, count: int) -> None:
        """Send what was asked for: on the same stream, or on one of the server's."""
        if stream_is_unidirectional(stream):
            stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self._quic.send_stream_data(stream, bytes(count), end_stream=True)
        self.transmit()


class Client(QuicConnectionProtocol):
    """Counts what comes."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self.counts: dict[bool, int] = {False: 0, True: 0}
        self.ends: dict[bool, asyncio.Event] = {False: asyncio.Event(), True: asyncio.Event()}

    def quic_event_received(self, event: QuicEvent) -> None:
        """Bytes of one kind of stream."""
        if isinstance(event, StreamDataReceived):
            kind = stream_is_unidirectional(event.stream_id)
            self.counts[kind] += len(event.data)
            if event.end_stream:
                self.ends[kind].set()

    async def ask(self, *, unidirectional: bool, download: int, upload: int) -> None:
        """Ask for bytes, send some, and wait for the answer's end."""
        stream = self._quic.get_next_available_stream_id(is_unidirectional=unidirectional)
        self._quic.send_stream_data(stream, HEADER.pack(download) + bytes(upload), end_stream=True)
        self.transmit()
        await self.ends[unidirectional].wait()


async def run_server(certificate: str, key: str, address: str, port: str) -> None:
    """Serve until the process is ended."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[ALPN])
    configuration.load_cert_chain(certificate, key)
    await serve(address, int(port), configuration=configuration, create_protocol=Server)
    print("listening", flush=True)
    await asyncio.Event().wait()


async def run_client(ca: str, address: str, port: str, download: str, upload: str) -> None:
    """Both kinds of streams on one connection."""
    configuration = QuicConfiguration(is_client=True, alpn_protocols=[ALPN])
    configuration.load_verify_locations(ca)
    configuration.server_name = "perf.test"
    async with connect(address, int(port), configuration=configuration, create_protocol=Client) as client:
        assert isinstance(client, Client)
        for unidirectional in (False, True):
            await client.ask(unidirectional=unidirectional, download=int(download), upload=int(upload))
        print(client.counts[False], client.counts[True])


if __name__ == "__main__":
    asyncio.run(run_client(*sys.argv[2:]) if sys.argv[1] == "client" else run_server(*sys.argv[2:]))

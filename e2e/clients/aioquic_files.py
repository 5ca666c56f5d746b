"""Files by HTTP/3 and by HTTP/0.9 over QUIC with somebody else's stack (aioquic), as either end.

aioquic_files.py client CA DIRECTORY ALPN VERSION URL...    fetches files and keeps them
aioquic_files.py server CERTIFICATE KEY DIRECTORY ADDRESS PORT    serves them until it is ended
"""

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlparse

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, ProtocolNegotiated, QuicEvent, StreamDataReceived
from aioquic.quic.packet import QuicProtocolVersion

HTTP09 = "hq-interop"
VERSIONS = {"1": QuicProtocolVersion.VERSION_1, "2": QuicProtocolVersion.VERSION_2}


class Endpoint(QuicConnectionProtocol):
    """What both ends do with what arrives."""

    http: H3Connection | None = None

    def quic_event_received(self, event: QuicEvent) -> None:
        """Pass bytes on to whom they concern."""
        if isinstance(event, ProtocolNegotiated) and event.alpn_protocol in H3_ALPN:
            self.http = H3Connection(self._quic)
        elif isinstance(event, ConnectionTerminated):
            self.ended(f"closed: {event.error_code} {event.reason_phrase}")
        if self.http is not None:
            for each in self.http.handle_event(event):
                self.http_event(each)
        elif isinstance(event, StreamDataReceived):
            self.data(event.stream_id, event.data, ended=event.end_stream)
        self.transmit()

    def http_event(self, event: H3Event) -> None:
        """A part of a request or of an answer."""
        if isinstance(event, HeadersReceived):
            self.headers(event.stream_id, dict(event.headers))
            self.data(event.stream_id, b"", ended=event.stream_ended)
        elif isinstance(event, DataReceived):
            self.data(event.stream_id, event.data, ended=event.stream_ended)

    def headers(self, stream: int, headers: dict[bytes, bytes]) -> None:
        """A header section has arrived."""
        raise NotImplementedError

    def data(self, stream: int, data: bytes, *, ended: bool) -> None:
        """Content has arrived."""
        raise NotImplementedError

    def ended(self, why: str) -> None:
        """The connection is over."""


class Server(Endpoint):
    """Answers each request with a file."""

    directory = Path()

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self.asked: dict[int, bytes] = {}

    def headers(self, stream: int, headers: dict[bytes, bytes]) -> None:
        """Answer a request of HTTP/3."""
        assert self.http is not None
        body = (self.directory / Path(headers[b":path"].decode()).name).read_bytes()
        length = str(len(body)).encode()
        self.http.send_headers(stream, [(b":status", b"200"), (b"content-length", length)])
        self.http.send_data(stream, body, end_stream=True)

    def data(self, stream: int, data: bytes, *, ended: bool) -> None:
        """Answer a request of HTTP/0.9 when its stream has ended, which another packet may tell."""
        if self.http is not None:
            return
        request = self.asked.pop(stream, b"") + data
        if not ended:
            self.asked[stream] = request
        elif request.startswith(b"GET "):
            name = Path(request.split()[1].decode()).name
            self._quic.send_stream_data(stream, (self.directory / name).read_bytes(), end_stream=True)


class Client(Endpoint):
    """Asks for files and keeps them."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)  # type: ignore[arg-type]
        self.content: dict[int, bytearray] = {}
        self.done: dict[int, asyncio.Future[None]] = {}

    async def fetch(self, url: str, into: Path) -> None:
        """Fetch one file to its end."""
        target = urlparse(url)
        stream = self._quic.get_next_available_stream_id()
        self.content[stream], self.done[stream] = bytearray(), asyncio.get_running_loop().create_future()
        if self.http is None:
            self._quic.send_stream_data(stream, f"GET {target.path}\r\n".encode(), end_stream=True)
        else:
            fields = {":method": "GET", ":scheme": "https", ":authority": target.netloc, ":path": target.path}
            section = [(name.encode(), value.encode()) for name, value in fields.items()]
            self.http.send_headers(stream, section, end_stream=True)
        self.transmit()
        await self.done[stream]
        (into / Path(target.path).name).write_bytes(self.content[stream])

    def headers(self, stream: int, headers: dict[bytes, bytes]) -> None:
        """Anything but the file is an error."""
        if headers[b":status"] != b"200":
            self.done[stream].set_exception(ConnectionError(f"status {headers[b':status']!r}"))

    def data(self, stream: int, data: bytes, *, ended: bool) -> None:
        """Keep what has arrived."""
        if stream in self.content:
            self.content[stream] += data
            if ended and not self.done[stream].done():
                self.done[stream].set_result(None)

    def ended(self, why: str) -> None:
        """Nobody waits for an answer that cannot come."""
        for each in self.done.values():
            if not each.done():
                each.set_exception(ConnectionError(why))


async def run_server(certificate: str, key: str, directory: str, address: str, port: str) -> None:
    """Serve until the process is ended."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[*H3_ALPN, HTTP09])
    configuration.load_cert_chain(certificate, key)
    Server.directory = Path(directory)
    await serve(address, int(port), configuration=configuration, create_protocol=Server)
    print("listening", flush=True)
    await asyncio.Event().wait()


async def run_client(ca: str, directory: str, alpn: str, version: str, *urls: str) -> None:
    """Fetch everything over one connection."""
    wanted = VERSIONS[version]
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=[alpn], original_version=wanted, supported_versions=[wanted]
    )
    configuration.load_verify_locations(ca)
    configuration.server_name = "perf.test"
    target = urlparse(urls[0])
    assert target.hostname is not None
    made = connect(target.hostname, target.port or 443, configuration=configuration, create_protocol=Client)
    async with made as client:
        assert isinstance(client, Client)
        for url in urls:
            await client.fetch(url, Path(directory))


if __name__ == "__main__":
    asyncio.run(run_client(*sys.argv[2:]) if sys.argv[1] == "client" else run_server(*sys.argv[2:]))

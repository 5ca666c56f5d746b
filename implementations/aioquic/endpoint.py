"""An endpoint of aioquic by the contract of docs/matrix.md: HTTP/3 and HTTP/0.9 over QUIC (hq-interop)."""

import asyncio
import os
import signal
import ssl
from pathlib import Path
from urllib.parse import urlparse

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent, StreamDataReceived
from aioquic.quic.logger import QuicFileLogger

WWW, DOWNLOADS, PORT = Path("/www"), Path("/downloads"), 443
H3 = os.environ["PROTOCOL"] in H3_ALPN


def configuration(*, client: bool) -> QuicConfiguration:
    """As shipped, but for the knobs that are set."""
    made = QuicConfiguration(is_client=client, alpn_protocols=[os.environ["PROTOCOL"]])
    if controller := os.environ.get("CC"):
        made.congestion_control_algorithm = controller
    if window := os.environ.get("MAX_DATA"):
        made.max_data = int(window)
    if window := os.environ.get("MAX_STREAM_DATA"):
        made.max_stream_data = int(window)
    if name := os.environ.get("SSLKEYLOGFILE"):
        made.secrets_log_file = Path(name).open("a")
    if directory := os.environ.get("QLOGDIR"):
        made.quic_logger = QuicFileLogger(directory)
    return made


class Server(QuicConnectionProtocol):
    """Answers each request with a file."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)
        self._http = H3Connection(self._quic) if H3 else None
        self._requests: dict[int, bytes] = {}

    def quic_event_received(self, event: QuicEvent) -> None:
        """A request, or a part of one."""
        if self._http is not None:
            for each in self._http.handle_event(event):
                if isinstance(each, HeadersReceived):
                    self._answer_h3(each)
        elif isinstance(event, StreamDataReceived):
            request = self._requests.get(event.stream_id, b"") + event.data
            self._requests[event.stream_id] = request
            if event.end_stream:
                path = request.decode().strip().removeprefix("GET ")
                self._quic.send_stream_data(event.stream_id, (WWW / Path(path).name).read_bytes(), end_stream=True)
        self.transmit()

    def _answer_h3(self, event: HeadersReceived) -> None:
        path = dict(event.headers)[b":path"].decode()
        body = (WWW / Path(path).name).read_bytes()
        self._http.send_headers(
            event.stream_id, [(b":status", b"200"), (b"content-length", str(len(body)).encode())]
        )
        self._http.send_data(event.stream_id, body, end_stream=True)


class Client(QuicConnectionProtocol):
    """Asks for files and keeps them."""

    def __init__(self, *arguments: object, **settings: object) -> None:
        super().__init__(*arguments, **settings)
        self._http = H3Connection(self._quic) if H3 else None
        self._sinks: dict[int, tuple[object, asyncio.Future]] = {}

    async def fetch(self, address: str) -> None:
        """Fetch one file to its end."""
        target = urlparse(address)
        stream = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        with (DOWNLOADS / Path(target.path).name).open("wb") as sink:
            self._sinks[stream] = (sink, done)
            if self._http is None:
                self._quic.send_stream_data(stream, f"GET {target.path}\r\n".encode(), end_stream=True)
            else:
                headers = {":method": "GET", ":scheme": "https", ":authority": target.netloc, ":path": target.path}
                self._http.send_headers(
                    stream, [(name.encode(), value.encode()) for name, value in headers.items()], end_stream=True
                )
            self.transmit()
            await done

    def quic_event_received(self, event: QuicEvent) -> None:
        """Bytes of an answer, or the end of the connection."""
        if isinstance(event, ConnectionTerminated):
            for _, done in self._sinks.values():
                if not done.done():
                    done.set_exception(ConnectionError(f"closed: {event.error_code} {event.reason_phrase}"))
        if self._http is not None:
            for each in self._http.handle_event(event):
                self._http_event(each)
        elif isinstance(event, StreamDataReceived):
            self._take(event.stream_id, event.data, event.end_stream)

    def _http_event(self, event: H3Event) -> None:
        if isinstance(event, HeadersReceived):
            status = dict(event.headers).get(b":status")
            if status != b"200":
                self._sinks[event.stream_id][1].set_exception(ConnectionError(f"status {status!r}"))
            elif event.stream_ended:
                self._take(event.stream_id, b"", True)
        elif isinstance(event, DataReceived):
            self._take(event.stream_id, event.data, event.stream_ended)

    def _take(self, stream: int, data: bytes, ended: bool) -> None:
        sink, done = self._sinks[stream]
        sink.write(data)
        if ended and not done.done():
            done.set_result(None)


async def run_server() -> None:
    """Serve until SIGTERM."""
    made = configuration(client=False)
    made.load_cert_chain("/certs/cert.pem", "/certs/priv.key")
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await serve("0.0.0.0", PORT, configuration=made, create_protocol=Server)  # noqa: S104
    await ended.wait()
    server.close()
    await asyncio.sleep(0)


async def run_client() -> None:
    """Fetch what is asked for, over one connection."""
    requests = os.environ["REQUESTS"].split()
    target = urlparse(requests[0])
    made = configuration(client=True)
    made.load_verify_locations("/certs/ca.pem")
    made.verify_mode = ssl.CERT_REQUIRED
    async with connect(
        target.hostname, target.port or PORT, configuration=made, create_protocol=Client
    ) as client:
        for request in requests:
            await client.fetch(request)


if __name__ == "__main__":
    asyncio.run(run_server() if os.environ["ROLE"] == "server" else run_client())

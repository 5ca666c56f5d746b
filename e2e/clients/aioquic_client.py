"""A client of somebody else's (aioquic) at our gateway: CONNECT, CONNECT-UDP and CONNECT-IP (RFC 9114, 9298, 9484).

Prints what came back as one line of JSON. The client authenticates by a certificate or by a bearer token, and verifies
the gateway by the certificate of its authority or tells the fingerprint of its key.
"""

import argparse
import asyncio
import base64
import hashlib
import ipaddress
import json
import ssl
from collections import defaultdict
from typing import Any

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DatagramReceived, DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, QuicEvent
from cryptography.hazmat.primitives import serialization

PATIENCE_S = 30.0
SIZES = (0, 1, 1000)
CAPSULE_SIZE = 9000


class Client(QuicConnectionProtocol):
    """HTTP/3 requests, and what came of them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        self.headers: dict[int, dict[str, str]] = {}
        self.data: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.datagrams: defaultdict[int, list[bytes]] = defaultdict(list)
        self.ended: ConnectionTerminated | None = None
        self.news = asyncio.Event()
        self.token: str | None = None

    def quic_event_received(self, event: QuicEvent) -> None:
        """Sort what has arrived by its request."""
        if isinstance(event, ConnectionTerminated):
            self.ended = event
        for received in self.http.handle_event(event):
            if isinstance(received, HeadersReceived):
                fields = {name.decode(): value.decode() for name, value in received.headers}
                self.headers.setdefault(received.stream_id, {}).update(fields)
            elif isinstance(received, DataReceived):
                self.data[received.stream_id] += received.data
            elif isinstance(received, DatagramReceived):
                self.datagrams[received.stream_id].append(received.data)
        self.news.set()

    async def until(self, condition: Any) -> None:
        """Wait for a condition about what has arrived."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                if self.ended is not None:
                    raise ConnectionError(f"closed: {self.ended.error_code:#x} {self.ended.reason_phrase}")
                self.news.clear()
                await self.news.wait()

    def request(self, headers: dict[str, str]) -> int:
        """Send a request that stays open; its stream."""
        stream = self._quic.get_next_available_stream_id()
        if self.token is not None:
            headers = {**headers, "proxy-authorization": f"Bearer {self.token}"}
        self.http.send_headers(stream, [(name.encode(), value.encode()) for name, value in headers.items()])
        return stream

    def fingerprint(self) -> str:
        """Of the gateway's key, as bentpipe writes it."""
        certificate = self._quic.tls._peer_certificate
        assert certificate is not None
        key = certificate.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = base64.urlsafe_b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
        return f"sha256:{digest}"


async def tcp(client: Client, target: str) -> dict[str, Any]:
    """A connection through the gateway: what is echoed."""
    stream = client.request({":method": "CONNECT", ":authority": target})
    client.http.send_data(stream, b"over CONNECT", end_stream=False)
    client.transmit()
    await client.until(lambda: stream in client.headers)
    if client.headers[stream][":status"] == "200":
        await client.until(lambda: len(client.data[stream]) >= len(b"over CONNECT"))
    return {"headers": client.headers[stream], "echo": client.data[stream].decode()}


async def udp(client: Client, authority: str, host: str, port: int) -> dict[str, Any]:
    """Datagrams through the gateway: the sizes that come back, in frames and in a capsule."""
    stream = client.request(
        {
            ":method": "CONNECT",
            ":scheme": "https",
            ":authority": authority,
            ":path": f"/.well-known/masque/udp/{host.replace(':', '%3A')}/{port}/",
            ":protocol": "connect-udp",
            "capsule-protocol": "?1",
        }
    )
    for size in SIZES:
        client.http.send_datagram(stream, b"\0" + bytes(size))
    client.transmit()
    await client.until(lambda: stream in client.headers)
    answer: dict[str, Any] = {"headers": client.headers[stream], "datagrams": [], "capsule": None}
    if client.headers[stream][":status"] != "200":
        return answer
    await client.until(lambda: len(client.datagrams[stream]) >= len(SIZES))
    answer["datagrams"] = sorted(len(content) - 1 for content in client.datagrams[stream])
    # DATAGRAM capsule: type 0, a length of two bytes, context 0.
    head = b"\0" + (0x4000 | CAPSULE_SIZE + 1).to_bytes(2, "big")
    client.http.send_data(stream, head + b"\0" + bytes(CAPSULE_SIZE), end_stream=False)
    client.transmit()
    await client.until(lambda: len(client.data[stream]) >= len(head) + 1 + CAPSULE_SIZE)
    answer["capsule"] = client.data[stream][: len(head)] == head and len(client.data[stream]) - len(head) - 1
    return answer


def checksum(data: bytes) -> bytes:
    """Of an even number of bytes (RFC 1071)."""
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return (total ^ 0xFFFF).to_bytes(2, "big")


def echo_request(source: bytes, destination: bytes) -> bytes:
    """A ping of IPv4."""
    header = bytes([0x45, 0, 0, 36, 0, 1, 0, 0, 64, 1])
    header += checksum(header + bytes(2) + source + destination) + source + destination
    rest = bytes([0, 7, 0, 1]) + b"of aioquic.."[:8]
    return header + b"\x08\x00" + checksum(b"\x08\x00" + bytes(2) + rest) + rest


async def ip(client: Client, authority: str, host: str) -> dict[str, Any]:
    """A ping through the gateway: the address that was assigned, and what came back of whom."""
    stream = client.request(
        {
            ":method": "CONNECT",
            ":scheme": "https",
            ":authority": authority,
            ":path": "/.well-known/masque/ip/*/*/",
            ":protocol": "connect-ip",
            "capsule-protocol": "?1",
        }
    )
    client.transmit()
    await client.until(lambda: stream in client.headers)
    answer: dict[str, Any] = {"headers": client.headers[stream]}
    if client.headers[stream][":status"] != "200":
        return answer
    # ADDRESS_ASSIGN: type 1, a length of one byte, request 0, version 4, four bytes, a prefix of 32 bits.
    await client.until(lambda: len(client.data[stream]) >= 9)
    kind, _, request, version = client.data[stream][:4]
    source = bytes(client.data[stream][4:8])
    answer["assigned"] = [kind, request, version, *source]
    client.http.send_datagram(stream, b"\0" + echo_request(source, ipaddress.IPv4Address(host).packed))
    client.transmit()
    await client.until(lambda: client.datagrams[stream])
    packet = client.datagrams[stream][0][1:]
    answer["reply"] = {"from": str(ipaddress.IPv4Address(packet[12:16])), "type": packet[20]}
    return answer


async def main(arguments: argparse.Namespace) -> None:
    """Ask for one of each, and for something that the gateway forbids."""
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=H3_ALPN,
        max_datagram_frame_size=65_535,
        verify_mode=ssl.CERT_REQUIRED if arguments.authority else ssl.CERT_NONE,
        cafile=arguments.authority,
    )
    if arguments.certificate:
        configuration.load_cert_chain(arguments.certificate, arguments.key)
    gateway, port = arguments.gateway.rsplit(":", 1)
    async with connect(gateway, int(port), configuration=configuration, create_protocol=Client) as client:
        assert isinstance(client, Client)
        client.token = arguments.token
        results = {
            "gateway": client.fingerprint(),
            "tcp": await tcp(client, arguments.tcp),
            "udp": await udp(client, arguments.gateway, *arguments.udp),
            "denied": await udp(client, arguments.gateway, "127.0.0.1", 53),
            "ip": await ip(client, arguments.gateway, arguments.ping),
        }
        print(json.dumps(results), flush=True)


def udp_target(text: str) -> tuple[str, int]:
    """A host and a port."""
    host, port = text.rsplit(":", 1)
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--certificate")
    parser.add_argument("--key")
    parser.add_argument("--token")
    parser.add_argument("--authority")
    parser.add_argument("--gateway", required=True)
    parser.add_argument("--ping", required=True)
    parser.add_argument("--tcp", required=True)
    parser.add_argument("--udp", required=True, type=udp_target)
    asyncio.run(main(parser.parse_args()))

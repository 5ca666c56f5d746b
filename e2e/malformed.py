"""Packets as no kernel sends them: fragments, lengths, checksums, options and flags that contradict each other."""

import ipaddress
import random
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

TCP, UDP, ICMP, ICMP6 = socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP, socket.IPPROTO_ICMPV6
HOP_BY_HOP, ROUTING, FRAGMENT, ESP, AUTHENTICATION, NOTHING, DESTINATION = 0, 43, 44, 50, 51, 59, 60
MORE = 0x2000
"""More fragments follow (IPv4)."""
SOURCE_ROUTE = b"\x83\x07\x04\xc6\x33\x64\x09\x00"
RECORD_ROUTE, TIMESTAMP, ALERT = b"\x07\x27\x04" + bytes(37), b"\x44\x24\x05\x00" + bytes(36), b"\x94\x04\x00\x00"
UNENDING = b"\x07\x00\x04\x00"
"""An option without a length."""


@dataclass(frozen=True)
class Between:
    """From whom to whom."""

    source: str
    destination: str

    def pair(self) -> bytes:
        """Both addresses, as in a header."""
        return b"".join(ipaddress.ip_address(each).packed for each in (self.source, self.destination))

    def checksum(self, protocol: int, payload: bytes) -> int:
        """Of TCP, UDP or ICMPv6, over the pseudo-header too."""
        return checksum(self.pair() + struct.pack("!IHH", len(payload), 0, protocol) + payload)


def checksum(data: bytes) -> int:
    """The internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(
    between: Between, protocol: int, payload: bytes, *,
    options: bytes = b"", length: int | None = None, words: int | None = None, version: int = 4,
    fragment: int = 0, number: int = 1, hops: int = 64, right: bool = True,
) -> bytes:  # fmt: skip
    """A packet with that header; what is not given is right."""
    header_words = 5 + len(options) // 4
    head = struct.pack(
        "!BBHHHBBH", version << 4 | (header_words if words is None else words), 0,
        4 * header_words + len(payload) if length is None else length, number, fragment, hops, protocol, 0,
    ) + between.pair() + options  # fmt: skip
    total = checksum(head) ^ (0 if right else 0x5555)
    return head[:10] + struct.pack("!H", total) + head[12:] + payload


def ipv6(between: Between, next_header: int, payload: bytes, *, length: int | None = None, hops: int = 64) -> bytes:
    """A packet with that header; what is not given is right."""
    stated = len(payload) if length is None else length
    return struct.pack("!IHBB", 6 << 28, stated, next_header, hops) + between.pair() + payload


def tcp(between: Between, flags: int, *, words: int = 5, options: bytes = b"", right: bool = True) -> bytes:
    """A segment to port 80."""
    head = struct.pack("!HHIIBBHHH", 40_000 + flags, 80, 7, 9, words << 4, flags, 1000, 0, 3) + options + b"data"
    total = between.checksum(TCP, head) ^ (0 if right else 0x5555)
    return head[:16] + struct.pack("!H", total) + head[18:]


def udp(between: Between, port: int, data: bytes, *, length: int | None = None, total: int | None = None) -> bytes:
    """A datagram, whose length or checksum may be wrong."""
    stated = 8 + len(data) if length is None else length
    head = struct.pack("!HHHH", 41_000, port, stated, 0) + data
    right = between.checksum(UDP, head) or 0xFFFF
    return head[:6] + struct.pack("!H", right if total is None else total) + data


def transports(between: Between) -> Iterator[tuple[int, bytes]]:
    """TCP with every set of flags, wrong offsets, options and checksums; UDP that says another length."""
    for flags in range(64):
        yield TCP, tcp(between, flags)
    for words in (0, 4, 6, 15):
        yield TCP, tcp(between, 2, words=words)
    for options in (
        b"\x02\x00\x00\x00",
        b"\x02\x04\x00\x00",
        b"\x03\x03\xff\x00",
        b"\x05\xff\x00\x00",
        b"\x08\x01\x01\x01",
    ):
        yield TCP, tcp(between, 2, words=6, options=options)
    yield TCP, tcp(between, 2, right=False)
    yield TCP, tcp(between, 2)[:13]
    for port in (0, 53, 443, 5000):
        for length in (0, 7, 8, 9, 2000, 65535):
            yield UDP, udp(between, port, b"malformed", length=length)
        yield UDP, udp(between, port, b"malformed", total=0)
        yield UDP, udp(between, port, b"malformed", total=0x1234)
        yield UDP, udp(between, port, b"")
    yield UDP, udp(between, 53, b"")[:5]
    for protocol in (1, 2, 4, 41, 47, ESP, AUTHENTICATION, 58, 132, 136, 253, 255):
        yield protocol, bytes(range(40))


def packets4(between: Between) -> Iterator[bytes]:
    """IPv4."""
    for protocol, payload in transports(between):
        yield ipv4(between, protocol, payload)
        yield ipv4(between, protocol, payload, options=ALERT)
    whole = udp(between, 443, bytes(3000))
    syn = tcp(between, 2)
    for protocol, payload in ((UDP, whole), (TCP, syn), (TCP, tcp(between, 16))):
        for options in (SOURCE_ROUTE, RECORD_ROUTE + b"\0", TIMESTAMP, UNENDING):
            yield ipv4(between, protocol, payload[:1000], options=options[:40])
        for length in (0, 19, 20, 27, 5000, 65535):
            yield ipv4(between, protocol, payload[:1000], length=length)
        for words in (0, 4, 6, 15):
            yield ipv4(between, protocol, payload[:1000], words=words)
        for hops in (0, 1):
            yield ipv4(between, protocol, payload[:1000], hops=hops)
        yield ipv4(between, protocol, payload[:1000], version=5)
        yield ipv4(between, protocol, payload[:1000], version=6)
        yield ipv4(between, protocol, payload[:1000], right=False)
        yield ipv4(between, protocol, payload[:1000], fragment=0x8000)
    # Fragments: in order, the first missing, overlapping, tiny, too far out, of which one never comes.
    for number, pieces in enumerate(
        (
            [(0, 1480, MORE), (1480, 3008, 0)],
            [(1480, 3008, 0)],
            [(0, 1480, MORE), (1000, 2480, MORE), (1480, 3008, 0)],
            [(0, 8, MORE), (8, 16, MORE), (16, 3008, 0)],
            [(65528, 65536, MORE), (65528, 67000, 0)],
            [(0, 1480, MORE)],
            [(0, 0, MORE), (0, 0, 0)],
            [(1480, 3008, 0), (0, 1480, MORE)],
        ),
        start=100,
    ):
        for start, end, more in pieces:
            piece = (whole * 30)[start : min(end, start + 1480)]
            yield ipv4(between, UDP, piece, fragment=more | start // 8 & 0x1FFF, number=number)
            yield ipv4(between, TCP, piece, fragment=more | start // 8 & 0x1FFF, number=number)


def packets6(between: Between) -> Iterator[bytes]:
    """IPv6."""
    inner = [(UDP, udp(between, 443, b"inside")), (TCP, tcp(between, 2)), (ICMP6, b"\x80\0\0\0abcd")]
    for protocol, payload in transports(between):
        yield ipv6(between, protocol, payload)
    for protocol, payload in inner:
        for length in (0, 1, 5000, 65535):
            yield ipv6(between, protocol, payload, length=length)
        for hops in (0, 1):
            yield ipv6(between, protocol, payload, hops=hops)
        following = bytes([protocol])
        for kind in (HOP_BY_HOP, ROUTING, DESTINATION):
            yield ipv6(between, kind, following + b"\0" + bytes(6) + payload)
            yield ipv6(between, kind, following + b"\xff" + bytes(6) + payload)
            yield ipv6(between, kind, following + b"\0\xc2\x04\x00\x01\x00\x00" + payload)
            chain = bytes([kind, 0]) + bytes(6)
            yield ipv6(between, kind, chain * 60 + following + b"\0" + bytes(6) + payload)
        through = ipaddress.ip_address("2001:db8::9").packed
        for routing in (0, 2, 3, 4):
            yield ipv6(between, ROUTING, following + bytes([2, routing, 1]) + bytes(4) + through + payload)
        for offset, more in ((0, 0), (0, 1), (8, 0), (65528, 1), (65528, 0)):
            for number in (1, 2):
                head = following + b"\0" + struct.pack("!HI", offset | more, number)
                yield ipv6(between, FRAGMENT, head + payload)
        for kind in (ESP, AUTHENTICATION, NOTHING, 135, 139, 253):
            yield ipv6(between, kind, following + b"\0" + bytes(6) + payload)
        yield ipv6(between, HOP_BY_HOP, following + b"\0\x05\x02\0\0\0\0" + payload)
        yield ipv6(between, HOP_BY_HOP, following + b"\0\xc2\x04\x00\x01\x11\x70" + payload, length=0)
    yield ipv6(between, UDP, b"")


def mangled(packets: list[bytes], seed: int) -> Iterator[bytes]:
    """Each cut somewhere, and each with a byte that is another."""
    dice = random.Random(seed)  # noqa: S311
    for packet in packets:
        yield packet[: dice.randrange(1, len(packet) + 1)]
        place = dice.randrange(len(packet))
        yield packet[:place] + bytes([packet[place] ^ dice.randrange(1, 256)]) + packet[place + 1 :]

"""Adapters: how a proxy is started on the lab's path, and how an application reaches a server through it.

A proxy is added here: a class with a name, and what it takes to start it and to connect.
"""

import socket
import struct
from abc import ABC, abstractmethod
from typing import ClassVar

from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import LAN, Topology
from bentpipe_lab.systems.contract import Settings, System
from bentpipe_lab.systems.hysteria2 import Hysteria2
from bentpipe_lab.systems.tuic import Tuic
from bentpipe_lab.systems.tunnel import HTTP, RESOLVER, SOCKS, start_bentpipe
from conversation import connect, eventually

Address = tuple[str, int]


class Adapter(ABC):
    """A proxy under test."""

    name: ClassVar[str]
    ours: ClassVar[bool] = False
    """Its failures fail the tests; those of others are results."""
    udp: ClassVar[bool] = False
    """It carries datagrams that the client sends to a server's address."""
    resolver: ClassVar[Address | None] = None
    """Where its clients ask for names."""
    ipv6: ClassVar[bool] = True

    @abstractmethod
    def start(self, path: Topology) -> None:
        """Start it; connections are carried when this returns."""

    def connect(self, path: Topology, address: Address) -> socket.socket:
        """A connection of the client's to a server, as its application would open it."""
        return connect(path.client, address)


class BentpipeTransparent(Adapter):
    """Ours, taking what passes through."""

    name = "bentpipe-transparent"
    ours = True
    udp = True
    resolver = RESOLVER

    def start(self, path: Topology) -> None:
        start_bentpipe(path)


class BentpipeSocks5(Adapter):
    """Ours, as a SOCKS5 proxy; the applications run beside it."""

    name = "bentpipe-socks5"
    ours = True

    def start(self, path: Topology) -> None:
        start_bentpipe(path)

    def connect(self, path: Topology, address: Address) -> socket.socket:
        stream = connect(path.terminal, SOCKS)
        stream.sendall(b"\x05\x01\x00")
        assert _exactly(stream, 2) == b"\x05\x00"
        family, packed = (4, socket.AF_INET6) if ":" in address[0] else (1, socket.AF_INET)
        target = socket.inet_pton(packed, address[0]) + struct.pack("!H", address[1])
        stream.sendall(bytes([5, 1, 0, family]) + target)
        reply = _exactly(stream, 4)
        _exactly(stream, 18 if reply[3] == 4 else 6)
        if reply[1] != 0:
            stream.close()
            raise ConnectionRefusedError(f"SOCKS5 reply {reply[1]}")
        return stream


class BentpipeHttp(Adapter):
    """Ours, as an HTTP proxy; the applications run beside it."""

    name = "bentpipe-http"
    ours = True

    def start(self, path: Topology) -> None:
        start_bentpipe(path)

    def connect(self, path: Topology, address: Address) -> socket.socket:
        stream = connect(path.terminal, HTTP)
        host_name = f"[{address[0]}]" if ":" in address[0] else address[0]
        authority = f"{host_name}:{address[1]}"
        stream.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += _exactly(stream, 1)
        status = head.split(b" ", 2)[1]
        if status != b"200":
            stream.close()
            raise ConnectionRefusedError(f"HTTP status {status.decode()}")
        return stream


class Relay(Adapter):
    """A program that listens for each target at a port of its own."""

    def __init__(self) -> None:
        self.ports: dict[Address, int] = {}

    def start(self, path: Topology) -> None:  # noqa: ARG002 (it starts with its targets)
        self.ports.clear()

    def connect(self, path: Topology, address: Address) -> socket.socket:
        if address not in self.ports:
            port = 20_000 + len(self.ports)
            process = self.relay(path, port, address)
            eventually(lambda: _listens(path, port) or process.exit_code is not None, f"{self.name} listens")
            self.ports[address] = port
        return connect(path.client, (LAN.near4, self.ports[address]))

    @abstractmethod
    def relay(self, path: Topology, port: int, address: Address) -> Process:
        """Start what carries connections from a port of the terminal to an address."""


class Socat(Relay):
    """socat, a process for each connection."""

    name = "socat"

    def relay(self, path: Topology, port: int, address: Address) -> Process:
        family, target = ("TCP6", f"[{address[0]}]") if ":" in address[0] else ("TCP4", address[0])
        listen = f"TCP4-LISTEN:{port},fork,reuseaddr,backlog=128"
        return path.start(
            f"socat-{port}", path.terminal, ["socat", "-t3600", listen, f"{family}:{target}:{address[1]}"]
        )


NGINX = """\
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
error_log stderr;
pid {directory}/nginx-{port}.pid;
events {{ worker_connections 8192; }}
stream {{
    server {{
        listen {port} backlog=128 so_keepalive=on;
        proxy_pass {target}:{target_port};
        proxy_half_close on;
        proxy_timeout 1h;
    }}
}}
"""


class NginxStream(Relay):
    """nginx, relaying TCP (its stream module)."""

    name = "nginx-stream"

    def relay(self, path: Topology, port: int, address: Address) -> Process:
        target = f"[{address[0]}]" if ":" in address[0] else address[0]
        configuration = path.directory / f"nginx-{port}.conf"
        configuration.write_text(
            NGINX.format(directory=path.directory.absolute(), port=port, target=target, target_port=address[1])
        )
        return path.start(f"nginx-{port}", path.terminal, ["nginx", "-c", configuration.absolute()])


class Lab(Adapter):
    """One of the lab's systems: it takes what the client sends."""

    system: ClassVar[System]
    udp = True
    ipv6 = False

    def start(self, path: Topology) -> None:
        self.system.start(path, Settings())


class SingBox(Lab):
    """sing-box at both ends, with TUIC between them."""

    name = "sing-box-tuic"
    system = Tuic()


class Hysteria(Lab):
    """Hysteria 2's core at both ends."""

    name = "hysteria2"
    system = Hysteria2()


ALL: dict[str, type[Adapter]] = {
    adapter.name: adapter
    for adapter in (BentpipeTransparent, BentpipeSocks5, BentpipeHttp, SingBox, Hysteria, Socat, NginxStream)
}


def _exactly(stream: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        piece = stream.recv(count - len(received))
        if not piece:
            raise ConnectionRefusedError("the proxy closed the connection instead of a reply")
        received += piece
    return received


def _listens(path: Topology, port: int) -> bool:
    """Seen from outside: a connection to find out would be carried."""
    return bool(path.terminal.run("ss", "-Hltn", f"sport = :{port}").strip())

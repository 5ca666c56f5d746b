"""bentpipe: a paired terminal and gateway."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bentpipe_lab.analysis import bounds
from bentpipe_lab.net import content, host, product
from bentpipe_lab.net.evidence import Carrier
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.origin import NAME
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import GROUND, LAN, LISTED, SATELLITE, SERVER4, SERVER6, Topology
from bentpipe_lab.systems.contract import Settings, Simulation, System

GATEWAY_PORT = 4433
SOCKS = ("127.0.0.1", 1080)
HTTP = ("127.0.0.1", 3128)
RESOLVER = (LAN.near4, 53)
"""The terminal's resolver, for the client."""
MEMORY = "256 MiB"
UP_S = 5.0
"""In virtual time the session stands by then."""
WARM_UP_BOUNDS = 4
"""The simulator gives each transfer of the warm-up so many times its bound."""


@dataclass(frozen=True)
class Transport:
    """The [transport] table of both ends; None leaves a field to the product's default."""

    controller: str | None = None
    initial_window: str | None = None
    memory: str | None = MEMORY
    expected_rate: str | None = None
    expected_rtt: str | None = None
    further: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the table, by name."""

    @classmethod
    def for_link(cls, link: Link | None) -> "Transport":
        """What a user who knows the contract of the link would write."""
        if link is None:
            return cls()
        return cls(
            expected_rate=_rate(max(link.forward.rate_bit_s, link.back.rate_bit_s)),
            expected_rtt=f"{link.satellite_rtt_s * 1e3:g} ms",
        )

    def fields(self) -> dict[str, Any]:
        """The fields that are set, by name."""
        fields = {
            "controller": self.controller,
            "expected_rate": self.expected_rate,
            "initial_window": self.initial_window,
            "expected_rtt": self.expected_rtt,
            "memory": self.memory,
            **self.further,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def table(self) -> str:
        """As TOML."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in self.fields().items()]
        return "\n".join(["[transport]", *lines, ""])


@dataclass
class Bentpipe:
    """A paired gateway and terminal, running in a topology."""

    path: Topology
    gateway_config: Path
    terminal_config: Path
    hosts: Path
    gateway: Process
    terminal: Process

    def start_gateway(self) -> None:
        """Start the gateway, again when it was ended; it listens when this returns."""
        self.gateway = start_gateway(self.path, self.gateway_config, self.hosts)

    def start_terminal(self) -> None:
        """Start the terminal, again when it was ended; its session is up when this returns."""
        self.terminal = start_terminal(self.path, self.terminal_config)


def start_bentpipe(path: Topology, transport: Transport | None = None, allow: Sequence[str] = LISTED) -> Bentpipe:
    """Make keys, pair both ends and start them; the session is up when this returns."""
    transport = transport or Transport.for_link(path.link)
    gateway_config = path.directory / "gateway" / "gateway.toml"
    terminal_config = path.directory / "terminal" / "terminal.toml"
    hosts = path.directory / "gateway" / "hosts"
    for config in (gateway_config, terminal_config):
        config.parent.mkdir(parents=True, exist_ok=True)
    gateway_config.write_text(gateway_toml(transport, allow))
    terminal_config.write_text(terminal_toml(transport))
    hosts.with_name("resolv.conf").write_text(f"nameserver {SERVER4}\n")
    hosts.write_text(f"127.0.0.1 localhost\n{SERVER4} {NAME}\n{SERVER6} {NAME}\n")
    line = enrolment(path, gateway_config)
    gateway = start_gateway(path, gateway_config, hosts)
    path.terminal.run(host.binary(), "terminal", "join", "--config", terminal_config.absolute(), line)
    terminal = start_terminal(path, terminal_config)
    return Bentpipe(path, gateway_config, terminal_config, hosts, gateway, terminal)


def enrolment(path: Topology, gateway_config: Path, gateway: str = SATELLITE.far4) -> str:
    """Make the gateway's identity; the line which a terminal joins with, of the gateway's address or name."""
    printed = path.gateway.run(
        host.binary(), "gateway", "init", "--config", gateway_config.absolute(),
        "--endpoint", f"{gateway}:{GATEWAY_PORT}",
    )  # fmt: skip
    (line,) = printed.splitlines()
    return line


def start_gateway(path: Topology, config: Path, hosts: Path) -> Process:
    """Start a gateway and wait until it listens."""
    argv: list[str | Path] = [host.binary(), "gateway", "--config", config.absolute()]
    files = {"/etc/hosts": hosts, "/etc/resolv.conf": hosts.with_name("resolv.conf")}
    process = path.start("gateway", path.gateway, argv, files)
    process.wait_line("ready")
    return process


def start_terminal(path: Topology, config: Path) -> Process:
    """Start a terminal and wait until its session is up."""
    argv: list[str | Path] = [host.binary(), "terminal", "--config", config.absolute()]
    process = path.start("terminal", path.terminal, argv)
    process.wait_line("ready")
    process.wait_line("session: up")
    return process


def gateway_toml(transport: Transport, allow: Sequence[str] = LISTED) -> str:
    """The gateway's configuration."""
    return f'listen = "0.0.0.0:{GATEWAY_PORT}"\n\n[egress]\nallow = {json.dumps(list(allow))}\n\n{transport.table()}'


def terminal_toml(transport: Transport) -> str:
    """The terminal's configuration."""
    return (
        # The lab's servers have private addresses.
        '[ingress.transparent]\ninterfaces = ["lan0"]\nleave_private = false\n\n'
        f'[ingress.socks5]\nlisten = "{SOCKS[0]}:{SOCKS[1]}"\n\n'
        f'[ingress.http]\nlisten = "{HTTP[0]}:{HTTP[1]}"\n\n'
        f'[dns]\nlisten = ["{RESOLVER[0]}:{RESOLVER[1]}"]\nclients = ["{LAN.far4}/32"]\n'
        f"allow_private = {json.dumps(list(LISTED))}\n\n{transport.table()}"
    )


class Tunnel(System):
    """A paired terminal and gateway; the terminal intercepts what the client sends."""

    name = "bentpipe"
    order = 20
    label = "bentpipe"
    colour = "#1668b8"
    pale = "#c3daf0"
    clocks = ("virtual", "real")
    carrier = Carrier("udp", GATEWAY_PORT)

    def require(self) -> None:
        """Raise unless the binary is built."""
        host.binary()

    def check(self, link: Link, settings: Settings) -> None:
        """As the terminal reads its configuration; the gateway's has the same table."""
        product.check("terminal", terminal_toml(_transport(link, settings)))

    def start(self, path: Topology, settings: Settings) -> None:
        """Pair both ends and start them; the session is up when this returns."""
        start_bentpipe(path, _transport(path.link, settings))

    def simulation(self, request: Simulation) -> dict[str, Any]:
        """The daemons' own code: warmed up as in real time, then the transfer."""
        down, up = (
            bounds.download_s(request.link, content.FILES["10MiB"]),
            bounds.upload_s(request.link, content.FILES["2MB"]),
        )
        starts = [UP_S]
        for least in () if request.cold else (down, up, down):
            starts.append(starts[-1] + WARM_UP_BOUNDS * least)
        begin = starts.pop()
        transfers = [{"download": "10 MiB"}, {"upload": "2 MB"}, {"download": "10 MiB"}]
        warm_up = [
            {"name": f"warm-up {number}", "start": _span(start), **transfer}
            for number, (start, transfer) in enumerate(zip(starts, transfers, strict=False), 1)
        ]
        measured = {"name": "measured", "start": _span(begin)}
        measured["upload" if request.transfer.upload else "download"] = f"{request.transfer.size} B"
        return {
            "through": "tunnel",
            "until": _span(begin + request.limit_s),
            "sample_every": request.sample_every,
            "granularity": "1 ms",
            "link": request.scenario,
            "transport": _transport(request.link, request.settings).fields(),
            "flow": [*warm_up, measured],
        }

    def address_at_server(self) -> str:
        """The gateway's."""
        return GROUND.near4


def _transport(link: Link | None, settings: Settings) -> Transport:
    window = None if settings.initial_window is None else f"{settings.initial_window} packets"
    transport = replace(Transport.for_link(link), controller=settings.controller, initial_window=window)
    return replace(transport, further=dict(settings.fields))


def _span(seconds: float) -> str:
    """A time in the simulator's plan, in whole milliseconds."""
    return f"{math.ceil(seconds * 1e3)} ms"


def _rate(bit_s: float) -> str:
    return f"{bit_s / 1e6:g} Mbit/s"

"""What carries the traffic from the client to the server: nothing (direct TCP), or bentpipe."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bentpipe_lab import host
from bentpipe_lab.link import Link
from bentpipe_lab.origin import NAME
from bentpipe_lab.process import Process
from bentpipe_lab.topology import LISTED, SATELLITE, SERVER4, SERVER6, Topology

GATEWAY_PORT = 4433
SOCKS = ("127.0.0.1", 1080)
MEMORY = "256 MiB"


@dataclass(frozen=True)
class Transport:
    """The [transport] table of both ends; None leaves a field to the product's default."""

    controller: str | None = None
    initial_window: str | None = None
    memory: str | None = MEMORY
    expected_rate: str | None = None
    expected_rtt: str | None = None

    @classmethod
    def for_link(cls, link: Link | None) -> "Transport":
        """What a user who knows the contract of the link would write."""
        if link is None:
            return cls()
        return cls(
            expected_rate=_rate(max(link.forward.rate_bit_s, link.back.rate_bit_s)),
            expected_rtt=f"{link.satellite_rtt_s * 1e3:g} ms",
        )

    def table(self) -> str:
        """As TOML."""
        fields = {
            "controller": self.controller,
            "expected_rate": self.expected_rate,
            "initial_window": self.initial_window,
            "expected_rtt": self.expected_rtt,
            "memory": self.memory,
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items() if value is not None]
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
    hosts.write_text(f"127.0.0.1 localhost\n{SERVER4} {NAME}\n{SERVER6} {NAME}\n")
    line = enrolment(path, gateway_config)
    gateway = start_gateway(path, gateway_config, hosts)
    path.terminal.run(host.binary(), "terminal", "join", "--config", terminal_config.absolute(), line)
    terminal = start_terminal(path, terminal_config)
    return Bentpipe(path, gateway_config, terminal_config, hosts, gateway, terminal)


def enrolment(path: Topology, gateway_config: Path) -> str:
    """Make the gateway's identity; the line which a terminal joins with."""
    printed = path.gateway.run(
        host.binary(), "gateway", "init", "--config", gateway_config.absolute(),
        "--endpoint", f"{SATELLITE.far4}:{GATEWAY_PORT}",
    )  # fmt: skip
    (line,) = printed.splitlines()
    return line


def start_gateway(path: Topology, config: Path, hosts: Path) -> Process:
    """Start a gateway and wait until it listens."""
    argv: list[str | Path] = [host.binary(), "gateway", "--config", config.absolute()]
    process = path.start("gateway", path.gateway, argv, {"/etc/hosts": hosts})
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
        f'[ingress.socks5]\nlisten = "{SOCKS[0]}:{SOCKS[1]}"\n\n{transport.table()}'
    )


def _direct(_path: Topology, _controller: str | None) -> None:
    """Nothing in between: the kernel's TCP from the client to the server."""


def _bentpipe(path: Topology, controller: str | None) -> None:
    start_bentpipe(path, replace(Transport.for_link(path.link), controller=controller))


SYSTEMS: dict[str, Callable[[Topology, str | None], None]] = {"direct": _direct, "bentpipe": _bentpipe}


def _rate(bit_s: float) -> str:
    return f"{bit_s / 1e6:g} Mbit/s"

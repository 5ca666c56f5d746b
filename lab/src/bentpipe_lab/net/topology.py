"""The path: client, terminal, gateway and server, each a network namespace, wired as in the field.

    client --lan0-- terminal ==sat0== gateway --gnd0-- server
             cable            satellite         ground

The satellite hop and the ground hop are TUN devices of `bentpipe emulate` when a scenario is given, and
plain cables when none is. Every namespace routes, so that a client's own TCP takes the very same path when
no tunnel is there. Everything is named after the run and removed by name, however the run ends.
"""

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host, interrupt, netns
from bentpipe_lab.net import origin as web
from bentpipe_lab.net.link import Link, explain
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import PATIENCE_S, Process


@dataclass(frozen=True)
class Hop:
    """The addresses of one hop: the end nearer to the client, then the other."""

    near4: str
    far4: str
    near6: str
    far6: str


LAN = Hop("10.77.0.1", "10.77.0.2", "fd77::1", "fd77::2")
"""Terminal, client."""
SATELLITE = Hop("10.77.1.1", "10.77.1.2", "fd77:0:0:1::1", "fd77:0:0:1::2")
"""Terminal, gateway."""
GROUND = Hop("10.77.2.1", "10.77.2.2", "fd77:0:0:2::1", "fd77:0:0:2::2")
"""Gateway, server."""
SERVER4, SERVER6 = GROUND.far4, GROUND.far6
BLACKHOLE4 = "10.77.3.1"
"""Behind the server: what is sent there disappears."""
UNREACHABLE4 = "10.77.3.2"
"""Behind the server, which answers that there is no such host."""
PRIVATE4 = "192.168.77.2"
"""The server too, by an address that a gateway must refuse unless its operator lists it."""
LISTED = ("10.77.2.0/23", "fd77:0:0:2::/64")
"""What the lab's gateways list as allowed: the servers' networks, which are private here."""

NODES = ("client", "terminal", "gateway", "server")
"""Where TCP can be set; in the order of the path."""

SMALLEST_BUFFER = "4096 131072"
TCP_BUFFERS = f"{SMALLEST_BUFFER} 33554432"
"""Minimum, initial and largest socket buffer. The largest holds 250 Mbit/s at 650 ms; the rest is Linux's default."""


CERTIFICATE = "certificate.json"
INTERVAL_PREFIX = "interval "
"""Before a certificate of an interval, in the emulator's standard output."""


@dataclass(frozen=True)
class Certificate:
    """What the emulator says of its own timing over a stretch of time, or over a whole run."""

    valid: bool
    reasons: tuple[str, ...]
    fields: dict[str, Any]
    """All that it says."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what the emulator wrote."""
        fields = json.loads(text)
        return cls(fields["valid"], tuple(fields["reasons"]), fields)


def read_certificate(directory: Path) -> Certificate | None:
    """The certificate that a run left in its directory, if it came that far."""
    path = directory / CERTIFICATE
    if not path.exists():
        return None
    return Certificate.read(path.read_text())


@dataclass
class Topology:
    """A path that stands. Programs started through it end with it."""

    run: str
    directory: Path
    link: Link | None
    client: Namespace
    terminal: Namespace
    gateway: Namespace
    server: Namespace
    satellite: Namespace
    """Where the emulator lives: it is found and removed by name like all the rest."""
    ends_apart: bool = False
    """Whether client and server are on other machines: they have no namespaces here then."""
    origin: web.Origin = field(init=False)
    most_written: int | None = field(default=None, init=False)
    """Bytes that a program started from now on may write to one file, its log for example; the kernel ends it then."""
    emulator: Process | None = field(default=None, init=False)
    records: Path | None = field(default=None, init=False)
    """Where the emulator writes down what becomes of each packet, if it does."""
    _programs: list[Process] = field(default_factory=list, init=False)
    _web_server: Process | None = field(default=None, init=False)

    @property
    def namespaces(self) -> tuple[Namespace, ...]:
        """All that are here, in the order of the path."""
        if self.ends_apart:
            return (self.terminal, self.gateway, self.satellite)
        return (self.client, self.terminal, self.gateway, self.server, self.satellite)

    def start(
        self,
        name: str,
        where: Namespace,
        argv: Sequence[str | Path],
        files: Mapping[str, Path] | None = None,
    ) -> Process:
        """Start a program in a namespace; `files` replaces files of the system for this program alone."""
        for target, source in (files or {}).items():
            mount = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
            argv = ["unshare", "--mount", "sh", "-c", mount, "sh", source.absolute(), target, *argv]
        if self.most_written is not None:
            argv = ["prlimit", f"--fsize={self.most_written}", *argv]
        process = Process(name, where.command(argv), self.directory)
        self._programs.append(process)
        return process

    @property
    def programs(self) -> tuple[Process, ...]:
        """What was started and has not been stopped, in order."""
        return tuple(self._programs)

    def runs(self, name: str) -> bool:
        """Whether a program of that name was started and has not ended."""
        return any(process.name == name and process.exit_code is None for process in self._programs)

    def certify_interval(self) -> Certificate | None:
        """The emulator's certificate of the time since it was last asked; None when the path is of plain cables."""
        if self.emulator is None:
            return None
        os.kill(self.emulator.pid, signal.SIGUSR1)
        return Certificate.read(self.emulator.wait_line(INTERVAL_PREFIX).removeprefix(INTERVAL_PREFIX))

    def end_emulation(self) -> Certificate | None:
        """End the emulator and read its certificate; None when the path is of plain cables."""
        if self.emulator is None:
            return None
        code = self.emulator.stop()
        certificate = read_certificate(self.directory)
        if code != 0 or certificate is None:
            raise LabError(f"the emulator ended with {code} and left no certificate{self.emulator.tail()}")
        return certificate

    def stop_system(self) -> None:
        """End every program but the emulator and the web server, the last started first."""
        stay = [process for process in self._programs if process in (self.emulator, self._web_server)]
        for process in reversed([process for process in self._programs if process not in stay]):
            process.stop()
        self._programs = stay

    def stop_programs(self) -> None:
        """End every program, the last started first."""
        while self._programs:
            self._programs.pop().stop()


@contextmanager
def topology(
    directory: Path,
    scenario: Path | None = None,
    *,
    congestion_control: str | None = None,
    web_server: bool = True,
    records: bool = False,
    processor: int | None = None,
    cables: Callable[[Topology], None] | None = None,
) -> Iterator[Topology]:
    """Build a path, and remove it however the block ends. Logs and the certificate are kept in `directory`.

    `processor` is the emulator's (`processors.kept_from_emulators`), any where none is given. `cables` lays the cables
    to client and server, `lan0` and `gnd0`, where these are on other machines.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        run = stack.enter_context(host.owned_run())
        explanation = _echo(scenario, directory) if scenario else None
        client, terminal, gateway, server, satellite = (
            Namespace(f"{run}-{part}") for part in ("client", "terminal", "gateway", "server", "satellite")
        )
        facts = Link.from_explanation(explanation) if explanation else None
        path = Topology(run, directory, facts, client, terminal, gateway, server, satellite, cables is not None)
        if records and scenario is not None:
            path.records = (directory / "records.bin").absolute()
        stack.callback(_remove, path)
        _build(path, scenario, congestion_control, cables, processor)
        if web_server:
            path.origin = web.start(path.server, directory, [SERVER4, SERVER6])
            path._web_server = path.origin.process
            path._programs.append(path.origin.process)
        yield path


def address_seen_by_server(path: Topology) -> str:
    """The address from which the server is reached when the client opens a TCP connection to it."""
    with path.server.socket() as listener, path.client.socket() as client:
        listener.bind((SERVER4, 0))
        listener.listen(1)
        listener.settimeout(PATIENCE_S)
        client.settimeout(PATIENCE_S)
        client.connect((SERVER4, listener.getsockname()[1]))
        client.sendall(b"?")
        peer, (address, _) = listener.accept()
        peer.close()
        return str(address)


def _echo(scenario: Path, directory: Path) -> dict[str, Any]:
    """Lay the scenario, and what the link model makes of it, beside the results."""
    if not scenario.is_file():
        raise LabError(f"there is no scenario at {scenario}")
    explanation = explain(scenario)
    shutil.copyfile(scenario, directory / "scenario.toml")
    (directory / "resolved.json").write_text(json.dumps(explanation, indent=2) + "\n")
    return explanation


def _build(
    path: Topology, scenario: Path | None, congestion_control: str | None,
    cables: Callable[[Topology], None] | None, processor: int | None,
) -> None:  # fmt: skip
    for namespace in path.namespaces:
        namespace.create()
        namespace.sysctl(
            net__ipv4__ip_forward=1,
            net__ipv6__conf__all__forwarding=1,
            # An address that is confirmed a second later is a change of network, for which browsers end their requests.
            net__ipv6__conf__default__accept_dad=0,
            net__ipv4__tcp_rmem=TCP_BUFFERS,
            net__ipv4__tcp_wmem=TCP_BUFFERS,
            net__ipv4__tcp_no_metrics_save=1,
        )
        if congestion_control:
            _control(namespace, congestion_control)
    if scenario is None:
        _cable(path.terminal, path.gateway, "sat0", SATELLITE)
    has_ground = path.link is not None and path.link.ground_rtt_s > 0
    if cables is not None:
        if has_ground:
            raise LabError(
                "the ground segment is not emulated where the server is on another machine: set ground.rtt = 0"
            )
        cables(path)
    else:
        _cable(path.terminal, path.client, "lan0", LAN)
        if not has_ground:
            _cable(path.gateway, path.server, "gnd0", GROUND)
    if scenario is not None:
        path.emulator = _emulate(path, scenario, processor)
    _route(path)


def _control(namespace: Namespace, name: str) -> None:
    try:
        namespace.sysctl(net__ipv4__tcp_congestion_control=name)
    except LabError as error:
        raise LabError(
            f"TCP {name} is not available inside network namespaces. The host must allow it, as root:"
            f" sysctl net.ipv4.tcp_allowed_congestion_control='reno {name}' ({error})"
        ) from error


def _cable(near: Namespace, far: Namespace, device: str, hop: Hop) -> None:
    netns.veth(near, device, far, device)
    for end, addresses in ((near, (hop.near4, hop.near6)), (far, (hop.far4, hop.far6))):
        end.ip_all(
            *(
                f"address add {address} dev {device}{' nodad' if ':' in address else ''}"
                for address in map(_with_prefix, addresses)
            )
        )


def _emulate(path: Topology, scenario: Path, processor: int | None) -> Process:
    def addressed(option: str, *addresses: str) -> list[str]:
        return [word for address in addresses for word in (f"--{option}-address", _with_prefix(address))]

    argv: list[str | Path] = [host.binary(), "emulate", scenario.absolute()]
    argv += ["--certificate", (path.directory / CERTIFICATE).absolute()]
    argv += ["--records", path.records] if path.records else []
    argv += [] if processor is None else ["--processor", str(processor)]
    argv += ["--terminal", f"{path.terminal.name}/sat0", "--gateway", f"{path.gateway.name}/sat0"]
    argv += addressed("terminal", SATELLITE.near4, SATELLITE.near6)
    argv += addressed("gateway", SATELLITE.far4, SATELLITE.far6)
    if path.link and path.link.ground_rtt_s:
        argv += [
            "--ground-gateway",
            f"{path.gateway.name}/gnd0",
            "--ground-server",
            f"{path.server.name}/gnd0",
        ]
        argv += addressed("ground-gateway", GROUND.near4, GROUND.near6)
        argv += addressed("ground-server", GROUND.far4, GROUND.far6)
    process = path.start("emulator", path.satellite, argv)
    process.wait_line("ready")
    return process


def _route(path: Topology) -> None:
    to_client = f"route add 10.77.0.0/24 via {SATELLITE.near4}", f"route add fd77::/64 via {SATELLITE.near6}"
    behind_server = (
        f"address add {PRIVATE4}/32 dev lo",
        f"route add blackhole {BLACKHOLE4}",
        f"route add unreachable {UNREACHABLE4}",
    )
    for namespace, device, next4, next6, further in (
        (path.client, "lan0", LAN.near4, LAN.near6, ()),
        (path.terminal, "sat0", SATELLITE.far4, SATELLITE.far6, ()),
        (path.gateway, "gnd0", GROUND.far4, GROUND.far6, to_client),
        (path.server, "gnd0", GROUND.near4, GROUND.near6, behind_server),
    ):
        if namespace in path.namespaces:
            default = (
                f"route add {every} via {hop} dev {device}" for every, hop in (("0.0.0.0/0", next4), ("::/0", next6))
            )
            namespace.ip_all(*default, *further)


def _with_prefix(address: str) -> str:
    return f"{address}/64" if ":" in address else f"{address}/24"


def _remove(path: Topology) -> None:
    with interrupt.shielded(), ExitStack() as steps:
        steps.callback(_check_gone, path)
        for namespace in path.namespaces:
            steps.callback(namespace.delete)
        path.stop_programs()


def _check_gone(path: Topology) -> None:
    left = host.namespaces_of(path.run)
    if left:
        raise LabError(f"left behind: {', '.join(sorted(left))}")

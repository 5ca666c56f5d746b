"""Splitting TCP proxies, `bentpipe tcp-pep`: at the gateway alone, or two around the satellite hop and one behind."""

from collections.abc import Sequence
from typing import ClassVar

from bentpipe_lab.net import host
from bentpipe_lab.net.evidence import Carrier, Split
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import GROUND, LISTED, SATELLITE, SERVER4, Topology
from bentpipe_lab.systems.contract import Settings
from bentpipe_lab.systems.parts.pep import SATELLITE_WINDOW, Pep
from bentpipe_lab.workloads.contract import TCP

BETWEEN, LAST = 5991, 5992
"""Where the proxy at the terminal reaches the one at the gateway, and this the one behind it."""


class TcpPep(Pep):
    """A proxy at the terminal and one at the gateway: TCP has three connections, one of them over the satellite."""

    name = "tcp-pep"
    order = 24
    label = "TCP split at both ends"
    colour = "#7a5195"
    pale = "#ddd0e6"
    carries = (TCP,)
    takes_fields = False
    carrier: ClassVar[Carrier | Split | None] = Carrier("tcp", BETWEEN)

    def start(self, path: Topology, settings: Settings) -> None:
        """Start both, and give the client's TCP to the one at the terminal."""
        _at_both_ends(path, settings, ["--allow", ",".join(LISTED)])


class TcpPepIntegrated(TcpPep):
    """A proxy at the gateway alone: the client's own TCP connection crosses the satellite."""

    name = "tcp-pep integrated"
    order = 25
    label = "TCP split at the gateway"
    colour = "#bc7fb5"
    pale = "#ecdcea"
    carrier = Split("tcp")

    def start(self, path: Topology, settings: Settings) -> None:
        """Start it, and give it the client's TCP."""
        _behind_a_router(path.gateway)
        _proxy(path, "gateway", path.gateway, ["--interfaces", "sat0", *_satellite("client", settings)])


class TcpPepChain(TcpPep):
    """Three of them, the last beside the server: TCP has four connections."""

    name = "tcp-pep chain"
    order = 25
    label = "TCP split by three proxies"
    colour = "#4a3a6b"
    pale = "#cfc8dc"

    def start(self, path: Topology, settings: Settings) -> None:
        """Start them from the server on, and give the client's TCP to the one at the terminal."""
        last = f"{SERVER4}:{LAST}"
        _proxy(
            path, "server", path.server,
            ["--listen", last, "--from", f"{GROUND.near4}/32", "--allow", ",".join(LISTED)],
        )  # fmt: skip
        _at_both_ends(path, settings, ["--via", last])

    def address_at_server(self) -> str:
        """The server's own, where the last one is."""
        return SERVER4


def _at_both_ends(path: Topology, settings: Settings, onwards: Sequence[str]) -> None:
    second = f"{SATELLITE.far4}:{BETWEEN}"
    _proxy(
        path, "gateway", path.gateway,
        ["--listen", second, "--from", f"{SATELLITE.near4}/32", *onwards, *_satellite("client", settings)],
    )  # fmt: skip
    _proxy(path, "terminal", path.terminal, ["--interfaces", "lan0", "--via", second, *_satellite("next", settings)])


def _satellite(side: str, settings: Settings) -> list[str]:
    """What is chosen of a proxy's side towards the satellite."""
    window = settings.initial_window or SATELLITE_WINDOW
    controller = [] if settings.controller is None else [f"--{side}-controller", settings.controller]
    return [f"--{side}-window", str(window), *controller]


def _proxy(path: Topology, end: str, where: Namespace, options: Sequence[str]) -> None:
    process = path.start(f"tcp-pep-{end}", where, [host.binary(), "tcp-pep", *options])
    process.wait_line("tcp-pep: ")


def _behind_a_router(gateway: Namespace) -> None:
    """Have the gateway reach the servers by a route: connections to networks of its own a proxy leaves alone."""
    gateway.ip("address", "del", f"{GROUND.near4}/24", "dev", "gnd0")
    gateway.ip("address", "add", f"{GROUND.near4}/32", "dev", "gnd0")
    gateway.ip("route", "replace", f"{GROUND.far4.rpartition('.')[0]}.0/24", "dev", "gnd0", "src", GROUND.near4)
    gateway.ip("route", "replace", "default", "via", GROUND.far4, "dev", "gnd0", "src", GROUND.near4)

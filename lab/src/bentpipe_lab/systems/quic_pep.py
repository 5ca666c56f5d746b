"""Splitting QUIC proxies, `bentpipe quic-pep`: at the gateway alone, or at both ends of the satellite hop."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import tomli_w

from bentpipe_lab.errors import NotInPathError
from bentpipe_lab.net import content, host, product
from bentpipe_lab.net.authority import Authority
from bentpipe_lab.net.evidence import Carrier, Split
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.topology import SATELLITE, SERVER4, Topology
from bentpipe_lab.systems.contract import Settings
from bentpipe_lab.systems.parts import routes
from bentpipe_lab.systems.parts.pep import SATELLITE_WINDOW, Pep
from bentpipe_lab.workloads.contract import QUIC
from bentpipe_lab.workloads.programs import inside

INTERCEPTED, BETWEEN, LAST = 4501, 4502, 4503
"""Where the client's connections arrive; where a proxy reaches the one at the gateway, and one behind that."""
NAME = "pep.bentpipe.test"
CONTROLLER, GROUND_WINDOW = "newreno", 10
"""As Kosek et al. had them; the window is that of the ground."""
WHOLE = ("mode", "ready", "memory")
"""Fields of the configuration itself; others that a plan sets are those of the satellite's side."""
GROUND_RATE = "1 Gbit/s"


class QuicPep(Pep):
    """A proxy at the terminal and one at the gateway: QUIC has three connections, one of them over the satellite."""

    name = "quic-pep"
    order = 26
    label = "QUIC split at both ends"
    colour = "#0f8b8d"
    pale = "#bfe3e3"
    carries = (QUIC,)
    carrier: ClassVar[Carrier | Split | None] = Carrier("udp", BETWEEN)

    def check(self, _link: Link, settings: Settings) -> None:
        """By the name of its controller."""
        product.check_controller(settings.controller or CONTROLLER)

    def start(self, path: Topology, settings: Settings) -> None:
        """Start both, and give the client's QUIC to the one at the terminal."""
        _at_gateway(path, settings, _servers())
        _at_terminal(path, settings)

    def address_seen(self, path: Topology) -> str:
        """A QUIC connection's: TCP goes beside a proxy for QUIC."""
        return _quic_address_seen(path)


class QuicPepIntegrated(QuicPep):
    """A proxy at the gateway alone: the client's own QUIC connection crosses the satellite."""

    name = "quic-pep integrated"
    order = 27
    label = "QUIC split at the gateway"
    colour = "#62a87c"
    pale = "#d3e8da"
    carrier = Split("udp")

    def start(self, path: Topology, settings: Settings) -> None:
        """Start it, and give it the client's QUIC."""
        _proxy(
            path, "gateway", path.gateway,
            {"listen": f"0.0.0.0:{INTERCEPTED}", **_servers(), **_whole(settings),
             "towards_clients": _satellite(path.link, settings), "towards_next": _ground(path.link)},
        )  # fmt: skip
        _intercept(path.gateway, "sat0")


class QuicPepChain(QuicPep):
    """Three of them, the last beside the server: QUIC has four connections."""

    name = "quic-pep chain"
    order = 28
    label = "QUIC split by three proxies"
    colour = "#3b6978"
    pale = "#cbdade"

    def start(self, path: Topology, settings: Settings) -> None:
        """Start them from the server on, and give the client's QUIC to the one at the terminal."""
        _proxy(
            path, "server", path.server,
            {"listen": f"{SERVER4}:{LAST}", **_servers(), **_whole(settings, last=True),
             "towards_clients": _ground(path.link), "towards_next": _ground(None)},
        )  # fmt: skip
        _at_gateway(path, settings, {"next": {"address": f"{SERVER4}:{LAST}", "kind": "pep", "name": NAME}})
        _at_terminal(path, settings)

    def address_at_server(self) -> str:
        """The server's own, where the last one is."""
        return SERVER4


def _at_gateway(path: Topology, settings: Settings, onwards: Mapping[str, Any]) -> None:
    last = onwards["next"].get("kind") != "pep"
    _proxy(
        path, "gateway", path.gateway,
        {"listen": f"0.0.0.0:{BETWEEN}", **onwards, **_whole(settings, last=last),
         "towards_clients": _satellite(path.link, settings), "towards_next": _ground(path.link)},
    )  # fmt: skip


def _at_terminal(path: Topology, settings: Settings) -> None:
    """One whose next hop is the gateway's, and which has the client's QUIC."""
    _proxy(
        path, "terminal", path.terminal,
        {"listen": f"0.0.0.0:{INTERCEPTED}", **_whole(settings),
         "next": {"address": f"{SATELLITE.far4}:{BETWEEN}", "kind": "pep", "name": NAME},
         "towards_clients": _ground(None), "towards_next": _satellite(path.link, settings)},
    )  # fmt: skip
    _intercept(path.terminal, "lan0")


def _servers() -> dict[str, Any]:
    """Where the servers of the workloads are, by the name that clients ask for."""
    return {
        "next": {"address": f"{SERVER4}:{content.WEB_PORT}"},
        "names": {
            content.PERF_HOST: {"address": f"{SERVER4}:{content.PERF_PORT}"},
            content.QUIC_HOST: {"address": f"{SERVER4}:{content.QUIC_PORT}"},
        },
    }


def _whole(settings: Settings, *, last: bool = False) -> dict[str, Any]:
    """What a plan sets of the configuration itself: the `last` of several in a row has nobody to be `ready` for."""
    kept = [name for name in WHOLE if not (last and name == "ready")]
    return {name: value for name, value in settings.fields.items() if name in kept}


def _satellite(link: Link | None, settings: Settings) -> dict[str, Any]:
    side: dict[str, Any] = {
        "controller": settings.controller or CONTROLLER,
        "initial_window": settings.initial_window or SATELLITE_WINDOW,
    }
    if link is not None:
        fastest = max(link.forward.rate_bit_s, link.back.rate_bit_s)
        side |= {
            "expected_rate": f"{fastest / 1e6:g} Mbit/s",
            # An integrated proxy's clients are behind the whole of it.
            "expected_rtt": f"{link.satellite_rtt_s * 1e3:g} ms",
        }
    return side | {name: value for name, value in settings.fields.items() if name not in WHOLE}


def _ground(link: Link | None) -> dict[str, Any]:
    rtt_s = 0.0 if link is None else link.ground_rtt_s
    return {
        "controller": CONTROLLER, "initial_window": GROUND_WINDOW, "expected_rate": GROUND_RATE,
        "expected_rtt": f"{max(rtt_s, 0.005) * 1e3:g} ms",
    }  # fmt: skip


def _proxy(path: Topology, end: str, where: Namespace, fields: Mapping[str, Any]) -> None:
    authority = Authority.of(path)
    identity = authority.issue(f"quic-pep-{end}")
    configuration = path.directory.absolute() / f"quic-pep-{end}.toml"
    keys = {"ca": str(authority.certificate), "certificate": str(identity.chain), "key": str(identity.key)}
    configuration.write_text(tomli_w.dumps({**keys, **fields}))
    process = path.start(f"quic-pep-{end}", where, [host.binary(), "quic-pep", "--config", configuration])
    process.wait_line("quic-pep: listening on")


def _intercept(where: Namespace, device: str) -> None:
    """Give what the client sends to QUIC servers to the proxy; answers leave with the servers' addresses."""
    routes.load(
        where, "lab_quic_pep", "type nat hook prerouting priority dstnat",
        f'iifname "{device}" ip daddr {SERVER4} udp dport'
        f" {{ {content.WEB_PORT}, {content.PERF_PORT}, {content.QUIC_PORT} }}"
        f" redirect to :{INTERCEPTED}",
    )  # fmt: skip


def _quic_address_seen(path: Topology) -> str:
    """The address from which `bentpipe perf server` is reached when the client opens a QUIC connection to it."""
    authority = Authority.of(path)
    identity = authority.issue("perf")
    listen = f"{SERVER4}:{content.PERF_PORT}"
    server = path.start("quic-probe-server", path.server, [
        host.binary(), "perf", "server", "--listen", listen, "--certificate", identity.chain, "--key", identity.key,
        "--json", "-",
    ])  # fmt: skip
    try:
        server.wait_line("perf server on")
        argv: list[str | Path] = [
            host.binary(), "perf", "client", listen, "--ca", authority.certificate, "--name", content.PERF_HOST,
            "--download", "10 kB", "--json", "-",
        ]  # fmt: skip
        with inside.started(path, argv) as process:
            _, said = inside.heard(process)
        if process.returncode != 0:
            raise NotInPathError(f"no QUIC connection comes through: {said.strip()[-inside.MOST_SAID :]}")
        return str(json.loads(server.wait_line("{"))["peer"]).rpartition(":")[0]
    finally:
        server.stop()

"""The tunnel beside other people's, over plain cables, on a quiet machine and on a busy one.

Every system of the lab that is installed takes the client's traffic transparently, so all of them are asked for the
same: bulk TCP, UDP at a rate, short connections, and a thousand connections that idle. A system that is missing is a
row that says so.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from bentpipe_lab.bench.carry import FLOW_SECONDS, IPERF_PORT, best, idle_flows, iperf3, until_listening
from bentpipe_lab.errors import LabError
from bentpipe_lab.net import neighbours
from bentpipe_lab.net.content import MIB
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.tcp import CONTROLLER
from bentpipe_lab.net.topology import SERVER4, Topology, topology
from bentpipe_lab.systems import SYSTEMS
from bentpipe_lab.systems.contract import Settings, System

BUSY = 6
"""Processes that never wait, beside the measurement."""
PLACES = 32
"""Connections at a time."""
CONNECTION_SECONDS = 5
CONNECTION_PORT = 7777
UDP_MBIT_S = 300
UDP_PAYLOAD = 1200


@dataclass(frozen=True)
class Figures:
    """What one system did; None where it failed, `trouble` says how."""

    system: str
    busy: int
    """Processes that never wait, beside it."""
    one_gbit_s: float | None = None
    many_gbit_s: float | None = None
    """Sixteen flows."""
    cpu_s_per_gb: float | None = None
    """Both ends together, sixteen flows."""
    udp_mbit_s: float | None = None
    """Of 300 offered in payloads of 1200 bytes."""
    udp_cpu_us: float | None = None
    """Both ends together, for each packet that arrived."""
    connections_per_s: float | None = None
    connections_failed: int | None = None
    idle_mib: float | None = None
    """Both ends together, with a thousand idle connections."""
    trouble: str = ""


def products(directory: Path) -> list[Figures]:
    """the tunnel beside other people's: bulk, UDP, short connections, memory; quiet, and beside six busy processes."""
    measured = [system for system in SYSTEMS if not system.baseline and "real" in system.clocks]
    rows = []
    for busy in (0, BUSY):
        for system in measured:
            try:
                system.require()
            except LabError as error:
                rows.append(Figures(system.name, busy, trouble=str(error)))
                continue
            with neighbours.busy(busy):
                rows.append(_measure(directory / f"{system.name}-{busy}", system, busy))
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "products.json").write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return rows


def _measure(directory: Path, system: System, busy: int) -> Figures:
    """Ask one system for everything; what it fails at is left out and named."""
    figures: dict[str, float] = {}
    trouble = []
    with topology(directory, congestion_control=CONTROLLER, web_server=False) as path:
        path.start("iperf3", path.server, ["iperf3", "--server"])
        until_listening(path.server, IPERF_PORT)
        answering = path.start("connections", path.server, _connections("serve", CONNECTION_PORT))
        answering.wait_line("ready")
        beside = set(path.programs)
        try:
            system.start(path, Settings())
        except LabError as error:
            return Figures(system.name, busy, trouble=str(error).splitlines()[0])
        ends = [process for process in path.programs if process not in beside]
        for measure in (_bulk, _datagrams, _short_connections, _idle):
            try:
                figures |= measure(path, ends)
            except (LabError, OSError) as error:
                trouble.append(f"{measure.__name__.strip('_')}: {str(error).splitlines()[0]}")
    return Figures(system.name, busy, **figures, trouble="; ".join(trouble))  # type: ignore[arg-type] # by name


def _bulk(path: Topology, ends: Sequence[Process]) -> dict[str, float]:
    target = (SERVER4, IPERF_PORT)
    one, many = best(path, 1, target, ends), best(path, 16, target, ends)
    return {"one_gbit_s": one.gbit_s, "many_gbit_s": many.gbit_s, "cpu_s_per_gb": sum(many.cpu_s_per_gb)}


def _datagrams(path: Topology, ends: Sequence[Process]) -> dict[str, float]:
    before = sum(process.tree_cpu_seconds() for process in ends)
    result = iperf3(
        path.client.run(
            "iperf3", "--client", SERVER4, "--json", "--udp", "--reverse", "--bitrate", f"{UDP_MBIT_S}M",
            "--length", str(UDP_PAYLOAD), "--time", str(FLOW_SECONDS),
        )
    )["sum"]  # fmt: skip
    arrived = result["packets"] - result["lost_packets"]
    spent = sum(process.tree_cpu_seconds() for process in ends) - before
    return {
        "udp_mbit_s": arrived * UDP_PAYLOAD * 8 / result["seconds"] / 1e6,
        "udp_cpu_us": spent / max(arrived, 1) * 1e6,
    }


def _short_connections(path: Topology, _: Sequence[Process]) -> dict[str, float]:
    printed = path.client.run(*_connections("open", SERVER4, CONNECTION_PORT, PLACES, CONNECTION_SECONDS))
    done, failed = printed.split()
    return {"connections_per_s": int(done) / CONNECTION_SECONDS, "connections_failed": int(failed)}


def _idle(path: Topology, ends: Sequence[Process]) -> dict[str, float]:
    with idle_flows(path, lambda _: ends, None):
        return {"idle_mib": sum(process.tree_bytes() for process in ends) / MIB}


def _connections(*arguments: str | int) -> list[str]:
    return [sys.executable, "-m", "bentpipe_lab.bench.connections", *map(str, arguments)]


def table(rows: Sequence[Figures]) -> Table:
    """As a person reads it."""
    drawn = Table(title="beside other people's, over plain cables", title_justify="left", title_style="bold")
    drawn.add_column("system")
    for name in (
        "busy\nbeside", "1 flow\nGbit/s", "16 flows\nGbit/s", "CPU\ns/GB", "UDP\nMbit/s", "UDP CPU\nus/packet",
        "connections\na second", "failed", "1000 idle\nMiB",
    ):  # fmt: skip
        drawn.add_column(name, justify="right")
    drawn.add_column("trouble")
    for row in rows:
        cells = (
            _cell(row.one_gbit_s, 2), _cell(row.many_gbit_s, 2), _cell(row.cpu_s_per_gb, 2), _cell(row.udp_mbit_s, 0),
            _cell(row.udp_cpu_us, 1), _cell(row.connections_per_s, 0), _cell(row.connections_failed, 0),
            _cell(row.idle_mib, 1),
        )  # fmt: skip
        drawn.add_row(row.system, str(row.busy), *cells, row.trouble)
    return drawn


def _cell(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"

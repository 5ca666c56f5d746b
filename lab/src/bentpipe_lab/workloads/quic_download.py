"""A large file from one QUIC implementation to another, over a new connection."""

from collections.abc import Mapping
from typing import ClassVar

from bentpipe_lab.analysis import bounds
from bentpipe_lab.errors import PlanError
from bentpipe_lab.matrix import cell
from bentpipe_lab.net import content
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.registry import unknown
from bentpipe_lab.stacks.manifest import KNOBS, all_manifests, manifest
from bentpipe_lab.workloads.contract import Options, Workload

WINDOWS = (cell.SHIPPED, cell.TUNED)
OURS = "bentpipe"
ALONE_S = cell.READY_S + 2 * cell.TRACE_S
"""Beside the download: the server's start, and reading the capture."""


class QuicDownload(Workload):
    """A large file from one QUIC implementation to another; the server is started anew for each run."""

    name = "quic download"
    order = 80
    measures = "time to the last byte, from the packets"
    demo_runs: ClassVar[Mapping[str, int]] = {}
    options = ("client", "server", "windows", "server_controller", "server_initial_window")
    beside_s = ALONE_S
    file: ClassVar[str] = "10MiB"

    def run(self, path: Topology) -> Outcome:
        """Ours from ours."""
        return self.run_with(path, {}, 600.0)

    def run_with(self, path: Topology, options: Options, limit_s: float) -> Outcome:
        """Download it by the client that was chosen from the server that was chosen."""
        return cell.run(path, self.request(options, limit_s))

    def request(self, options: Options, limit_s: float) -> cell.Request:
        """What a point asks for."""
        controller, window = options.get("server_controller"), options.get("server_initial_window")
        return cell.Request(
            client=str(options.get("client", OURS)),
            server=str(options.get("server", OURS)),
            file=self.file,
            limit_s=limit_s,
            windows=str(options.get("windows", cell.SHIPPED)),
            controller=None if controller is None else str(controller),
            initial_window=None if window is None else int(window),
        )

    def check_option(self, name: str, value: object) -> None:
        """Raise unless there is such an implementation or setting."""
        match name:
            case "client" | "server":
                if name not in manifest(str(value)).protocols:
                    roles = [each.name for each in all_manifests().values() if name in each.protocols]
                    raise PlanError(f"axes.{name}: {value} is no {name}; {', '.join(roles)} are")
            case "windows":
                if value not in WINDOWS:
                    raise PlanError(str(unknown("windows", str(value), dict.fromkeys(WINDOWS))))
            case "server_initial_window":
                if not isinstance(value, int) or not 1 <= value <= 10_000:
                    raise PlanError(f"axes.{name} = {value!r}: give packets, a whole number (the knob {KNOBS[1]})")

    def bound_s(self, link: Link) -> float:
        """A round trip for the handshake, one for the request, and the bytes on the forward link."""
        return link.path_rtt_s + bounds.download_s(link, content.FILES[self.file])

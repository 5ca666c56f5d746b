"""One run of a cell of the matrix: a server and a client of two implementations, a file, a capture, a verdict."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bentpipe_lab.matrix import competing, ends, evidence, link_records
from bentpipe_lab.net.authority import Authority
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.stacks import cache, certificates
from bentpipe_lab.stacks.endpoint import Endpoint, Site, endpoint
from bentpipe_lab.stacks.manifest import Manifest, common_protocol, manifest

WIDE_WINDOW = 16 << 20
"""Bytes of windows and send buffers of endpoints that are tuned for a satellite."""
SHIPPED, TUNED = "as shipped", "tuned"


@dataclass(frozen=True)
class Request:
    """What a run is of."""

    client: str
    server: str
    file: str
    limit_s: float
    """The client may take so long."""
    windows: str = SHIPPED
    controller: str | None = None
    initial_window: int | None = None
    beside: str = competing.NONE
    """What else is downloaded over the path meanwhile."""

    def knobs(self, side: Manifest, role: str) -> dict[str, str]:
        """What is set of one endpoint: wide windows where it has a knob for them."""
        knobs: dict[str, str] = {}
        if self.windows == TUNED:
            wide = ("MAX_DATA", "MAX_STREAM_DATA", "SEND_BUFFER")
            knobs.update({knob: str(WIDE_WINDOW) for knob in wide if knob in side.knobs})
        # Who sends decides: controller and initial window are the server's.
        if role == "server":
            if self.controller is not None:
                knobs["CC"] = self.controller
            if self.initial_window is not None:
                knobs["IW"] = str(self.initial_window)
        return knobs


@dataclass(frozen=True)
class Agreed:
    """A request that both implementations can serve."""

    sides: Mapping[str, Manifest]
    protocol: str
    knobs: Mapping[str, Mapping[str, str]]
    """What is set of each end, by role."""


def agreed(request: Request) -> Agreed:
    """What both ends shall do; the run ends where they cannot."""
    sides = {"client": manifest(request.client), "server": manifest(request.server)}
    protocol = common_protocol(sides["client"], sides["server"])
    if protocol is None:
        raise ends.EndedError(Verdict.UNSUPPORTED, f"{request.client} and {request.server} have no protocol in common")
    knobs = {role: request.knobs(each, role) for role, each in sides.items()}
    for role, each in sides.items():
        if refusal := each.refuses(role, knobs[role]):
            raise ends.EndedError(Verdict.UNSUPPORTED, refusal)
    return Agreed(sides, protocol, knobs)


def run(path: Topology, request: Request) -> Outcome:
    """Fetch a file by one implementation from another over the path; what came of it, and what its packets say."""
    installed = cache.root()
    try:
        both = agreed(request)
        for role, each in both.sides.items():
            ends.refuse_absent(role, each, installed)
    except ends.EndedError as error:
        return Outcome(error.verdict, detail=error.detail)
    return _measured(path, request, both, installed)


def _measured(path: Topology, request: Request, both: Agreed, installed: Path) -> Outcome:
    site = _site(path)
    directory = fresh(path)
    digest = ends.write_file(site.www, request.file)
    parts: dict[str, Endpoint] = {}
    begun_ns = time.time_ns()
    with (
        competing.competing(path, request.beside, directory) as other,
        ends.captured(path.client, "lan0", directory, "client") as near,
        ends.captured(path.server, "gnd0", directory, "server") as far,
    ):
        try:
            _fetch(path, request, both, installed, directory, site, parts, (near, far))
            verdict, detail = ends.judged(parts["client"], request.file, digest)
            if verdict is Verdict.OK:
                ends.refuse_ended(near)
                ends.refuse_ended(far)
        except ends.EndedError as error:
            verdict, detail = error.verdict, error.detail
        link_records.handed_over(path)
    if path.records is not None:
        link_records.since(path.records, begun_ns).write_parquet(directory / link_records.TABLE)
    found = evidence.outcome(path.link, verdict, detail, both.protocol, parts, directory)
    if other.carried_bit_s is not None:
        found = replace(found, metrics={**found.metrics, "beside_bit_s": other.carried_bit_s})
    return found


def _fetch(
    path: Topology, request: Request, both: Agreed, installed: Path, directory: Path, site: Site,
    parts: dict[str, Endpoint], captures: Sequence[Process],
) -> None:  # fmt: skip
    """Start the server, then the client, and wait for the client's end."""
    with endpoint(
        both.sides["server"], "server", both.protocol, path.server, directory / "server",
        cache.directory(installed, both.sides["server"]), site, knobs=both.knobs["server"],
    ) as server:  # fmt: skip
        parts["server"] = server
        ends.await_ready(path.server, server)
        with endpoint(
            both.sides["client"], "client", both.protocol, path.client, directory / "client",
            cache.directory(installed, both.sides["client"]), site, knobs=both.knobs["client"],
            requests=[ends.url(request.file)],
        ) as client:  # fmt: skip
            parts["client"] = client

            def bounds() -> None:
                ends.refuse_over(server)
                for capture in captures:
                    ends.refuse_ended(capture)

            ends.await_end(client, request.file, request.limit_s, lambda: ends.refuse_dead(server), bounds)


def _site(path: Topology) -> Site:
    """Certificates, names and the file that is wanted, for all runs over a path."""
    where = path.directory.absolute() / "matrix"
    site = Site(where / "certificates", where / "www", where / "hosts")
    if not where.exists():
        certificates.make(site.certificates, Authority.of(path), [ends.SERVER_NAME, "server4"], [SERVER4])
        site.www.mkdir()
        site.hosts.write_text(ends.hosts_file(SERVER4))
        for namespace, device in ((path.client, "lan0"), (path.terminal, "lan0"), (path.server, "gnd0"),
                                  (path.gateway, "gnd0")):  # fmt: skip
            _offloads_off(namespace, device)
    return site


def _offloads_off(namespace: Namespace, device: str) -> None:
    """Segmentation by the device makes captures hold packets that no wire carries: leave it to the sender."""
    namespace.ip("link", "set", device, "gso_max_segs", "1")


def fresh(path: Topology) -> Path:
    """A directory for a run. Captures of the run before are removed, they are large; the rest is read by the engine."""
    where = path.directory.absolute() / "matrix"
    for old in where.glob("run-*"):
        for large in (*old.glob("*.pcap"), *(old / part for part in ("client", "server"))):
            subprocess.run(["rm", "-rf", "--one-file-system", str(large)], check=False)
    fresh = where / f"run-{time.monotonic_ns()}"
    fresh.mkdir()
    return fresh

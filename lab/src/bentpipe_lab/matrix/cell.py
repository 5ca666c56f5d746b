"""One run of a cell of the matrix: a server and a client of two implementations, a file, a capture, a verdict."""

import hashlib
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.matrix import competing, evidence, link_records
from bentpipe_lab.net import content
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.net.topology import SERVER4, Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.stacks import cache, certificates
from bentpipe_lab.stacks.endpoint import PORT, Endpoint, Site, endpoint, listens
from bentpipe_lab.stacks.manifest import Manifest, common_protocol, manifest

SERVER_NAME = "server"
READY_S = 20.0
SETTLE_S = 0.1
"""After the server's socket is there, before it is asked; and for tcpdump to write the last packets."""
POLL_S = 0.02
LINGER_S = 3.0
"""How long a client that has the whole file may take to close its connection."""
LOOK_S = 1.0
"""How often bounds are looked at."""
WIDE_WINDOW = 16 << 20
"""Bytes of windows and send buffers of endpoints that are tuned for a satellite."""
SHIPPED, TUNED = "as shipped", "tuned"
FILES = {**content.FILES, "25MiB": 25 << 20}
"""What may be downloaded, by name: bytes. The last one is the interop runner's for cross traffic."""


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


class _EndedError(Exception):
    """A run has come to its end before its file did."""

    def __init__(self, verdict: Verdict, detail: str) -> None:
        super().__init__(detail)
        self.verdict = verdict


def run(path: Topology, request: Request) -> Outcome:
    """Fetch a file by one implementation from another over the path; what came of it, and what its packets say."""
    sides = {"client": manifest(request.client), "server": manifest(request.server)}
    installed = cache.root()
    for role, each in sides.items():
        state = cache.installation(installed, each)
        if state is None or state.version is None:
            why = "never tried" if state is None else state.why
            return Outcome(Verdict.NOT_INSTALLED, detail=f"{role} {each.name}: {why}")
    protocol = common_protocol(sides["client"], sides["server"])
    if protocol is None:
        return Outcome(Verdict.UNSUPPORTED, detail=f"{request.client} and {request.server} have no protocol in common")
    knobs = {role: request.knobs(each, role) for role, each in sides.items()}
    for role, each in sides.items():
        if refusal := each.refuses(role, knobs[role]):
            return Outcome(Verdict.UNSUPPORTED, detail=refusal)
    return _measured(path, request, sides, protocol, knobs, installed)


def _measured(
    path: Topology, request: Request, sides: Mapping[str, Manifest], protocol: str,
    knobs: Mapping[str, Mapping[str, str]], installed: Path,
) -> Outcome:  # fmt: skip
    site = _site(path, request.file)
    directory = _fresh(path)
    digest = content_hash(site.www / request.file)
    parts: dict[str, Endpoint] = {}
    begun_ns = time.time_ns()
    with (
        competing.competing(path, request.beside, directory) as other,
        captured(path.client, "lan0", directory, "client"),
        captured(path.server, "gnd0", directory, "server"),
    ):
        try:
            _fetch(path, request, sides, protocol, knobs, installed, directory, site, parts)
            verdict, detail = _judged(directory / "client" / "downloads" / request.file, digest, parts)
        except _EndedError as error:
            verdict, detail = error.verdict, str(error)
        link_records.handed_over(path)
    if path.records is not None:
        link_records.since(path.records, begun_ns).write_parquet(directory / link_records.TABLE)
    found = evidence.outcome(path, verdict, detail, protocol, parts, directory)
    if other.carried_bit_s is not None:
        found = replace(found, metrics={**found.metrics, "beside_bit_s": other.carried_bit_s})
    return found


def _fetch(
    path: Topology, request: Request, sides: Mapping[str, Manifest], protocol: str,
    knobs: Mapping[str, Mapping[str, str]], installed: Path, directory: Path, site: Site, parts: dict[str, Endpoint],
) -> None:  # fmt: skip
    """Start the server, then the client, and wait for the client's end."""
    with endpoint(
        sides["server"], "server", protocol, path.server, directory / "server",
        cache.directory(installed, sides["server"]), site, knobs=knobs["server"],
    ) as server:  # fmt: skip
        parts["server"] = server
        _await_ready(path, server)
        with endpoint(
            sides["client"], "client", protocol, path.client, directory / "client",
            cache.directory(installed, sides["client"]), site, knobs=knobs["client"],
            requests=[f"https://{SERVER_NAME}:{PORT}/{request.file}"],
        ) as client:  # fmt: skip
            parts["client"] = client
            _await_end(client, server, request.limit_s, site.www / request.file)


def _await_ready(path: Topology, server: Endpoint) -> None:
    deadline = time.monotonic() + READY_S
    while not listens(path.server):
        if server.exit_code is not None:
            verdict = Verdict.UNSUPPORTED if server.exit_code == cache.NOT_TO_BE_HAD else Verdict.SERVER_DIED
            raise _EndedError(verdict, f"the server ended with {server.exit_code} before it listened: {server.said()}")
        if time.monotonic() > deadline:
            raise _EndedError(Verdict.SERVER_DIED, f"the server did not listen within {READY_S:.0f} s: {server.said()}")
        time.sleep(POLL_S)
    time.sleep(SETTLE_S)


def _await_end(client: Endpoint, server: Endpoint, limit_s: float, wanted: Path) -> None:
    """Wait for the client's end, or for its file and a little longer: some linger when they close."""
    began = looked = time.monotonic()
    got = client.directory / "downloads" / wanted.name
    size, whole_since = wanted.stat().st_size, None
    limit_s += client.manifest.starts_in_s
    while client.exit_code is None:
        now = time.monotonic()
        if server.exit_code is not None:
            raise _EndedError(Verdict.SERVER_DIED, f"the server ended with {server.exit_code}: {server.said()}")
        if now - began > limit_s:
            arrived = sum(file.stat().st_size for file in (client.directory / "downloads").iterdir())
            raise _EndedError(Verdict.TIMED_OUT, f"not done after {limit_s:.0f} s; {arrived} bytes were in its file")
        if now - looked > LOOK_S:
            looked = now
            if got.is_file() and got.stat().st_size == size:
                whole_since = whole_since or now
                if now - whole_since > LINGER_S:
                    return
            for part in (client, server):
                if over := part.over_its_bounds():
                    raise _EndedError(Verdict.FAILED, f"the {part.role} {over}")
        time.sleep(POLL_S)


def _judged(file: Path, digest: str, parts: Mapping[str, Endpoint]) -> tuple[Verdict, str]:
    """Success is the content, whatever the exit code says."""
    client = parts["client"]
    if file.is_file() and content_hash(file) == digest:
        return Verdict.OK, ""
    code = client.exit_code
    if code == cache.NOT_TO_BE_HAD:
        return Verdict.UNSUPPORTED, client.said()
    size = file.stat().st_size if file.is_file() else None
    said = f"the client ended with {code}: {client.said()}"
    if size is None or (size == 0 and code != 0):
        return Verdict.FAILED, f"no file; {said}"
    return Verdict.WRONG_CONTENT, f"{size} bytes that are not the file's; {said}"


def content_hash(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _site(path: Topology, file: str) -> Site:
    """Certificates, names and the file that is wanted, for all runs over a path."""
    where = path.directory.absolute() / "matrix"
    site = Site(where / "certificates", where / "www", where / "hosts")
    if not where.exists():
        certificates.make(site.certificates, [SERVER_NAME, "server4"], [SERVER4])
        site.www.mkdir()
        site.hosts.write_text(f"127.0.0.1 localhost\n{SERVER4} {SERVER_NAME} server4\n")
        for namespace, device in ((path.client, "lan0"), (path.terminal, "lan0"), (path.server, "gnd0"),
                                  (path.gateway, "gnd0")):  # fmt: skip
            _offloads_off(namespace, device)
    if not (site.www / file).exists():
        (site.www / file).write_bytes(content.incompressible(file, FILES[file]))
    return site


def _offloads_off(namespace: Namespace, device: str) -> None:
    """Segmentation by the device makes captures hold packets that no wire carries: leave it to the sender."""
    namespace.ip("link", "set", device, "gso_max_segs", "1")


def _fresh(path: Topology) -> Path:
    """A directory for a run. Captures of the run before are removed, they are large; the rest is read by the engine."""
    where = path.directory.absolute() / "matrix"
    for old in where.glob("run-*"):
        for large in (*old.glob("*.pcap"), *(old / part for part in ("client", "server"))):
            subprocess.run(["rm", "-rf", "--one-file-system", str(large)], check=False)
    fresh = where / f"run-{time.monotonic_ns()}"
    fresh.mkdir()
    return fresh


@contextmanager
def captured(where: Namespace, device: str, directory: Path, side: str) -> Iterator[None]:
    """What passes a device of one side while the block runs, in `SIDE.pcap`."""
    argv = ["nice", "-n", "-10", "tcpdump", "-i", device, "-n", "-s", "2048", "-B", "65536",
            "--time-stamp-precision=nano", "--immediate-mode", "-Z", "root", "-w", str(directory / f"{side}.pcap"),
            "udp", "port", str(PORT)]  # fmt: skip
    process = Process(f"tcpdump-{side}", where.command(argv), directory)
    try:
        deadline = time.monotonic() + 15
        while "listening on" not in process.log.read_text():
            if process.exit_code is not None or time.monotonic() > deadline:
                raise ProgramError(f"tcpdump does not listen{process.tail()}")
            time.sleep(POLL_S)
        yield
        time.sleep(SETTLE_S)
    finally:
        process.signal(signal.SIGINT)
        process.stop()

"""One end of a QUIC implementation, in network, mount and process namespaces of its own, bounded and killed as one."""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from bentpipe_lab.net import content
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.stacks.manifest import IMPLEMENTATIONS, PROTOCOLS, Manifest

PORT = content.QUIC_PORT
MOST_OF_A_FILE = 64 << 20
"""Bytes that an endpoint may write to one file, its log for example: the kernel ends it then."""
MOST_WRITTEN = 256 << 20
"""Bytes that it may write to all files together."""
MOST_MEMORY = 3 << 30
"""Resident bytes of all its processes."""
TERM_S = 2.0
"""How long it may take to end after SIGTERM."""


@dataclass(frozen=True)
class Site:
    """What both endpoints of a run see at fixed paths."""

    certificates: Path
    """/certs: ca.pem, cert.pem, priv.key."""
    www: Path
    """/www: what the server serves."""
    hosts: Path
    """/etc/hosts."""


@dataclass
class Endpoint:
    """A running endpoint."""

    role: str
    manifest: Manifest
    process: Process
    directory: Path
    """Has `logs` and `downloads`."""
    _over: str | None = field(default=None, init=False)

    @property
    def exit_code(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.process.exit_code

    @property
    def key_log(self) -> Path:
        """The TLS secrets that it wrote, if it wrote any."""
        return self.directory / "logs" / "keys.log"

    def over_its_bounds(self) -> str | None:
        """What it uses too much of; None when it keeps within its bounds."""
        written = sum(_size(path) for path in (self.process.out, self.process.log, *self.directory.rglob("*")))
        if written > MOST_WRITTEN:
            self._over = f"wrote {written >> 20} MiB to its files, of {MOST_WRITTEN >> 20}"
        memory = sum(map(_resident_bytes, self._members()))
        if memory > MOST_MEMORY:
            self._over = f"took {memory >> 20} MiB of memory, of {MOST_MEMORY >> 20}"
        return self._over

    def said(self, lines: int = 8) -> str:
        """The last lines of its output, for evidence."""
        found: list[str] = []
        for path in (self.process.out, self.process.log):
            with path.open("rb") as text:
                text.seek(max(_size(path) - 4096, 0))
                found += text.read().decode(errors="replace").splitlines()[-lines:]
        return "\n".join(line[:300] for line in found)

    def stop(self) -> None:
        """End it with SIGTERM, which lets it write its logs, then by force; nothing of it is left."""
        first = self._first_process()
        if self.exit_code is None and first is not None:
            with suppress(ProcessLookupError):
                os.kill(first, signal.SIGTERM)
            deadline = time.monotonic() + TERM_S
            while self.exit_code is None and time.monotonic() < deadline:
                time.sleep(0.01)
        self.process.kill()

    def _first_process(self) -> int | None:
        """Process 1 of its namespace, as seen from here: the child of `unshare`."""
        pid = self.process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def _members(self) -> list[int]:
        """All processes of its process namespace."""
        first = self._first_process()
        own = None if first is None else _process_namespace(first)
        if own is None:
            return []
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in pids if _process_namespace(pid) == own]


@contextmanager
def endpoint(
    manifest: Manifest, role: str, protocol: str, where: Namespace, directory: Path, stack: Path, site: Site,
    *, knobs: Mapping[str, str], requests: Sequence[str] = (),
) -> Iterator[Endpoint]:  # fmt: skip
    """Start one end of an implementation; everything of it is ended with the block."""
    for part in ("logs", "downloads", "root"):
        (directory / part).mkdir(parents=True)
    (directory / "logs" / "qlog").mkdir()
    script = files("bentpipe_lab.stacks") / "data/endpoint.sh"
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin",
        "HOME": "/tmp", "LANG": "C.UTF-8", "STACK": "/stack", "ROLE": role, "TESTCASE": PROTOCOLS[protocol],  # noqa: S108 (a file system of its own)
        "PROTOCOL": protocol, "REQUESTS": " ".join(requests), "SSLKEYLOGFILE": "/logs/keys.log",
        "QLOGDIR": "/logs/qlog", **knobs,
    }  # fmt: skip
    argv: list[str | Path] = [
        # Before the ordinary programs of the machine: what else it does shall show as little as may be.
        "nice", "-n", "-10", "prlimit", f"--fsize={MOST_OF_A_FILE}", "--core=0",
        "env", "-i", *(f"{k}={v}" for k, v in environment.items()),
        "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "sh", str(script), directory / "root",
        IMPLEMENTATIONS, manifest.place, stack, site.certificates, site.www, directory / "downloads",
        directory / "logs", site.hosts,
    ]  # fmt: skip
    running = Endpoint(role, manifest, Process(role, where.command(argv), directory), directory)
    try:
        yield running
    finally:
        running.stop()


def listens(where: Namespace, port: int = PORT) -> bool:
    """Whether something has a UDP socket at a port inside a namespace."""
    wanted = f":{port:04X}"
    with where.entered():
        for table in ("udp", "udp6"):
            for line in Path(f"/proc/thread-self/net/{table}").read_text().splitlines()[1:]:
                if line.split()[1].endswith(wanted):
                    return True
    return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _process_namespace(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 (the link names no path)
    except OSError:
        return None

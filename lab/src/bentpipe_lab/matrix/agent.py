"""One end of a run on the machine that it was given to: `python -m bentpipe_lab.matrix.agent`, started over SSH.

It needs no package beside Python. It is told lines and says lines: to `clock` it answers with its clock's nanoseconds;
then it is given a task as JSON, says `ready`, and `ended` with what came of it, a line of JSON each. Whatever it is
told after its task, or the end of its input, ends the run. It removes what it made when its input ends, after its
files were fetched.
"""

import json
import os
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bentpipe_lab.errors import LabError
from bentpipe_lab.hosts import cable
from bentpipe_lab.matrix import ends
from bentpipe_lab.net import host, interrupt, netns
from bentpipe_lab.net.netns import Namespace, OwnNetwork
from bentpipe_lab.net.process import Process
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.stacks import cache
from bentpipe_lab.stacks.endpoint import Endpoint, Site, endpoint, listens
from bentpipe_lab.stacks.manifest import Manifest, manifest

CLOCK = b"clock\n"
MOST_OF_A_LINE = 1 << 20
PROGRAMS = ("ip", "nsenter", "tcpdump", "unshare", "prlimit")
LINES = 200
"""Of an endpoint's output that are told."""


@dataclass(frozen=True)
class CableEnd:
    """How the end is connected, where the link is emulated on the machine that runs the lab."""

    identifier: int
    addresses: tuple[str, ...]
    """With prefix lengths."""
    gateways: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """What an end is to do."""

    role: str
    implementation: str
    protocol: str
    knobs: Mapping[str, str]
    file: str
    limit_s: float
    server: str
    """The server's address."""
    certificates: Mapping[str, str]
    """Files of /certs: name, content."""
    device: str
    """Whose packets are captured."""
    cable: CableEnd | None
    """None: the machine's own network is used as it is."""

    @classmethod
    def read(cls, line: bytes) -> "Task":
        """A task from its line."""
        table = json.loads(line)
        end = table.pop("cable")
        return cls(cable=None if end is None else CableEnd(**end), **table)

    def line(self) -> str:
        """Its line."""
        return json.dumps(asdict(self)) + "\n"


def main() -> int:
    """Do the task that is told on standard input."""
    with open(0, "rb", buffering=0, closefd=False) as told:
        line = _answered(told)
        if not line:
            return 0
        try:
            with interrupt.as_exception(), ExitStack() as stack:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bentpipe-end-")))
                _say("ended", **_done(Task.read(line), directory))
                while _answered(told):
                    pass
        except (KeyboardInterrupt, BrokenPipeError):
            return 130
    return 0


def _answered(told: Any) -> bytes:
    """Answer with the time until something else is told; nothing at the end of the input."""
    while (line := bytes(told.readline(MOST_OF_A_LINE))) == CLOCK:
        print(time.time_ns(), flush=True)
    return line


def _say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def _done(task: Task, directory: Path) -> dict[str, Any]:
    """Do a task; its verdict, and what is to be fetched."""
    ended: list[Endpoint] = []
    try:
        _require()
        each = manifest(task.implementation)
        installed = cache.root()
        ends.refuse_absent(task.role, each, installed)
        site = _site(task, directory)
        with _network(task) as where, ends.captured(where, task.device, directory, task.role) as capture:
            if task.role == "server" and listens(where):
                raise ends.EndedError(Verdict.FAILED, "UDP port 443 is in use on the server's machine")  # noqa: TRY301
            with _endpoint(task, each, where, directory, installed, site) as part:
                ended.append(part)
                _serve(where, part, capture) if task.role == "server" else _fetch(task, part, capture)
        verdict, detail = Verdict.OK, ""
        if task.role == "client":
            verdict, detail = ends.judged(ended[0], task.file, ends.content_hash(site.www / task.file))
    except ends.EndedError as error:
        verdict, detail = error.verdict, error.detail
    except LabError as error:
        verdict, detail = Verdict.FAILED, str(error)
    return {
        "verdict": verdict,
        "detail": detail,
        "exit_code": ended[0].exit_code if ended else None,
        "said": ended[0].said(LINES) if ended else "",
        "directory": str(directory),
    }


def _require() -> None:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise ends.EndedError(Verdict.PROGRAM_MISSING, f"not installed on this machine: {', '.join(missing)}")
    if os.geteuid() != 0:
        raise ends.EndedError(Verdict.PROGRAM_MISSING, "namespaces need root on this machine: log in as root")


def _site(task: Task, directory: Path) -> Site:
    site = Site(directory / "certificates", directory / "www", directory / "hosts")
    site.certificates.mkdir()
    for name, text in task.certificates.items():
        (site.certificates / name).write_text(text)
    site.www.mkdir()
    ends.write_file(site.www, task.file)
    site.hosts.write_text(ends.hosts_file(task.server))
    return site


def _endpoint(task: Task, each: Manifest, where: Namespace, directory: Path, installed: Path, site: Site) -> Any:
    requests = [ends.url(task.file)] if task.role == "client" else []
    return endpoint(
        each, task.role, task.protocol, where, directory / task.role, cache.directory(installed, each), site,
        knobs=task.knobs, requests=requests,
    )  # fmt: skip


def _serve(where: Namespace, server: Endpoint, capture: Process) -> None:
    ends.await_ready(where, server)
    _say("ready")
    while not _told(ends.LOOK_S):
        ends.refuse_dead(server)
        ends.refuse_over(server)
        ends.refuse_ended(capture)


def _fetch(task: Task, client: Endpoint, capture: Process) -> None:
    def stopped() -> None:
        if _told(0):
            raise ends.EndedError(Verdict.FAILED, "the run was ended from the lab's machine")

    _say("ready")
    ends.await_end(client, task.file, task.limit_s, stopped, lambda: ends.refuse_ended(capture))


def _told(patience_s: float) -> bool:
    """Whether something was told, or the input has ended."""
    return bool(select.select([0], [], [], patience_s)[0])


@contextmanager
def _network(task: Task) -> Iterator[Namespace]:
    """The network of the end: the machine's own, or a namespace with a cable to the machine that runs the lab."""
    if task.cable is None:
        with _unsegmented(task.device):
            yield OwnNetwork("own")
        return
    lab = os.environ.get("SSH_CONNECTION", "").split()
    if not lab:
        raise LabError("SSH_CONNECTION is not set: where the cable should lead is not known")
    host.clean_leftovers()
    with host.owned_run() as run:
        where = Namespace(f"{run}-{task.role}")
        try:
            where.create()
            cable.lay(where, task.device, lab[0], task.cable.identifier, *task.cable.addresses)
            for gateway in task.cable.gateways:
                where.ip(*(["-6"] if ":" in gateway else []), "route", "add", "default", "via", gateway)
            where.ip("link", "set", task.device, "gso_max_segs", "1")
            yield where
        finally:
            with interrupt.shielded():
                where.delete()


@contextmanager
def _unsegmented(device: str) -> Iterator[None]:
    """Segmentation is left to the sender while this lasts, so that captures hold what the wire carries."""
    (before,) = json.loads(netns.ip("-j", "-d", "link", "show", device))
    netns.ip("link", "set", device, "gso_max_segs", "1")
    try:
        yield
    finally:
        netns.ip("link", "set", device, "gso_max_segs", str(before["gso_max_segs"]))


if __name__ == "__main__":
    sys.exit(main())

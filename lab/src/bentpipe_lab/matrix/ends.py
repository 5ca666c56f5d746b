"""One end of a run, on the machine where it is: awaited, bounded, captured, and the file judged by its hash."""

import hashlib
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net import content
from bentpipe_lab.net.netns import Namespace
from bentpipe_lab.net.process import Process
from bentpipe_lab.records.verdict import Verdict
from bentpipe_lab.stacks import cache
from bentpipe_lab.stacks.endpoint import PORT, Endpoint, listens
from bentpipe_lab.stacks.manifest import Manifest

SERVER_NAME = content.QUIC_HOST
READY_S = 20.0
SETTLE_S = 0.1
"""After the server's socket is there, before it is asked; and for tcpdump to write the last packets."""
CAPTURE_KIB = 8192
"""Room for more than a second at 20 Mbit/s. The kernel clears it when a capture begins, and lets no other thread in
meanwhile, the emulator's included: 10 ms for 64 MiB, 3 ms for this."""
MOST_CAPTURED = 1 << 30
"""Bytes of one capture: an end that sends without end is ended, not the disk."""
POLL_S = 0.02
LINGER_S = 3.0
"""How long a client that has the whole file may take to close its connection."""
LOOK_S = 1.0
"""How often bounds are looked at."""
FILES = {**content.FILES, "25MiB": 25 << 20}
"""What may be downloaded, by name: bytes. The last one is the interop runner's for cross traffic."""


class EndedError(Exception):
    """A run has come to its end before its file did."""

    def __init__(self, verdict: Verdict, detail: str) -> None:
        super().__init__(detail)
        self.verdict = verdict
        self.detail = detail


def refuse_absent(role: str, manifest: Manifest, installed: Path) -> None:
    """End the run where an implementation is not installed on this machine."""
    state = cache.installation(installed, manifest)
    if state is None or state.version is None:
        why = "never tried" if state is None else state.why
        raise EndedError(Verdict.NOT_INSTALLED, f"{role} {manifest.name}: {why}")


def await_ready(where: Namespace, server: Endpoint) -> None:
    """Wait until the server's socket is there."""
    looked = time.monotonic()
    deadline = looked + READY_S
    while not listens(where):
        if server.exit_code is not None:
            verdict = Verdict.UNSUPPORTED if server.exit_code == cache.NOT_TO_BE_HAD else Verdict.SERVER_DIED
            raise EndedError(verdict, f"the server ended with {server.exit_code} before it listened: {server.said()}")
        if time.monotonic() > deadline:
            raise EndedError(Verdict.SERVER_DIED, f"the server did not listen within {READY_S:.0f} s: {server.said()}")
        if time.monotonic() - looked > LOOK_S:
            looked = time.monotonic()
            refuse_over(server)
        time.sleep(POLL_S)
    time.sleep(SETTLE_S)


def refuse_dead(server: Endpoint) -> None:
    """End the run where the server has ended, or is over its bounds."""
    if server.exit_code is not None:
        raise EndedError(Verdict.SERVER_DIED, f"the server ended with {server.exit_code}: {server.said()}")


def refuse_over(part: Endpoint) -> None:
    """End the run where an end is over its bounds."""
    if over := part.over_its_bounds():
        raise EndedError(Verdict.FAILED, f"the {part.role} {over}")


def refuse_ended(capture: Process) -> None:
    """End the run where its capture has ended: it was full, or somebody ended it."""
    if capture.exit_code == -signal.SIGXFSZ:
        raise EndedError(Verdict.FAILED, f"more packets than a capture of {MOST_CAPTURED >> 20} MiB holds")
    if capture.exit_code is not None:
        raise EndedError(Verdict.CAPTURE_DAMAGED, f"{capture.name} ended with {capture.exit_code}{capture.tail()}")


def await_end(
    client: Endpoint, file: str, limit_s: float, often: Callable[[], None], seldom: Callable[[], None]
) -> None:
    """Wait for the client's end, or for its file and a little longer: some linger when they close.

    What is called often and every second may end the run.
    """
    began = looked = time.monotonic()
    got = client.directory / "downloads" / file
    whole_since = None
    limit_s += client.manifest.starts_in_s
    while client.exit_code is None:
        now = time.monotonic()
        often()
        if now - began > limit_s:
            arrived = sum(path.stat().st_size for path in (client.directory / "downloads").iterdir())
            raise EndedError(Verdict.TIMED_OUT, f"not done after {limit_s:.0f} s; {arrived} bytes were in its file")
        if now - looked > LOOK_S:
            looked = now
            if got.is_file() and got.stat().st_size == FILES[file]:
                whole_since = whole_since or now
                if now - whole_since > LINGER_S:
                    return
            refuse_over(client)
            seldom()
        time.sleep(POLL_S)


def judged(client: Endpoint, file: str, digest: str) -> tuple[Verdict, str]:
    """Success is the content, whatever the exit code says."""
    got = client.directory / "downloads" / file
    if got.is_file() and content_hash(got) == digest:
        return Verdict.OK, ""
    code = client.exit_code
    if code == cache.NOT_TO_BE_HAD:
        return Verdict.UNSUPPORTED, client.said()
    size = got.stat().st_size if got.is_file() else None
    said = f"the client ended with {code}: {client.said()}"
    if size is None or (size == 0 and code != 0):
        return Verdict.FAILED, f"no file; {said}"
    return Verdict.WRONG_CONTENT, f"{size} bytes that are not the file's; {said}"


def url(file: str) -> str:
    """What the client is asked to fetch."""
    return f"https://{SERVER_NAME}:{PORT}/{file}"


def hosts_file(server4: str) -> str:
    """What /etc/hosts says at both ends."""
    return f"127.0.0.1 localhost\n{server4} {SERVER_NAME} server4\n"


def write_file(www: Path, file: str) -> str:
    """Make the file that is wanted, where it is not there yet; its SHA-256."""
    if not (www / file).exists():
        (www / file).write_bytes(content.incompressible(file, FILES[file]))
    return content_hash(www / file)


def content_hash(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


@contextmanager
def captured(where: Namespace, device: str, directory: Path, side: str) -> Iterator[Process]:
    """What passes a device of one side while the block runs, in `SIDE.pcap`; the program that captures it."""
    argv = ["nice", "-n", "-10", "prlimit", f"--fsize={MOST_CAPTURED}", "--core=0",
            "tcpdump", "-i", device, "-n", "-s", "2048", "-B", str(CAPTURE_KIB), "--time-stamp-precision=nano",
            "--immediate-mode", "-Z", "root", "-w", str(directory / f"{side}.pcap"), "udp", "port", str(PORT),
            ]  # fmt: skip
    process = Process(f"tcpdump-{side}", where.command(argv), directory)
    try:
        deadline = time.monotonic() + 15
        while "listening on" not in process.log.read_text():
            if process.exit_code is not None or time.monotonic() > deadline:
                raise ProgramError(f"tcpdump does not listen{process.tail()}")
            time.sleep(POLL_S)
        yield process
        time.sleep(SETTLE_S)
    finally:
        process.signal(signal.SIGINT)
        process.stop()

"""Programs inside the client's namespace, with nothing of theirs left when they are done, however they end."""

import json
import os
import select
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bentpipe_lab.errors import ProgramError
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.records.verdict import Verdict

MOST_SAID = 400
"""Characters of what a program said that are kept as the detail of a verdict."""
MOST_HEARD = 64 << 20
"""Bytes of a program's output that are listened to: one that prints without end has failed, and fills no memory."""


@contextmanager
def started(path: Topology, argv: Sequence[str | Path], **arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """A program of the client's; it and what it started is ended with the block."""
    before = set(path.client.pids())
    process = subprocess.Popen(
        path.client.command(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, **arguments,
    )  # fmt: skip
    try:
        yield process
    finally:
        for pid in {*path.client.pids(), process.pid} - before:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.communicate()


def heard(process: "subprocess.Popen[str]", told: str = "") -> tuple[str, str]:
    """Tell a program something, and listen to both of its outputs until its end."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    left = memoryview(told.encode())
    printed = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdin, selectors.EVENT_WRITE)
        for descriptor in printed:
            waiting.register(descriptor, selectors.EVENT_READ)
        while waiting.get_map():
            for key, _ in waiting.select():
                if key.fileobj is process.stdin:
                    with suppress(BrokenPipeError):
                        # So much goes into a pipe that is ready, without waiting.
                        left = left[os.write(key.fd, left[: select.PIPE_BUF]) :]
                        if left:
                            continue
                    waiting.unregister(process.stdin)
                    process.stdin.close()
                    process.stdin = None
                    continue
                chunk = os.read(key.fd, 1 << 16)
                printed[key.fd] += chunk
                if not chunk:
                    waiting.unregister(key.fd)
                if len(printed[key.fd]) > MOST_HEARD:
                    raise ProgramError(f"it printed more than {MOST_HEARD >> 20} MiB: {chunk[-MOST_SAID:]!r}")
    process.wait()
    out, error = (text.decode(errors="replace") for text in printed.values())
    return out, error


def resolving(resolver: Path, argv: Sequence[str | Path]) -> list[str]:
    """A command line whose program asks the name servers of a resolv.conf of its own."""
    mount = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, "sh", str(resolver), *map(str, argv)]


def task(path: Topology, module: str, fields: dict[str, Any], resolver: Path | None = None) -> Outcome:
    """Run a program of this package that reads a task as JSON and prints an outcome as JSON."""
    argv: list[str | Path] = [sys.executable, "-m", f"bentpipe_lab.workloads.programs.{module}"]
    with started(path, argv if resolver is None else resolving(resolver, argv)) as process:
        printed, said = heard(process, json.dumps(fields))
    if process.returncode != 0:
        return Outcome(Verdict.FAILED, detail=said.strip()[-MOST_SAID:])
    outcome = json.loads(printed)
    return Outcome(**{**outcome, "verdict": Verdict(outcome["verdict"])})

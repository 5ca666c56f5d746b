"""Programs that tests start and kill, and what these have started."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE_S = 120


@contextlib.contextmanager
def program(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    with child_of([sys.executable, "-m", *arguments]) as child:
        yield child


@contextlib.contextmanager
def child_of(argv: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    child = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def until(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children_of(process: int) -> list[int]:
    found = []
    # It may end, and its threads, while it is looked at.
    with contextlib.suppress(OSError):
        for thread in Path("/proc", str(process), "task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def descendants(process: int) -> list[int]:
    children = children_of(process)
    return children + [each for child in children for each in descendants(child)]


def command_of(process: int) -> list[str]:
    try:
        return Path("/proc", str(process), "cmdline").read_text().split("\0")
    except OSError:
        return []


def is_running(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path("/proc", str(process), "status").read_text()
    except FileNotFoundError:
        return False

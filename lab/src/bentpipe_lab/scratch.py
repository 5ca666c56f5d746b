"""Directories of a process that goes away, and their removal by the next one where it was killed.

A directory has up to two locks. Its owner's says that what is in it is still wanted; its user's, a program that the
owner has started in it, that something is still cleaned up there.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "bentpipe-lab-"
OWNER, USER = "owner.lock", "user.lock"
POLL_S = 0.1


@contextmanager
def directory() -> Iterator[Path]:
    """A new directory, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, _locked(Path(name, OWNER)):
        yield Path(name)


@contextmanager
def used(place: Path) -> Iterator[None]:
    """Keep a directory that another process has made, even if that one is killed, until the block ends."""
    with _locked(place / USER):
        yield


def clean_leftovers(patience_s: float) -> list[str]:
    """Remove directories whose owner was killed; a user that still cleans up is waited for, at most so many seconds."""
    removed = []
    deadline = time.monotonic() + patience_s
    for place in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        if not _abandoned(place / OWNER):
            continue
        while (place / USER).exists() and not _abandoned(place / USER):
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        else:
            shutil.rmtree(place, ignore_errors=True)
            removed.append(str(place))
    return removed


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    # Under its own name it is locked from the first moment on.
    part = file.with_suffix(".part")
    with part.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        part.replace(file)
        yield


def _abandoned(lock: Path) -> bool:
    """Whether a lock is there, and nobody has it any more."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True

"""A full disk, told as what it is, whichever library comes across it."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bentpipe_lab.errors import DiskFullError, LabError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SAID = tuple(os.strerror(number) for number in _FULL)
"""Most libraries that have errors of their own pass on the system's words."""
_NO_ROOM = 1 << 16
"""Bytes: what a library that does not pass them on could not write is more than this at a time."""


@contextmanager
def room(place: Path | str, then: str) -> Iterator[None]:
    """Raise a `DiskFullError` that names the place and what to do then, where the block finds no room."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        if not _full(error):
            raise
        raise DiskFullError(f"no room at {place}: what was measured before is kept; make room, then {then}") from error


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file that is written beside `path` and takes its place when the block is done: whole, or as it was before."""
    part = path.with_name(f"{path.name}.part")
    try:
        with named(path.parent):
            yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def named(place: Path) -> Iterator[None]:
    """Name the cause of an error that does not, where `place` has no room left; what was written is still there."""
    try:
        yield
    except (LabError, OSError):
        raise
    except Exception as error:
        if not is_full(place):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(place)) from error


def _full(error: Exception) -> bool:
    return error.errno in _FULL if isinstance(error, OSError) and error.errno else lacks_room(str(error))


def is_full(place: Path) -> bool:
    """Whether there is so little room that a program may not even have been able to say so."""
    there = os.statvfs(place)
    return there.f_bavail * there.f_frsize < _NO_ROOM


def lacks_room(said: str) -> bool:
    """Whether a program or a library says that there is no room."""
    return any(words in said for words in _SAID)

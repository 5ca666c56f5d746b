"""A disk without room is told as such, also by libraries that have other words for it."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bentpipe_lab.errors import DiskFullError
from bentpipe_lab.room import room, whole


class TransportError(Exception):
    """What a library says instead of the system's words."""


def fail(path: Path) -> None:
    """Begin a file and fail in the middle of it, as a library does."""
    with room(path.parent, "try again"), whole(path) as part:
        part.write_text("half")
        raise TransportError("transport error")


def test_a_library_that_does_not_say_why_is_believed_where_there_is_room(tmp_path: Path) -> None:
    with pytest.raises(TransportError):
        fail(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_where_there_is_no_room_left_that_is_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _place: SimpleNamespace(f_bavail=1, f_frsize=4096))
    with pytest.raises(DiskFullError, match="no room at"):
        fail(tmp_path / "file")
    assert not list(tmp_path.iterdir())

"""A campaign's journal: JSON lines that are only ever appended, each on the disk before the next is written."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bentpipe_lab.errors import CampaignError
from bentpipe_lab.room import room

SCHEMA = "bentpipe/lab/journal/1"


class Journal:
    """The journal in a file. A line that a crash cut off is neither read nor built upon."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._end_a_torn_line()

    def append(self, event: str, **fields: Any) -> None:
        """Write one line; it is on the disk when this returns."""
        line = json.dumps({"event": event, **fields}, separators=(",", ":")) + "\n"
        before = os.fstat(self._descriptor).st_size
        with room(self.path, "`bentpipe-lab resume`"):
            try:
                written = os.write(self._descriptor, line.encode())
                if written < len(line.encode()):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301 (a short write is a full disk)
                os.fsync(self._descriptor)
            except OSError:
                self._cut(before)
                raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError:
            return  # a half line is left, which no reader takes for a whole one

    def _end_a_torn_line(self) -> None:
        size = os.fstat(self._descriptor).st_size
        if not size:
            return
        with self.path.open("rb") as text:
            text.seek(max(size - 1, 0))
            if text.read(1) != b"\n":
                os.write(self._descriptor, b"\n")


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines, without those that a crash cut off."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                if event.get("schema", SCHEMA) != SCHEMA:
                    raise CampaignError(f"{path} is of another version of the lab: {event['schema']}, not {SCHEMA}")
                yield event

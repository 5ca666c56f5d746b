"""How many paths are measured side by side in real time: the plan's number, this machine's calibration, or a default.

`bentpipe-lab calibrate` tries the machine and keeps what it found in a file, which holds for that machine alone.
"""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from bentpipe_lab import programs
from bentpipe_lab.campaign.plan import Plan
from bentpipe_lab.room import room, whole

DEFAULT = 2
"""Paths, on a machine that was not tried."""
MOST = 256
SCHEMA = "bentpipe/lab/calibration/1"


@dataclass(frozen=True)
class Calibration:
    """What was found about a machine."""

    paths: int
    """The most that were punctual side by side."""
    host: str
    processors: int
    revision: str
    """Of the lab, with which it was found."""
    at: str
    late: Mapping[str, float]
    """Share of runs that were late, by the number of paths that was tried."""
    load: float
    """Of the machine before it began."""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What a file says; None where there is none, or nothing that can be believed."""
        try:
            table = json.loads(path.read_text())
            schema = table.pop("schema")
            found = cls(**table)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        believed = schema == SCHEMA and type(found.paths) is int and 1 <= found.paths <= MOST
        return found if believed else None

    def write(self, path: Path) -> None:
        """Keep it."""
        with room(path, "calibrate again"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole(path) as part:
                part.write_text(json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1) + "\n")


@dataclass(frozen=True)
class Choice:
    """So many paths, and why."""

    paths: int
    why: str


def file() -> Path:
    """Where a calibration is kept: in the lab's cache."""
    return programs.cache() / "calibration.json"


def choice(plan: Plan) -> Choice:
    """How many paths a plan has side by side on this machine."""
    if plan.parallel is not None:
        return Choice(plan.parallel, "as the plan says")
    found = Calibration.read(file())
    if found is None:
        return Choice(DEFAULT, "the default: `bentpipe-lab calibrate` finds this machine's number")
    theirs, ours = (found.host, found.processors), (platform.node(), os.cpu_count())
    if theirs != ours:
        return Choice(
            DEFAULT,
            f"the default: {file()} is of {found.host} with {found.processors} processors, not of this machine;"
            " `bentpipe-lab calibrate` finds its number",
        )
    return Choice(found.paths, f"calibrated {found.at}, revision {found.revision}")

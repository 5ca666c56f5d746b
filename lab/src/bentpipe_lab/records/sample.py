"""One measurement, as it is kept: what ran, how it ended, how long it took, and what happened meanwhile."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from bentpipe_lab.records.verdict import Verdict

SCHEMA = "bentpipe/lab/sample/1"


@dataclass(frozen=True)
class Outcome:
    """How one run of a workload ended. Times are seconds since its start."""

    verdict: Verdict
    seconds: float | None = None
    """How long it took; only a run that ended well has a time, though it may be that of a late emulator."""
    bytes_received: int = 0
    detail: str = ""
    curve: list[tuple[float, int]] = field(default_factory=list)
    """Of a download: (time, bytes received until then)."""
    objects: list[dict[str, Any]] = field(default_factory=list)
    """Of a page: path, size, and when the object was requested, began to arrive and was complete."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further figures, by names that end with their unit."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """How it went, where more is known than the curve: rows with columns of the table of samples."""
    files: dict[str, str] = field(default_factory=dict)
    """What is kept of it beside the records: the file's path by the name that it is kept under."""


@dataclass(frozen=True)
class Sample:
    """An outcome with its place in the plan. One line of `records.jsonl`."""

    scenario: str
    system: str
    workload: str
    index: int
    outcome: Outcome

    def to_json(self) -> str:
        """The line, without its end."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Read a line back."""
        fields = json.loads(line)
        if fields.pop("schema") != SCHEMA:
            raise ValueError(f"not a {SCHEMA} record")
        outcome = fields.pop("outcome")
        outcome["verdict"] = Verdict(outcome["verdict"])
        outcome["curve"] = [(at, count) for at, count in outcome["curve"]]
        return cls(outcome=Outcome(**outcome), **fields)


def read(path: Path) -> list[Sample]:
    """The samples of a records file."""
    return [Sample.from_json(line) for line in path.read_text().splitlines()]

"""What `bentpipe sim` wrote down: runs from `records.jsonl`, lines from `summary.json`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from bentpipe_lab.errors import LabError
from bentpipe_lab.records.generated import Line, QuicSample

__all__ = ["FlowSample", "Line", "Run", "lines", "runs"]


@dataclass(frozen=True)
class FlowSample:
    """A sample of the run's first flow."""

    at_s: float
    received: int
    """Payload that has arrived so far, bytes, over all transfers."""
    arrived_udp: int
    """UDP payload that has arrived so far, bytes."""
    rtt_ms: float
    """Smoothed, as the sender sees it."""


@dataclass
class Run:
    """One run of a campaign; of its first flow where nothing else is said."""

    axes: Mapping[str, str]
    seed: int
    transfers: list[Mapping[str, Any]] = field(default_factory=list)
    samples: list[FlowSample] = field(default_factory=list)
    flow: Mapping[str, Any] = field(default_factory=dict)
    links: list[Mapping[str, Any]] = field(default_factory=list)


def runs(directory: Path) -> Iterator[Run]:
    """The runs in `records.jsonl`, one after the other; those that failed are left out."""
    run: Run | None = None
    with _there(directory / "records.jsonl").open() as lines:
        for line in lines:
            record = json.loads(line)
            if "run" in record:
                if run is not None:
                    yield run
                begun = record["run"]
                run = None if "failed" in begun else Run(begun["axes"], begun["seed"])
            elif run is not None and record.get("flow", 0) == 0:
                _add(run, record)
    if run is not None:
        yield run


def _add(run: Run, record: Mapping[str, Any]) -> None:
    match record.get("record"):
        case "sample":
            seen = cast(QuicSample, record)
            sample = FlowSample(seen["at_ns"] / 1e9, seen["received"], seen["arrived_udp_bytes"], seen["rtt_ns"] / 1e6)
            run.samples.append(sample)
        case "transfer":
            run.transfers.append(record)
        case "flow":
            run.flow = record
        case "link":
            run.links.append(record)


def lines(directory: Path) -> Sequence[Line]:
    """The lines of `summary.json`."""
    return [Line(**line) for line in json.loads(_there(directory / "summary.json").read_text())]


def _there(path: Path) -> Path:
    if not path.exists():
        raise LabError(f"{path} is not there; `bentpipe sim PLAN --out {path.parent}` writes it")
    return path

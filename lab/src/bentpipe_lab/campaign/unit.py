"""The units in which a campaign is executed: runs that one worker does together, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from bentpipe_lab.campaign.plan import VIRTUAL
from bentpipe_lab.campaign.points import Point

LEAST_PATIENCE_S = 600.0


@dataclass(frozen=True)
class Run:
    """One run: a point, how many times it was run before, and how often this very run was tried."""

    point: str
    repetition: int
    """From 1; in virtual time it is the seed."""
    attempt: int
    """From 1."""

    @property
    def directory(self) -> str:
        """Where it is kept, below the campaign's runs."""
        again = "" if self.attempt == 1 else f"-{self.attempt}"
        return f"{self.point}/{self.repetition:05d}{again}"

    @classmethod
    def of_directory(cls, directory: str) -> Self:
        """The run that is kept in a directory."""
        point, _, name = directory.rpartition("/")
        repetition, _, attempt = name.partition("-")
        return cls(point, int(repetition), int(attempt or 1))


@dataclass(frozen=True)
class Unit:
    """Runs that one worker does one after the other; it can travel to a worker elsewhere."""

    clock: str
    points: Mapping[str, Mapping[str, Any]]
    """What a worker needs to know of each point, by its id."""
    runs: Sequence[Run]
    late_repeats: int
    hosts: Mapping[str, Any] | None = None
    """Where client and server are, if not on the worker's machine."""
    alone: bool = False
    """No other path is measured beside its own."""
    patience_s: float = LEAST_PATIENCE_S
    """So long may the simulator tell of no further run, and so long may a path be built."""

    @property
    def name(self) -> str:
        """Unique in a campaign."""
        first = self.runs[0]
        return f"{first.directory.replace('/', '-')}-and-{len(self.runs) - 1}-more"


def unit(
    points: Sequence[Point], runs: Sequence[Run], late_repeats: int, hosts: Mapping[str, Any] | None = None,
    *, alone: bool = False, patience_s: float = LEAST_PATIENCE_S,
) -> Unit:  # fmt: skip
    """A unit of runs of points, all of one clock."""
    (clock,) = {point.clock for point in points}
    return Unit(
        clock, {point.id: _essence(point) for point in points}, list(runs), late_repeats, hosts, alone, patience_s
    )


def _essence(point: Point) -> dict[str, Any]:
    return {
        "axes": dict(point.axes),
        "system": point.system,
        "workload": point.workload,
        "bound_s": point.bound_s,
        "limit_s": point.limit_s,
        **(
            {"simulation": point.simulation, "until": point.until}
            if point.clock == VIRTUAL
            else {
                "scenario": point.scenario_toml,
                "settings": asdict(point.settings),
                "tcp": dict(point.tcp),
                "options": dict(point.options),
                "cold": point.cold,
                "neighbours": point.neighbours,
            }
        ),
    }

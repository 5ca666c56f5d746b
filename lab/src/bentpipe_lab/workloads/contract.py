"""The contract of a workload."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from bentpipe_lab import programs
from bentpipe_lab.errors import PlanError
from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.programs import Program
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.registry import Part, unknown

TCP, QUIC = "TCP", "QUIC"


@dataclass(frozen=True)
class Transfer:
    """A workload as the simulator can do it: bytes one way over one flow."""

    size: int
    """Bytes."""
    upload: bool = False
    until: Literal["first byte", "last byte", "the end"] = "last byte"
    """The moment that counts; "the end" is that of a transfer that lasts for a fixed time."""


@dataclass(frozen=True)
class Metric:
    """A figure of a run beside its time."""

    title: str
    """What a table calls it."""
    unit: str
    better: Literal["less", "more", ""] = "less"


@dataclass(frozen=True)
class Option:
    """Something of a workload that a plan may choose, as the axis `workload.NAME`."""

    default: str
    known: Sequence[str] = ()
    """The values that there are; without any, `check` tells."""
    check: Callable[[str], object] | None = None
    """Raises ValueError with what would be right."""

    def refuse(self, name: str, value: str) -> None:
        """Raise a `PlanError` for a value that it cannot take."""
        if self.known and value not in self.known:
            raise PlanError(f"axes.workload.{name}: {unknown('value', value, dict.fromkeys(self.known))}")
        if self.check is not None:
            try:
                self.check(value)
            except ValueError as error:
                raise PlanError(f"axes.workload.{name} = {value!r}: {error}") from error


class Workload(Part, ABC):
    """Something that a person does over a satellite link, by a real program, with its result checked.

    A file of this package with one class that extends this one is all that a new workload needs.
    """

    required = ("measures",)
    measures: ClassVar[str]
    """What its seconds are, for a table's legend: "time to the last byte"."""
    demo_runs: ClassVar[Mapping[str, int]] = {"geo": 3, "leo": 5}
    """How often the demo runs it, by scenario."""
    headline: ClassVar[bool] = False
    """Whether the report begins with it."""
    curve_bytes: ClassVar[int | None] = None
    """Bytes of a download whose arrival over time is drawn; None draws no curve."""
    timeline: ClassVar[bool] = False
    """Whether its outcome lists objects whose timeline is drawn."""
    metrics: ClassVar[Mapping[str, Metric]] = {}
    """The further figures of a run, by their names in records, which end with the unit."""
    counts: ClassVar[str | None] = None
    """Which of them counts, where the time is a fixed length and tells nothing."""
    options: ClassVar[Mapping[str, Option]] = {}
    """What a plan may choose of it."""
    chosen: Mapping[str, str] = {}
    """What was chosen; what was not has its default."""
    programs: ClassVar[Sequence[Program]] = ()
    """The programs that it needs, beside those of every path."""
    reads_records: ClassVar[bool] = False
    """Whether it wants the emulator to write down what becomes of each packet."""
    overhead_s: float = 0.0
    """What a run may take beside what it measures: the start of a browser, for example."""
    usual_s: float | None = None
    """What it takes beside its bound, where that depends on what was chosen (`campaign/costs.py` has the others)."""
    loads: int = 1
    """How often it does the same in a run."""

    def with_options(self, chosen: Mapping[str, str]) -> Self:
        """The workload with something chosen of it."""
        for name, value in chosen.items():
            if name not in self.options:
                raise PlanError(f"the workload {self.name!r}: {unknown('option', name, self.options)}")
            self.options[name].refuse(name, value)
        one = copy.copy(self)
        one.chosen = dict(chosen)
        return one

    def option(self, name: str) -> str:
        """What was chosen, or the default."""
        return self.chosen.get(name, self.options[name].default)

    def needs(self) -> Sequence[Program]:
        """The programs that it needs as it was chosen."""
        return self.programs

    def require(self) -> None:
        """Raise unless the programs that it needs are installed; the error says how to install them."""
        programs.require(self.name, self.needs())

    def check(self) -> None:
        """Raise a `PlanError` for what was chosen and cannot be: plans are refused before anything begins."""

    @property
    def over(self) -> str:
        """What it needs to be carried, as it was chosen: TCP or QUIC."""
        return TCP

    @property
    def transfer(self) -> Transfer | None:
        """What it is in virtual time; None when it runs in real time only."""
        return None

    @classmethod
    def figure(cls, seconds: float | None, metrics: Mapping[str, float]) -> float | None:
        """What counts of a run: by it repetitions are enough, and runs are compared."""
        return seconds if cls.counts is None else metrics.get(cls.counts)

    @property
    def runs_for_s(self) -> float | None:
        """How long it lasts, where that is fixed and its time tells nothing."""
        return None

    @abstractmethod
    def run(self, path: Topology) -> Outcome:
        """Do it once."""

    @abstractmethod
    def bound_s(self, link: Link) -> float:
        """The least time, seconds, that physics allows over a link, through a warm tunnel."""

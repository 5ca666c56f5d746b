"""The contract of a workload."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from bentpipe_lab.net.link import Link
from bentpipe_lab.net.topology import Topology
from bentpipe_lab.records.sample import Outcome
from bentpipe_lab.registry import Part

Options = Mapping[str, str | int | float | bool]
"""What a plan's axes say of a workload, by axis."""


@dataclass(frozen=True)
class Transfer:
    """A workload as the simulator can do it: bytes one way over one flow."""

    size: int
    """Bytes."""
    upload: bool = False
    until: Literal["first byte", "last byte"] = "last byte"
    """The moment that counts."""


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
    transfer: ClassVar[Transfer | None] = None
    """What it is in virtual time; None when it runs in real time only."""

    options: ClassVar[tuple[str, ...]] = ()
    """Axes of a plan that are its own."""
    beside_s: ClassVar[float] = 0.0
    """How long a run may take beside what its limit is for: the start of a server, reading a capture."""

    @abstractmethod
    def run(self, path: Topology) -> Outcome:
        """Do it once."""

    def run_with(self, path: Topology, _options: Options, _limit_s: float) -> Outcome:
        """Do it once as a plan's axes ask, within so many seconds."""
        return self.run(path)

    def check_option(self, _name: str, _value: object) -> None:
        """Raise a `PlanError` unless a value makes sense for one of its axes."""
        return

    @abstractmethod
    def bound_s(self, link: Link) -> float:
        """The least time, seconds, that physics allows over a link, through a warm tunnel."""
